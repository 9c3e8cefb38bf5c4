"""A profile that arrives in pieces: on disk at once, digested on the way, never whole in memory."""

import hashlib
import mmap
from pathlib import Path

from podscope_collector.storage import Storage


class IncomingProfile:
    """A file that is being received; ``discard`` it in the end. Its methods block.

    Attributes:
        path: Where it is until it is adopted.
        size: Bytes that have arrived.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._digest = hashlib.sha256()
        self.size = 0
        self.path: Path = storage.incoming_path()
        self._file = self.path.open("xb")

    def write(self, piece: bytes) -> None:
        """Append a piece."""
        self._file.write(piece)
        self._digest.update(piece)
        self.size += len(piece)

    @property
    def sha256(self) -> str:
        """Digest of what has arrived."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """Write out what is buffered; the file can be read then."""
        self._file.close()

    def content(self) -> mmap.mmap | bytes:
        """The bytes, mapped: nobody else writes to this file."""
        if not self.size:
            return b""
        with self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def discard(self) -> None:
        """Remove the file, unless it was adopted."""
        self._file.close()
        self.path.unlink(missing_ok=True)
