"""Keeps the files of a large capture from filling the machine's memory with their pages."""

import contextlib
import os
import threading
from collections import deque
from pathlib import Path
from typing import Final

_KEEP_BYTES: Final = 512 << 20
_SMALL_BYTES: Final = 1 << 20


class RecentPages:
    """Lets the newest files stay in memory, and gives the pages of older ones back.

    A capture of gigabytes takes memory for its files that nothing else needs soon: the system finds
    every page anew, which costs more than the copy into it, and throws out what other programs
    read. The older files' pages go on to the newer ones instead. Nothing here waits for a
    disk: pages that are not written yet stay, and the next turn of writing takes them.

    Args:
        keep_bytes: What stays in memory, for the analyses that read it next.
    """

    def __init__(self, keep_bytes: int = _KEEP_BYTES) -> None:
        self._keep_bytes = keep_bytes
        self._held_bytes = 0
        self._files: deque[tuple[Path, int]] = deque()
        self._lock = threading.Lock()

    def add(self, path: Path, size: int) -> None:
        """Count a file that was just written; blocks no longer than a system call."""
        if size < _SMALL_BYTES:
            # More of them would be counted than the memory is worth.
            return
        # On a file with unwritten pages the advice begins to write them.
        _advise(path)
        old = []
        with self._lock:
            self._files.append((path, size))
            self._held_bytes += size
            while self._held_bytes > self._keep_bytes:
                oldest, old_size = self._files.popleft()
                self._held_bytes -= old_size
                old.append(oldest)
        for one in old:
            _advise(one)


def _advise(path: Path) -> None:
    advise = getattr(os, "posix_fadvise", None)
    if advise is None:
        return
    # It may be gone by now, and not every file system takes advice.
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY)
        try:
            advise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
