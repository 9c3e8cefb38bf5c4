"""Keeps captured profiles on disk for collectors to fetch, for a bounded time and size."""

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from podscope_agent.errors import SpoolError
from podscope_agent.pieces import Pieces

log = structlog.get_logger()

PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A profile on disk.

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
        self._results: OrderedDict[str, StoredResult] = OrderedDict()
        try:
            if folder is None:
                self.folder = Path(tempfile.mkdtemp(prefix="podscope-agent-"))
            else:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.folder = folder
                self._remove_strangers()
        except OSError as error:
            msg = f"cannot use {folder or tempfile.gettempdir()} to keep profiles: {error.strerror}"
            raise SpoolError(msg) from error

    def put(self, capture_id: str, profile: Pieces) -> StoredResult:
        """Write a profile; it is there as a whole or not at all.

        Raises:
            SpoolError: It is larger than the spool, or the disk is full.
        """
        if profile.size > self.max_bytes:
            msg = (
                f"the profile has {profile.size:,} bytes and the spool holds {self.max_bytes:,}; "
                "capture shorter, or raise --spool-bytes"
            )
            raise SpoolError(msg)
        self.expire(room_for=profile.size)
        path = self.folder / f"{secrets.token_hex(16)}.xplane.pb"
        temporary = path.with_suffix(".tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                digest = profile.write_to(file)
            temporary.rename(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            msg = f"cannot keep the profile in {self.folder}: {error.strerror}"
            raise SpoolError(msg) from error
        result = StoredResult(path, profile.size, digest, time.monotonic())
        self._remove(capture_id)
        self._results[capture_id] = result
        return result

    def find(self, capture_id: str) -> StoredResult | None:
        """The profile of a capture, while it is kept."""
        self.expire()
        return self._results.get(capture_id)

    def expire(self, room_for: int = 0) -> None:
        """Remove what is too old, and the oldest until there is room."""
        too_old = time.monotonic() - self.keep_s
        used = sum(result.size for result in self._results.values())
        for capture_id, result in list(self._results.items()):
            if result.stored_at_s < too_old or used + room_for > self.max_bytes:
                log.info("profile_expired", capture=capture_id, bytes=result.size)
                self._remove(capture_id)
                used -= result.size

    def free_bytes(self) -> int:
        """What the disk has left."""
        return shutil.disk_usage(self.folder).free

    def close(self) -> None:
        """Remove what is kept."""
        for capture_id in list(self._results):
            self._remove(capture_id)
        if self._is_own:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _remove(self, capture_id: str) -> None:
        result = self._results.pop(capture_id, None)
        if result is not None:
            # Who reads it now keeps its open file.
            with contextlib.suppress(OSError):
                result.path.unlink(missing_ok=True)

    def _remove_strangers(self) -> None:
        """An agent that was killed leaves files that nobody asks for any more."""
        for path in self.folder.iterdir():
            if path.suffix in {".pb", ".tmp"} and path.is_file():
                path.unlink(missing_ok=True)
