"""Several states in one file, each read by itself and without copying its arrays.

Made for files that are mapped into memory: a reader that wants one block of many touches the
pages of that block alone. Unlike ``states`` nothing is compressed.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from mmap import mmap
from typing import Any, Final

from podscope_analyzers.errors import PartialError
from podscope_analyzers.states import decode_state, encode_state

MAGIC: Final = b"PODSCOPE-BLOCKS\0"
FORMAT: Final = 1

_PREFIX: Final = struct.Struct("<16sIIQ")  # magic, format, bytes of the directory, of the file
_ALIGNMENT: Final = 64
_MAX_DIRECTORY: Final = 1 << 20
_ADVICE: Final = "it is made again from the partial results of the hosts"


def pack_blocks(states: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The bytes of several named states; see ``states.pack_state`` for what they may hold."""
    directory: dict[str, list[int]] = {}
    body = bytearray()
    for name, state in states.items():
        header, arrays, size = encode_state(state)
        header += b" " * (-len(header) % _ALIGNMENT)
        begin = len(body)
        body += header
        for array in arrays:
            body += array
        content = memoryview(body)[begin:]
        directory[name] = [begin, len(header), size, zlib.crc32(content)]
        content.release()
        body += bytes(-len(body) % _ALIGNMENT)
    listing = json.dumps(directory).encode()
    listing += b" " * (-(_PREFIX.size + len(listing)) % _ALIGNMENT)
    total = _PREFIX.size + len(listing) + len(body)
    return _PREFIX.pack(MAGIC, FORMAT, len(listing), total) + listing + bytes(body)


class Blocks:
    """The states that ``pack_blocks`` wrote, each decoded when it is asked for.

    Args:
        buffer: The file's bytes; it must stay as it is.

    Raises:
        PartialError: the bytes are damaged, cut off, foreign, or of another format.
    """

    def __init__(self, buffer: bytes | memoryview | mmap) -> None:
        whole = memoryview(buffer)
        if len(whole) < _PREFIX.size:
            msg = _damaged(f"cut off at {len(whole)} bytes")
            raise PartialError(msg)
        magic, version, listing, total = _PREFIX.unpack_from(whole)
        if magic != MAGIC or version != FORMAT:
            msg = _damaged("not of this format")
            raise PartialError(msg)
        if total != len(whole) or listing > _MAX_DIRECTORY:
            msg = _damaged(f"{len(whole)} of {total} bytes")
            raise PartialError(msg)
        begin = _PREFIX.size + listing
        try:
            self._directory = json.loads(bytes(whole[_PREFIX.size : begin]))
        except ValueError as error:
            msg = _damaged("its directory cannot be read")
            raise PartialError(msg) from error
        self._body = whole[begin:]

    def __contains__(self, name: str) -> bool:
        """Whether there is a block of this name."""
        return name in self._directory

    def state(self, name: str) -> dict[str, Any]:
        """One of the states; its arrays are read-only views of the buffer.

        Raises:
            PartialError: there is none of this name, or it is damaged.
        """
        content, header = self._content(name)
        return decode_state(content[:header], content[header:])

    def verify(self) -> None:
        """Check all blocks without decoding them.

        Raises:
            PartialError: one is damaged.
        """
        for name in self._directory:
            self._content(name)

    def _content(self, name: str) -> tuple[memoryview, int]:
        """The checked bytes of a block, and how many of them are its header."""
        try:
            begin, header, arrays, checksum = self._directory[name]
            content = self._body[begin : begin + header + arrays]
        except (KeyError, TypeError, ValueError) as error:
            msg = _damaged(f"no block '{name}'")
            raise PartialError(msg) from error
        if zlib.crc32(content) != checksum:
            msg = _damaged(f"block '{name}'")
            raise PartialError(msg)
        return content, header


def _damaged(what: str) -> str:
    return f"a stored combined result is damaged ({what}); {_ADVICE}"
