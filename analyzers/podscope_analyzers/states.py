"""Plain states (scalars, text, lists, dicts, arrays) as one compressed block of bytes, and back.

The block is a JSON header followed by the arrays' bytes, deflated as a whole. Reading it runs no
code of the writer's choice, which pickle would, and every size is checked before memory is taken.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from podscope_analyzers.errors import PartialError

MAGIC = b"PODSCOPE-STATE\0\0"
FORMAT = 1
MAX_UNPACKED_BYTES = 2 << 30

_PREFIX = struct.Struct("<16sIQQ")  # magic, format, bytes of the header, bytes of the arrays
_DTYPES = frozenset(
    {"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"},
)
_ALIGNMENT = 8
_ADVICE = "analyze the capture again"


def pack_state(state: Mapping[str, Any], *, level: int = 6) -> bytes:
    """The bytes of a state.

    Args:
        state: Nested dicts with keys of text or integers, lists, tuples (read back as lists),
            text, bytes, numbers, booleans, None, and arrays of fixed-width numbers.
        level: zlib's compression level.

    Raises:
        TypeError: the state holds a value of another kind.
    """
    header, arrays, size = encode_state(state)
    prefix = _PREFIX.pack(MAGIC, FORMAT, len(header), size)
    return prefix + zlib.compress(header + b"".join(arrays), level)


def encode_state(state: Mapping[str, Any]) -> tuple[bytes, list[bytes], int]:
    """A state as its JSON header, the bytes of its arrays, and the size of these.

    Raises:
        TypeError: the state holds a value of a kind that cannot be stored.
    """
    arrays: list[bytes] = []
    offset = 0

    def place(raw: bytes) -> int:
        nonlocal offset
        start = offset
        padding = -len(raw) % _ALIGNMENT
        arrays.append(raw + b"\0" * padding)
        offset += len(raw) + padding
        return start

    def encode(value: Any) -> Any:
        match value:
            case None | bool() | int() | float() | str():
                return value
            case np.bool_() | np.integer() | np.floating():
                return value.item()
            case np.ndarray():
                contiguous = np.ascontiguousarray(value)
                little = contiguous.astype(contiguous.dtype.newbyteorder("<"), copy=False)
                if little.dtype.str not in _DTYPES:
                    msg = f"arrays of {value.dtype} cannot be stored"
                    raise TypeError(msg)
                # ascontiguousarray makes a scalar array one-dimensional: keep the given shape.
                return {"$a": [place(little.tobytes()), little.dtype.str, list(value.shape)]}
            case bytes() | bytearray() | memoryview():
                raw = bytes(value)
                return {"$b": [place(raw), len(raw)]}
            case list() | tuple():
                return [encode(item) for item in value]
            case Mapping():
                if all(isinstance(key, str) and not key.startswith("$") for key in value):
                    return {key: encode(item) for key, item in value.items()}
                return {"$m": [[encode(key), encode(item)] for key, item in value.items()]}
        msg = f"values of type {type(value).__name__} cannot be stored"
        raise TypeError(msg)

    header = json.dumps(encode(state), separators=(",", ":"), ensure_ascii=True).encode()
    return header, arrays, offset


def unpack_state(packed: bytes, *, max_bytes: int = MAX_UNPACKED_BYTES) -> dict[str, Any]:
    """The state that ``pack_state`` wrote; its arrays are read-only views of one buffer.

    Raises:
        PartialError: the bytes are no state, are damaged, are of a newer format, or would
            unpack to more than ``max_bytes``.
    """
    if len(packed) < _PREFIX.size:
        msg = f"the stored partial result is cut off at {len(packed)} bytes; {_ADVICE}"
        raise PartialError(msg)
    magic, version, header_bytes, array_bytes = _PREFIX.unpack_from(packed)
    if magic != MAGIC:
        msg = f"these bytes are not a partial result of podscope; {_ADVICE}"
        raise PartialError(msg)
    if version > FORMAT:
        msg = (
            f"the partial result has format {version}, this podscope reads up to {FORMAT}; "
            f"upgrade podscope or {_ADVICE}"
        )
        raise PartialError(msg, is_newer=True)
    total = header_bytes + array_bytes
    if total > max_bytes:
        msg = f"the partial result unpacks to {total} bytes, more than the limit of {max_bytes}"
        raise PartialError(msg, is_lasting=True)
    body = memoryview(_inflate(memoryview(packed)[_PREFIX.size :], total))
    return decode_state(body[:header_bytes], body[header_bytes:])


def decode_state(header: memoryview, arrays: memoryview) -> dict[str, Any]:
    """The state that ``encode_state`` wrote; its arrays are read-only views of what is given.

    Raises:
        PartialError: the bytes are damaged.
    """
    try:
        state = _decode(json.loads(bytes(header)), arrays)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        msg = f"the partial result is damaged ({error}); {_ADVICE}"
        raise PartialError(msg) from error
    if not isinstance(state, dict):
        msg = f"the partial result is damaged (no object at its top); {_ADVICE}"
        raise PartialError(msg)
    return state


def _inflate(deflated: memoryview, total: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        # One byte more than promised, so that a longer stream is noticed and never unpacked.
        body = inflater.decompress(deflated, total + 1)
    except zlib.error as error:
        msg = f"the partial result is damaged ({error}); {_ADVICE}"
        raise PartialError(msg) from error
    if len(body) != total or not inflater.eof:
        msg = f"the partial result does not hold the {total} bytes that it promises; {_ADVICE}"
        raise PartialError(msg)
    return body


_NESTED = (list, dict)


def _decode(value: Any, arrays: memoryview) -> Any:
    if type(value) is list:
        # Texts and numbers, of which there are most, stay as they are.
        return [_decode(x, arrays) if type(x) in _NESTED else x for x in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        (marker, inner) = next(iter(value.items()))
        if marker == "$a":
            return _array(inner, arrays)
        if marker == "$b":
            start, length = inner
            return bytes(_window(arrays, start, length))
        if marker == "$m":
            return {key: _decode(item, arrays) for key, item in inner}
    return {key: _decode(x, arrays) if type(x) in _NESTED else x for key, x in value.items()}


def _array(reference: Any, arrays: memoryview) -> npt.NDArray[Any]:
    start, dtype_name, shape = reference
    if dtype_name not in _DTYPES:
        msg = f"array type {dtype_name!r}"
        raise ValueError(msg)
    if not all(isinstance(n, int) and n >= 0 for n in shape):
        msg = f"array shape {shape}"
        raise ValueError(msg)
    dtype = np.dtype(dtype_name)
    length = dtype.itemsize
    for n in shape:
        length *= n
    return np.frombuffer(_window(arrays, start, length), dtype=dtype).reshape(shape)


def _window(arrays: memoryview, start: Any, length: Any) -> memoryview:
    if not (isinstance(start, int) and isinstance(length, int)):
        msg = "array place is no number"
        raise TypeError(msg)
    if start < 0 or length < 0 or start + length > len(arrays):
        msg = f"array at {start} of {length} bytes lies outside {len(arrays)} bytes"
        raise ValueError(msg)
    return arrays[start : start + length]
