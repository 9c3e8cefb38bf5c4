"""Keeps the memory of a process that receives large messages near what it really holds."""

import ctypes
import threading
import time
from functools import lru_cache
from typing import Any, Final

_AT_MOST_EVERY_S: Final = 0.5


class MemoryGuard:
    """Gives freed memory back to the system when the process has grown by more than it may.

    A message arrives in buffers of one thread and is joined in another, whose allocators keep what
    is freed each for itself: at worst a process holds twice what is in flight. Giving back after
    every message would cost more than receiving it, since each page is asked for again.

    Args:
        growth_bytes: What the process may hold more than now.
    """

    def __init__(self, growth_bytes: int) -> None:
        self._limit = _resident_bytes() + growth_bytes
        self._lock = threading.Lock()
        self._next = 0.0

    def check(self) -> None:
        """Look, and give back if it is time; for threads other than an event loop's."""
        if time.monotonic() < self._next or not self._lock.acquire(blocking=False):
            return
        try:
            if _resident_bytes() > self._limit:
                give_back_free_memory()
                self._next = time.monotonic() + _AT_MOST_EVERY_S
        finally:
            self._lock.release()


def _resident_bytes() -> int:
    # Analysis processes only give back.
    import psutil

    return int(psutil.Process().memory_info().rss)


@lru_cache(maxsize=1)
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None  # not glibc


def give_back_free_memory() -> None:
    """Return freed pages of all allocators of this process to the system."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)
