"""Bytes that are not joined until they leave: a profile as the parts of its sources."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

Chunk = bytes | bytearray | memoryview

_SLICE_BYTES: Final = 16 << 20


class Pieces:
    """A byte string in parts, each a view of what was received, so that nothing is copied.

    Attributes:
        chunks: The parts, in order.
        size: Bytes of all of them.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.chunks: tuple[Chunk, ...] = tuple(chunks)
        self.size = sum(len(chunk) for chunk in self.chunks)

    def joined(self) -> bytes:
        """One byte string; a single one that is whole already is not copied."""
        if len(self.chunks) == 1 and isinstance(self.chunks[0], bytes):
            return self.chunks[0]
        return b"".join(self.chunks)

    def slices(self) -> Iterator[memoryview]:
        """The bytes in slices that are cheap to pass on, none above 16 MiB."""
        for chunk in self.chunks:
            view = memoryview(chunk)
            for start in range(0, len(view), _SLICE_BYTES):
                yield view[start : start + _SLICE_BYTES]

    def write_to(self, file: BinaryIO) -> str:
        """Write everything; return the SHA-256 in hex."""
        digest = hashlib.sha256()
        for piece in self.slices():
            digest.update(piece)
            file.write(piece)
        return digest.hexdigest()
