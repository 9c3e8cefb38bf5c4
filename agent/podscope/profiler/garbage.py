"""Pauses in which Python collects garbage, as spans of the thread that paused."""

import gc
import threading
import time
from collections.abc import Mapping
from typing import Final

from podscope.profiler.recording import Recording

PAUSE_NAME: Final = "Python garbage collection"
SHORTEST_PAUSE_NS: Final = 100_000
"""Shorter ones come by the thousand and delay nobody."""


class GarbageWatch:
    """Records pauses until it is stopped."""

    def __init__(self, recorded: Recording) -> None:
        self._recorded = recorded
        self._began = threading.local()
        gc.callbacks.append(self._told)

    def stop(self) -> None:
        """Record no more."""
        gc.callbacks.remove(self._told)

    def _told(self, phase: str, facts: Mapping[str, int]) -> None:
        now_ns = time.perf_counter_ns()
        if phase == "start":
            self._began.ns = now_ns
            return
        began_ns = getattr(self._began, "ns", now_ns)
        if now_ns - began_ns >= SHORTEST_PAUSE_NS:
            self._recorded.add(PAUSE_NAME, began_ns, now_ns, dict(facts))
