"""One capture of this process: record, then write it down as an XSpace."""

import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from podscope import wire
from podscope.profiler import frameworks, recording
from podscope.profiler.counters import Counters, counter_line
from podscope.profiler.errors import ProfilerAlreadyRunningError
from podscope.profiler.frameworks.session import FrameworkSession
from podscope.profiler.garbage import GarbageWatch
from podscope.profiler.joining import join
from podscope.profiler.options import TRACE_CALLS, ProfilerOptions
from podscope.profiler.planes import HOST_PLANE, PS_PER_NS, PlaneBuilder, as_text, task_plane
from podscope.profiler.recording import Recording, Span
from podscope.profiler.sampling import StackSampler

_OWN_THREADS = "podscope-"
_lock = threading.Lock()


class _PythonTracer(Protocol):
    spans: dict[int, list[Span]]

    def start(self) -> None: ...

    def stop(self) -> list[str]: ...


class Session:
    """A running capture; at most one per process.

    Attributes:
        is_empty: Whether the capture, once stopped, holds no event.
    """

    def __init__(self, options: ProfilerOptions, *, is_remote: bool = False) -> None:
        """Begin to record.

        Args:
            options: What to record.
            is_remote: Whether the calling thread is a server's rather than the program's.

        Raises:
            ProfilerAlreadyRunningError: another capture runs.
        """
        if not _lock.acquire(blocking=False):
            raise ProfilerAlreadyRunningError
        self._lock = _lock
        self.is_empty = True
        self._warnings: list[str] = []
        self._frameworks: list[FrameworkSession] = []
        self._recording = Recording(self._mark_thread)
        self._tracer: _PythonTracer | None = None
        self._garbage: GarbageWatch | None = None
        self._counters: Counters | None = None
        try:
            self._begin(options, is_remote=is_remote)
        except BaseException:
            # No thread to be had, an interrupt: what began ends, and the next capture can begin.
            self._end()
            raise

    def _begin(self, options: ProfilerOptions, *, is_remote: bool) -> None:
        # Before the own recording: it may take a while, and its start is the earlier one then.
        self._frameworks = frameworks.start(options, self._warnings, is_remote=is_remote)
        self._recording = Recording(self._mark_thread)
        self._recording.meet_threads()
        self._tracer = self._started_tracer(options.python_tracer_level)
        if options.host_tracer_level > 0:
            recording.active = self._recording
            self._garbage = GarbageWatch(self._recording)
            counters = Counters()
            counters.start()
            self._counters = counters

    def stop(self) -> bytes:
        """End the capture; return its XSpace, serialised."""
        stop_unix_ns, spaces = self._end()
        traced = {} if self._tracer is None else self._tracer.spans
        self.is_empty = not (spaces or self._recording.spans or traced)
        own = self._own_space(traced, stop_unix_ns)
        return join(own, self._recording.start_unix_ns, spaces)

    def _end(self) -> tuple[int, list[bytes]]:
        """When the capture ended, and what the frameworks recorded; the next one can begin."""
        try:
            recording.active = None
            if self._garbage is not None:
                self._garbage.stop()
            self._recording.meet_threads()
            if self._tracer is not None:
                self._warnings += self._tracer.stop()
            if self._counters is not None:
                self._counters.stop()
            stop_unix_ns = time.time_ns()
            return stop_unix_ns, frameworks.stop(self._frameworks, self._warnings)
        finally:
            self._lock.release()

    def _started_tracer(self, level: int) -> _PythonTracer | None:
        tracer: _PythonTracer
        if level <= 0:
            return None
        if level >= TRACE_CALLS:
            # Here, for those who ask for it: what it imports is not light.
            from podscope.profiler.call_tracing import CallTracer, CallTracingError

            tracer = CallTracer()
            try:
                tracer.start()
            except CallTracingError as error:
                self._warnings.append(f"{error}; stacks are sampled instead")
            else:
                return tracer
        tracer = StackSampler()
        tracer.start()
        return tracer

    def _mark_thread(self, native_id: int) -> None:
        for framework in self._frameworks:
            framework.mark_thread(native_id)

    def _own_space(self, traced: Mapping[int, Sequence[Span]], stop_unix_ns: int) -> Any:
        recorded = self._recording
        space = wire.XSpace(hostnames=[socket.gethostname()], warnings=self._warnings)
        plane = PlaneBuilder(space.planes.add(name=HOST_PLANE))
        for thread in sorted({*recorded.spans, *traced}):
            if recorded.thread(thread).name.startswith(_OWN_THREADS):
                continue
            spans = [*recorded.spans.get(thread, ()), *traced.get(thread, ())]
            _add_line(plane, recorded, thread, spans)
        if self._counters is not None:
            counter_line(plane, self._counters.readings, recorded.start_ns)
        plane.add_stat(plane.message, "process_id", os.getpid())
        space.planes.append(task_plane(recorded.start_unix_ns, stop_unix_ns))
        return space


def _add_line(plane: PlaneBuilder, recorded: Recording, ident: int, spans: list[Span]) -> None:
    # Outer before inner: that is how readers rebuild the nesting.
    spans.sort(key=lambda span: (span.start_ns, -span.end_ns))
    thread = recorded.thread(ident)
    line = plane.message.lines.add(id=thread.native_id, name=as_text(thread.name))
    for span in spans:
        start_ns = max(span.start_ns, recorded.start_ns)
        event = line.events.add(
            metadata_id=plane.event_id(span.name),
            offset_ps=(start_ns - recorded.start_ns) * PS_PER_NS,
            duration_ps=max(0, span.end_ns - start_ns) * PS_PER_NS,
        )
        for key, value in span.metadata.items():
            plane.add_stat(event, key, value)


def _forget_parent() -> None:
    """A forked child has none of the parent's threads: what they recorded is not its capture."""
    global _lock
    _lock = threading.Lock()
    recording.active = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
