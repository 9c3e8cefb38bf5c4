"""One capture of this process: record, then write it down as an XSpace."""

import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from podscope import wire
from podscope.profiler import recording
from podscope.profiler.errors import ProfilerAlreadyRunningError
from podscope.profiler.recording import Recording, Span
from podscope.profiler.sampling import StackSampler

_PS_PER_NS = 1000
_lock = threading.Lock()


class ProfilerOptions(NamedTuple):
    """What to record; the fields are those of TensorFlow's options.

    Attributes:
        host_tracer_level: 0 leaves `Trace` spans out.
        python_tracer_level: 0 leaves Python stacks out; from 1 on they are sampled.
        device_tracer_level: Taken for portability; this process has no device tracer.
        delay_ms: Wait this long before recording; None starts at once.
    """

    host_tracer_level: int = 2
    python_tracer_level: int = 1
    device_tracer_level: int = 1
    delay_ms: int | None = None


class Session:
    """A running capture; at most one per process."""

    def __init__(self, options: ProfilerOptions) -> None:
        """Begin to record.

        Raises:
            ProfilerAlreadyRunningError: another capture runs.
        """
        if not _lock.acquire(blocking=False):
            raise ProfilerAlreadyRunningError
        self._lock = _lock
        self._recording = Recording()
        self._sampler = StackSampler() if options.python_tracer_level > 0 else None
        if options.host_tracer_level > 0:
            recording.active = self._recording
        if self._sampler is not None:
            self._sampler.start()

    def stop(self) -> bytes:
        """End the capture; return its XSpace, serialised."""
        try:
            recording.active = None
            if self._sampler is not None:
                self._sampler.stop()
            stop_unix_ns = time.time_ns()
        finally:
            self._lock.release()
        sampled = {} if self._sampler is None else self._sampler.spans
        return _xspace(self._recording, sampled, stop_unix_ns)

    def has_spans(self) -> bool:
        """Whether anything was recorded so far."""
        return bool(self._recording.spans or (self._sampler and self._sampler.spans))


def _xspace(recorded: Recording, sampled: Mapping[int, Sequence[Span]], stop_unix_ns: int) -> bytes:
    space = wire.XSpace(hostnames=[socket.gethostname()])
    plane = _Plane(space.planes.add(name="/host:CPU"))
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for thread in sorted({*recorded.spans, *sampled}):
        spans = [*recorded.spans.get(thread, ()), *sampled.get(thread, ())]
        # Outer before inner: that is how readers rebuild the nesting.
        spans.sort(key=lambda span: (span.start_ns, -span.end_ns))
        line = plane.message.lines.add(
            id=thread, name=_text(names.get(thread) or f"thread {thread}")
        )
        for span in spans:
            event = line.events.add(
                metadata_id=plane.event_id(span.name),
                offset_ps=max(0, span.start_ns - recorded.start_ns) * _PS_PER_NS,
                duration_ps=(span.end_ns - span.start_ns) * _PS_PER_NS,
            )
            for key, value in span.metadata.items():
                plane.set_stat(event.stats.add(), key, value)
    plane.set_stat(plane.message.stats.add(), "process_id", os.getpid())
    task = _Plane(space.planes.add(name="Task Environment"))
    for key, value in (
        ("profile_start_time", recorded.start_unix_ns),
        ("profile_stop_time", stop_unix_ns),
    ):
        stat = task.message.stats.add(metadata_id=task.stat_id(key))
        stat.uint64_value = value
    serialised: bytes = space.SerializeToString()
    return serialised


class _Plane:
    """An XPlane under construction, with its names interned."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self._event_ids: dict[str, int] = {}
        self._stat_ids: dict[str, int] = {}

    def event_id(self, name: object) -> int:
        return self._interned(self._event_ids, self.message.event_metadata, _text(name))

    def stat_id(self, name: object) -> int:
        return self._interned(self._stat_ids, self.message.stat_metadata, _text(name))

    def _interned(self, ids: dict[str, int], table: Any, name: str) -> int:
        found = ids.get(name)
        if found is None:
            found = ids[name] = len(ids) + 1
            table[found].id = found
            table[found].name = name
        return found

    def set_stat(self, stat: Any, name: str, value: object) -> None:
        stat.metadata_id = self.stat_id(name)
        if isinstance(value, float):
            stat.double_value = value
        elif isinstance(value, int) and -(2**63) <= value < 2**63:
            stat.int64_value = int(value)
        elif isinstance(value, int) and 0 <= value < 2**64:
            stat.uint64_value = value
        else:
            stat.ref_value = self.stat_id(value)


def _text(value: object) -> str:
    """What a user gave, as text that a message can hold; one odd name must not cost a capture."""
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception as error:  # noqa: BLE001 - a user's own __str__ may raise anything
        return f"<{type(value).__name__} without text: {type(error).__name__}>"


def _forget_parent() -> None:
    """A forked child has none of the parent's threads: what they recorded is not its capture."""
    global _lock
    _lock = threading.Lock()
    recording.active = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
