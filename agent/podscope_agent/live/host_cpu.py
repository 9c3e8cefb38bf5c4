"""How busy the host's cores are, whichever thread asks and however often.

psutil's own percentage is since the same *thread* asked last, and zero for a thread that never did.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import psutil

_SHORTEST_S: Final = 1.0
"""Between two readings; the kernel counts in hundredths of a second."""


def busy_ratio(before: Any, after: Any) -> float | None:
    """Share of all cores' time in use between two of ``psutil.cpu_times()``; None without time."""
    idle = _idle_s(after) - _idle_s(before)
    total = _total_s(after) - _total_s(before)
    return min(1.0, max(0.0, 1 - idle / total)) if total > 0 else None


class CpuUse:
    """The share since it was read last, at least a second ago: who asks sooner gets the same."""

    def __init__(
        self,
        times: Callable[[], Any] = psutil.cpu_times,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._times = times
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = clock()
        self._last = times()
        self._ratio: float | None = None

    def ratio(self) -> float | None:
        """Share of all cores' time in use, 0-1; None before any time has passed."""
        with self._lock:
            now = self._clock()
            if now - self._read_at >= _SHORTEST_S:
                times = self._times()
                self._ratio = busy_ratio(self._last, times)
                self._last, self._read_at = times, now
            elif self._ratio is None:
                return busy_ratio(self._last, self._times())
            return self._ratio


def _idle_s(times: Any) -> float:
    return float(times.idle + getattr(times, "iowait", 0.0))


def _total_s(times: Any) -> float:
    # Linux counts guests' time as the user's too.
    return float(sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))
