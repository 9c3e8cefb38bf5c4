"""Names spans of a program; costs next to nothing while no capture runs."""

import time
from types import TracebackType
from typing import Self

from podscope.profiler import recording, step_times
from podscope.profiler.failures import record_failure

MetadataValue = bool | int | float | str


class Trace:
    """A context manager that records the span of its body, with metadata.

    Args:
        name: What the span is called.
        metadata: Values to keep with it. ``_r=1`` makes the span a step, ``step_num`` numbers it.
    """

    __slots__ = ("_metadata", "_name", "_start_ns")

    def __init__(self, name: str, **metadata: MetadataValue) -> None:
        self._name = name
        self._metadata = metadata
        self._start_ns = 0

    def set_metadata(self, **metadata: MetadataValue) -> None:
        """Add metadata that is known only inside the span."""
        self._metadata.update(metadata)

    def __enter__(self) -> Self:
        if recording.active is not None:
            self._start_ns = time.perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        now_recording = recording.active
        if now_recording is None:
            return
        if error is not None:
            record_failure(error)
        # A span that began before the capture did has no start in it: it is left out, as the
        # frameworks' own annotations are.
        if self._start_ns >= now_recording.start_ns:
            end_ns = time.perf_counter_ns()
            # A copy: the same object may name the next span with other metadata.
            now_recording.add(self._name, self._start_ns, end_ns, dict(self._metadata))


class StepTrace(Trace):
    """A `Trace` that marks one training step.

    Args:
        name: What steps are called, for example ``train``.
        step_num: The step's number.
    """

    __slots__ = ()

    def __init__(self, name: str, step_num: int, **metadata: MetadataValue) -> None:
        super().__init__(name, _r=1, step_num=step_num, **metadata)

    def __enter__(self) -> Self:
        step_times.of_process.begin()
        return super().__enter__()
