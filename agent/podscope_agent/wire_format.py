"""Walks a protobuf message by its field lengths, without parsing what the fields hold.

A merge copies hundreds of megabytes of events that it never looks into; message objects for
them would cost ten times the bytes.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from podscope_agent.errors import MalformedXSpaceError
from podscope_agent.pieces import Chunk

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
FIXED32: Final = 5

_VARINT_BYTES = 10


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: The field's number.
        wire_type: One of the four wire types that are in use.
        start: Offset of the tag.
        value: Offset of the value; for length-delimited fields of the first byte after the length.
        end: Offset just behind the field.
    """

    number: int
    wire_type: int
    start: int
    value: int
    end: int


def read_varint(buffer: memoryview, position: int, end: int) -> tuple[int, int]:
    """Return the varint at `position` and the offset behind it.

    Raises:
        MalformedXSpaceError: it is cut off, or longer than ten bytes.
    """
    result = 0
    for index in range(_VARINT_BYTES):
        if position >= end:
            break
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, position
    raise MalformedXSpaceError(position)


def fields(buffer: memoryview, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """Yield the fields of the message in ``buffer[start:end]``, in order.

    Raises:
        MalformedXSpaceError: a tag or a length does not fit the message.
    """
    end = len(buffer) if end is None else end
    position = start
    while position < end:
        tag_start = position
        # Nearly every tag is one byte, and nearly every length one or two.
        tag = buffer[position]
        if tag < 0x80:
            position += 1
        else:
            tag, position = read_varint(buffer, position, end)
        wire_type = tag & 7
        value = position
        if wire_type == LENGTH_DELIMITED:
            if position < end and buffer[position] < 0x80:
                length, value = buffer[position], position + 1
            else:
                length, value = read_varint(buffer, position, end)
            position = value + length
        elif wire_type == VARINT:
            _, position = read_varint(buffer, position, end)
        elif wire_type == FIXED64:
            position += 8
        elif wire_type == FIXED32:
            position += 4
        else:
            raise MalformedXSpaceError(tag_start)
        if position > end or tag >> 3 == 0:
            raise MalformedXSpaceError(tag_start)
        yield Field(tag >> 3, wire_type, tag_start, value, position)


def varint(value: int) -> bytes:
    """Encode an integer; a negative one takes ten bytes, as int64 does."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def size_of_varint(value: int) -> int:
    """How many bytes an unsigned integer takes."""
    return max(1, -(-value.bit_length() // 7))


def tag_and_length(number: int, length: int) -> bytes:
    """Return what stands before the bytes of a length-delimited field."""
    return varint(number << 3 | LENGTH_DELIMITED) + varint(length)


def tagged_varint(number: int, value: int) -> bytes:
    """Encode an integer field."""
    return varint(number << 3 | VARINT) + varint(value)


def tagged_text(number: int, text: str) -> bytes:
    """Encode a string field."""
    encoded = text.encode()
    return tag_and_length(number, len(encoded)) + encoded


def delimited(number: int, chunks: Sequence[Chunk]) -> list[Chunk]:
    """A length-delimited field of parts that are not joined."""
    return [tag_and_length(number, sum(len(chunk) for chunk in chunks)), *chunks]
