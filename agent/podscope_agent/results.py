"""Keeps captured profiles on disk for collectors to fetch, for a bounded time and size."""

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from podscope_agent.errors import SpoolError
from podscope_agent.pieces import Pieces

log = structlog.get_logger()

PIECE_BYTES: Final = 1 << 20
_LONGEST_PAUSE_S: Final = 30.0
_OWN_NAME: Final = re.compile(r"[0-9a-f]{32}\.xplane\.(pb|tmp)")


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A profile on disk, or one of those that a capture was split into.

    Attributes:
        path: Its file.
        sha256: Digest in hex.
        stored_at_s: By the monotonic clock.
    """

    path: Path
    size: int
    sha256: str
    stored_at_s: float


class ResultSpool:
    """Files of finished captures, by the capture's id; the oldest go first.

    Args:
        folder: Where; made if absent, private to this user. None for one under the system's
            folder of temporary files, removed with ``close``.
        max_bytes: Of all files together; a profile that is larger is refused.
        keep_s: How long a file stays.
    """

    def __init__(self, folder: Path | None, max_bytes: int, keep_s: float) -> None:
        self._is_own = folder is None
        self.max_bytes = max_bytes
        self.keep_s = keep_s
        self._results: OrderedDict[str, tuple[StoredResult, ...]] = OrderedDict()
        try:
            if folder is None:
                self.folder = Path(tempfile.mkdtemp(prefix="podscope-agent-"))
            else:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.folder = folder
                self._remove_strangers()
        except OSError as error:
            msg = (
                f"cannot use {folder or 'a folder of temporary files'} to keep profiles: "
                f"{error.strerror or error}; choose another --spool-dir"
            )
            raise SpoolError(msg) from error

    def put(self, capture_id: str, *profiles: Pieces) -> tuple[StoredResult, ...]:
        """Write the profiles of a capture; all are there as a whole, or none.

        Raises:
            SpoolError: They are larger than the spool, or the disk is full.
        """
        size = sum(profile.size for profile in profiles)
        if size > self.max_bytes:
            msg = (
                f"the profile has {size:,} bytes and the spool holds {self.max_bytes:,}; "
                "capture shorter, or raise --spool-bytes"
            )
            raise SpoolError(msg)
        self.expire(room_for=size)
        written: list[StoredResult] = []
        try:
            written.extend(map(self._written, profiles))
        except SpoolError:
            _unlink(written)
            raise
        self._remove(capture_id)
        self._results[capture_id] = tuple(written)
        return tuple(written)

    def _written(self, profile: Pieces) -> StoredResult:
        path = self.folder / f"{secrets.token_hex(16)}.xplane.pb"
        temporary = path.with_suffix(".tmp")
        try:
            self._make_folder()
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                digest = profile.write_to(file)
            temporary.rename(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            msg = f"cannot keep the profile in {self.folder}: {error.strerror}"
            raise SpoolError(msg) from error
        return StoredResult(path, profile.size, digest, time.monotonic())

    def find(self, capture_id: str) -> tuple[StoredResult, ...]:
        """The profiles of a capture, while they are kept; none when they are not."""
        self.expire()
        return self._results.get(capture_id, ())

    def expire(self, room_for: int = 0) -> None:
        """Remove what is too old, and the oldest until there is room."""
        too_old = time.monotonic() - self.keep_s
        used = sum(map(_size, self._results.values()))
        for capture_id, results in list(self._results.items()):
            if results[-1].stored_at_s < too_old or used + room_for > self.max_bytes:
                log.info("profile_expired", capture=capture_id, bytes=_size(results))
                self._remove(capture_id)
                used -= _size(results)

    async def keep_expiring(self) -> None:
        """Remove what is too old until cancelled, whether or not anybody asks for anything."""
        while True:
            await asyncio.sleep(min(self.keep_s, _LONGEST_PAUSE_S))
            await asyncio.to_thread(self.expire)

    def free_bytes(self) -> int:
        """What the disk has left."""
        self._make_folder()
        return shutil.disk_usage(self.folder).free

    def close(self) -> None:
        """Remove what is kept."""
        for capture_id in list(self._results):
            self._remove(capture_id)
        if self._is_own:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _make_folder(self) -> None:
        # Machines that run for weeks clean their folder of temporary files.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _remove(self, capture_id: str) -> None:
        _unlink(self._results.pop(capture_id, ()))

    def _remove_strangers(self) -> None:
        """An agent that was killed leaves files that nobody asks for any more.

        Only what this class names so: a folder that somebody chose may hold models and profiles.
        """
        for path in self.folder.iterdir():
            if _OWN_NAME.fullmatch(path.name) and path.is_file():
                path.unlink(missing_ok=True)


def _size(results: Iterable[StoredResult]) -> int:
    return sum(result.size for result in results)


def _unlink(results: Iterable[StoredResult]) -> None:
    for result in results:
        # Who reads it now keeps its open file.
        with contextlib.suppress(OSError):
            result.path.unlink(missing_ok=True)
