"""A profile that arrives in pieces: on disk at once, digested on the way, never whole in memory."""

import contextlib
import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path

from podscope_collector.storage import Storage, StorageError


class IncomingProfile:
    """A file that is being received; ``discard`` it in the end. Its methods block.

    Attributes:
        path: Where it is until it is adopted.
        size: Bytes that have arrived.

    Raises:
        StorageError: here and in every method but ``discard``: the disk is full, or not to be
            written.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._digest = hashlib.sha256()
        self.size = 0
        self.path: Path = storage.incoming_path()
        with self._errors():
            self._file = self.path.open("xb")

    def write(self, piece: bytes) -> None:
        """Append a piece."""
        with self._errors():
            self._file.write(piece)
        self._digest.update(piece)
        self.size += len(piece)

    @property
    def sha256(self) -> str:
        """Digest of what has arrived."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """Write out what is buffered; the file can be read then."""
        with self._errors():
            self._file.close()

    def content(self) -> mmap.mmap | bytes:
        """The bytes, mapped: nobody else writes to this file."""
        if not self.size:
            return b""
        with self._errors(), self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def discard(self) -> None:
        """Remove the file, unless it was adopted."""
        with contextlib.suppress(OSError):
            # What is buffered may not fit on the disk.
            self._file.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"cannot receive a profile into {self.path.parent}: {error.strerror or error}"
            raise StorageError(message) from error
