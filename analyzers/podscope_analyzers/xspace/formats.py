"""What a file is: an XSpace, a packed one, or something else that is named in the error."""

import contextlib
import gzip
import io
import zlib
from importlib import import_module
from types import ModuleType
from typing import Final, Protocol, cast

from podscope_analyzers.errors import XSpaceError
from podscope_analyzers.xspace.limits import Limits

_CHUNK: Final = 1 << 20
_ANY_PACKING_BYTES: Final = 16 << 20
START: Final = 256

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"

# A file that starts so is not an XSpace, whatever follows.
_OTHERS: Final = (
    (b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f", "a Riegeli file, which this version does not read; "
     "capture the host again as .xplane.pb"),
    (b"PK\x03\x04", "a zip archive; unpack it and give the .xplane.pb in it"),
    (b"\x89PNG", "a PNG image"),
    (b"\x7fELF", "an ELF binary"),
    (b"BZh", "a bzip2 file; unpack it first"),
    (b"\xfd7zXZ", "an xz file; unpack it first"),
    (b"%PDF", "a PDF document"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x00asm", "a WebAssembly module"),
)  # fmt: skip
# Keys of an XSpace's fields: planes, errors, warnings, hostnames.
_FIRST_BYTES: Final = b"\x0a\x12\x1a\x22"


def _is_text(start: bytes) -> bool:
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        # The cut may have gone through a character.
        if error.start < len(start) - 3:
            return False
        text = start[: error.start].decode()
    return all(c.isprintable() or c in "\t\r\n" for c in text)


def describe(start: bytes) -> str | None:
    """What a file is by its first bytes; None when it may be an XSpace.

    Args:
        start: Its first few hundred bytes.
    """
    if not start:
        return "the file is empty; the profiler was stopped before it wrote it"
    for magic, what in _OTHERS:
        if start.startswith(magic):
            return f"this is {what}"
    if start[0] in _FIRST_BYTES:
        return None
    return describe_text(start) or f"no XSpace starts with the byte 0x{start[0]:02x}"


def describe_text(start: bytes) -> str | None:
    """What kind of text a file is; None when it is none.

    A newline and a quotation mark are keys of an XSpace's fields too, so that this is asked
    of a file that starts with one only when it could not be read.

    Args:
        start: Its first few hundred bytes.
    """
    if not _is_text(start):
        return None
    stripped = start.lstrip()
    if stripped.startswith((b"{", b"[")):
        return "this is JSON, a trace for another viewer perhaps; give the .xplane.pb beside it"
    if stripped.startswith(b"<"):
        return "this is HTML or XML, an error page of the storage perhaps; download it again"
    return "this is a text file"


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _zstd() -> ModuleType:
    """Python's own module for zstd, which later versions have, or the same for earlier ones."""
    for name in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            return import_module(name)
    problem = (
        "it is packed with zstd, which takes Python 3.14 or backports.zstd (pip install "
        "'podscope[collector]'); or unpack it with 'zstd -d' first"
    )
    raise XSpaceError(problem, offset=0)


def _unpack_zstd(packed: memoryview, limit: int) -> bytearray:
    zstd = _zstd()
    try:
        return _read_all(cast("_Reader", zstd.ZstdFile(io.BytesIO(packed))), limit)
    except zstd.ZstdError as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> XSpaceError:
    problem = f"it cannot be unpacked ({error}); copy it again"
    return XSpaceError(problem, offset=0)


def _read_all(stream: _Reader, limit: int) -> bytearray:
    unpacked = bytearray()
    try:
        while chunk := stream.read(_CHUNK):
            unpacked += chunk
            if len(unpacked) > limit:
                problem = f"unpacked it is larger than {limit} bytes"
                raise XSpaceError(problem, offset=0)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _damaged(error) from error
    return unpacked


def recognise(view: memoryview, limits: Limits) -> memoryview:
    """The bytes of the XSpace: those of the file, or what is packed in it.

    Raises:
        XSpaceError: the file is something else, which the message names.
    """
    start = bytes(view[:START])
    # Deflate packs a thousand equal bytes in one; no capture is like that.
    likely = max(_ANY_PACKING_BYTES, limits.decompressed_ratio * len(view))
    limit = min(limits.decompressed_bytes, likely)
    if start.startswith(GZIP_MAGIC):
        view = memoryview(_read_all(gzip.GzipFile(fileobj=io.BytesIO(view)), limit))
    elif start.startswith(ZSTD_MAGIC):
        view = memoryview(_unpack_zstd(view, limit))
    start = bytes(view[:START])
    problem = describe(start)
    if problem is not None:
        raise XSpaceError(problem, offset=0)
    return view
