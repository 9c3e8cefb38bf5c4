"""Samples the Python stacks of all threads and turns them into nested spans."""

import sys
import threading
import time
from types import CodeType, FrameType
from typing import Final

from podscope.profiler.recording import Span

SAMPLES_PER_SECOND: Final = 100
MAX_DEPTH: Final = 128

_Open = tuple[CodeType, int]


class StackSampler:
    """A thread that looks at all others; a frame seen in consecutive samples is one span."""

    def __init__(self, samples_per_second: int = SAMPLES_PER_SECOND) -> None:
        self.spans: dict[int, list[Span]] = {}
        self._period_s = 1 / samples_per_second
        self._open: dict[int, list[_Open]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="podscope-sampler", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more samples and close what is open."""
        self._stopping.set()
        self._thread.join()
        now_ns = time.perf_counter_ns()
        for thread in list(self._open):
            self._close(thread, 0, now_ns)

    def _run(self) -> None:
        own = threading.get_ident()
        while not self._stopping.wait(self._period_s):
            now_ns = time.perf_counter_ns()
            frames = sys._current_frames()
            for thread in self._open.keys() - frames.keys():
                self._close(thread, 0, now_ns)
            for thread, frame in frames.items():
                if thread != own:
                    self._observe(thread, _stack(frame), now_ns)

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
            closed.append(Span(_name(code), start_ns, now_ns, {}))


def _stack(frame: FrameType | None) -> list[CodeType]:
    """Code of a thread's frames, outermost first."""
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    codes.reverse()
    return codes[:MAX_DEPTH]


def _name(code: CodeType) -> str:
    """A frame's name as the frameworks' Python tracers write it."""
    file = code.co_filename.rpartition("/")[2]
    return f"${file}:{code.co_firstlineno} {code.co_qualname}"
