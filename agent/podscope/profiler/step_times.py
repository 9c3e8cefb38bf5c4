"""How long the steps of this process take, kept for captures of a number of steps."""

import itertools
import time
from collections import deque
from collections.abc import Callable

_KEPT = 32


class StepTimes:
    """The moments at which the last steps began; one thread marks steps, another may ask."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.count = 0
        self._clock = clock
        self._starts: deque[float] = deque(maxlen=_KEPT)

    def begin(self) -> None:
        """A step begins now."""
        self.count += 1
        self._starts.append(self._clock())

    def take_back(self) -> None:
        """The step that began last was none."""
        if self._starts:
            self._starts.pop()
            self.count -= 1

    @property
    def seconds(self) -> float | None:
        """The median time from one step to the next; None before the second one.

        The median, since the first step compiles and others save checkpoints.
        """
        starts = tuple(self._starts)
        if len(starts) < 2:
            return None
        between = sorted(after - before for before, after in itertools.pairwise(starts))
        # The module `statistics` would be a tenth of what importing the profiler takes.
        half, is_odd = divmod(len(between), 2)
        return between[half] if is_odd else (between[half - 1] + between[half]) / 2


of_process = StepTimes()
"""The steps of the whole process."""
