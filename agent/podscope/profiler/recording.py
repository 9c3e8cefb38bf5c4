"""What one capture records while it runs: spans by thread, appended without a lock."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

_CLOCK_READINGS = 10
Metadata = Mapping[str, bool | int | float | str]


class Span(NamedTuple):
    """A named span of one thread; times are of `time.perf_counter_ns`."""

    name: str
    start_ns: int
    end_ns: int
    metadata: Metadata


class Thread(NamedTuple):
    """A thread as the system knows it; `native_id` is the interpreter's where that is unknown."""

    native_id: int
    name: str


class _SpansByThread(dict[int, list[Span]]):
    def __init__(self, first_span: Callable[[int], None]) -> None:
        super().__init__()
        self._first_span = first_span

    def __missing__(self, thread: int) -> list[Span]:
        created = self[thread] = []
        self._first_span(thread)
        return created


class Recording:
    """Spans of all threads since `start_ns`.

    Args:
        mark_thread: Called with its native id in every thread that records a first span.
    """

    def __init__(self, mark_thread: Callable[[int], None] | None = None) -> None:
        self.start_ns, self.start_unix_ns = _clocks()
        self.threads: dict[int, Thread] = {}
        # list.append is atomic in CPython, and each thread has a list of its own.
        self.spans: dict[int, list[Span]] = _SpansByThread(self._first_span)
        self._mark_thread = mark_thread

    def add(self, name: str, start_ns: int, end_ns: int, metadata: Metadata) -> None:
        """Keep one span of the calling thread."""
        self.spans[threading.get_ident()].append(Span(name, start_ns, end_ns, metadata))

    def meet_threads(self) -> None:
        """Remember the threads that live now; one that ends later keeps its name.

        So does one that recorded something when another thread gets its identifier.
        """
        for thread in threading.enumerate():
            ident = thread.ident
            if ident is not None and not (ident in self.spans and ident in self.threads):
                self.threads[ident] = Thread(thread.native_id or ident, thread.name)

    def thread(self, ident: int) -> Thread:
        """The thread of an identifier, as far as it is known."""
        return self.threads.get(ident) or Thread(ident, f"thread {ident}")

    def _first_span(self, ident: int) -> None:
        # It may be known from a thread that is over.
        self.threads.pop(ident, None)
        self.meet_threads()
        if ident not in self.threads:
            native_id = threading.get_native_id()
            self.threads[ident] = Thread(native_id, f"thread {native_id}")
        if self._mark_thread is not None:
            self._mark_thread(self.threads[ident].native_id)


def _clocks() -> tuple[int, int]:
    """One moment on both clocks: spans nest with those that a framework times by the other."""
    readings = []
    for _ in range(_CLOCK_READINGS):
        before_ns = time.perf_counter_ns()
        unix_ns = time.time_ns()
        gap_ns = time.perf_counter_ns() - before_ns
        readings.append((gap_ns, before_ns + gap_ns // 2, unix_ns))
    _, monotonic_ns, unix_ns = min(readings)
    return monotonic_ns, unix_ns


active: Recording | None = None
"""The recording that spans go to; read by every annotation, so a plain module attribute."""
