"""Samples the Python stacks of all threads and turns them into nested spans."""

import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Final

from podscope.profiler.code_names import code_name
from podscope.profiler.frames import current_frames
from podscope.profiler.recording import Span

SAMPLES_PER_SECOND: Final = 100
MAX_DEPTH: Final = 128
MAX_CPU_SHARE: Final = 0.02
"""Of one core. Where stacks are so many or so deep that a sample costs more, fewer are taken."""

_WEIGHT = 0.2
_Open = tuple[CodeType, int]


class Pace:
    """How long to wait between two samples.

    Args:
        samples_per_second: No more than so many.
        max_cpu_share: What samples may cost, in seconds of CPU per second.
    """

    def __init__(
        self,
        samples_per_second: float = SAMPLES_PER_SECOND,
        max_cpu_share: float = MAX_CPU_SHARE,
    ) -> None:
        self._period_s = 1 / samples_per_second
        self._max_cpu_share = max_cpu_share
        self._mean_cost_s: float | None = None

    def pause_s(self, cost_s: float) -> float:
        """Seconds until the next sample, after one that cost `cost_s` seconds of CPU."""
        # Averaged: one sample that met a deep stack must not slow the next ones down.
        mean_s = cost_s if self._mean_cost_s is None else self._mean_cost_s
        self._mean_cost_s = mean_s + _WEIGHT * (cost_s - mean_s)
        return max(self._period_s, self._mean_cost_s / self._max_cpu_share)


class StackSampler:
    """A thread that looks at all others; a frame seen in consecutive samples is one span.

    Args:
        pace: When to look again.
        cpu_clock: Seconds of CPU that the calling thread has used.

    Attributes:
        spans: Calls by thread, in the order in which they ended.
        samples: How often it looked.
    """

    def __init__(
        self, pace: Pace | None = None, cpu_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self.spans: dict[int, list[Span]] = {}
        self.samples = 0
        self._pace = pace or Pace()
        self._cpu_clock = cpu_clock
        self._open: dict[int, list[_Open]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="podscope-sampler", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> list[str]:
        """Take no more samples and close what is open; return what the reader must know."""
        self._stopping.set()
        self._thread.join()
        now_ns = time.perf_counter_ns()
        for thread in list(self._open):
            self._close(thread, 0, now_ns)
        return []

    def _run(self) -> None:
        own = threading.get_ident()
        pause_s = 0.0
        # The first at once: the shortest capture shows where its threads were.
        counted_s = self._cpu_clock()
        while not (self.samples and self._stopping.wait(pause_s)):
            self._sample(own)
            # Since the last count: waking up costs too.
            now_s = self._cpu_clock()
            pause_s = self._pace.pause_s(now_s - counted_s)
            counted_s = now_s

    def _sample(self, own: int) -> None:
        now_ns = time.perf_counter_ns()
        frames = current_frames()
        for thread in self._open.keys() - frames.keys():
            self._close(thread, 0, now_ns)
        for thread, frame in frames.items():
            if thread != own:
                self._observe(thread, stack_of(frame), now_ns)
        self.samples += 1

    def _observe(self, thread: int, stack: list[CodeType], now_ns: int) -> None:
        opened = self._open.setdefault(thread, [])
        common = 0
        for (code, _), seen in zip(opened, stack, strict=False):
            if code is not seen:
                break
            common += 1
        self._close(thread, common, now_ns)
        opened.extend((code, now_ns) for code in stack[common:])

    def _close(self, thread: int, depth: int, now_ns: int) -> None:
        opened = self._open[thread]
        closed = self.spans.setdefault(thread, [])
        while len(opened) > depth:
            code, start_ns = opened.pop()
            closed.append(Span(code_name(code), start_ns, now_ns, {}))


def stack_of(frame: FrameType | None) -> list[CodeType]:
    """Code of a thread's frames, outermost first, down to `MAX_DEPTH`."""
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    codes.reverse()
    return codes[:MAX_DEPTH]
