"""ProfileResponse on the wire: hundreds of megabytes that no message object should hold twice."""

from collections.abc import Sequence
from typing import Final

from podscope_agent.pieces import Chunk, Pieces
from podscope_agent.wire_format import (
    LENGTH_DELIMITED,
    fields,
    tag_and_length,
    tagged_text,
    tagged_varint,
)

_TOOL_DATA, _EMPTY_TRACE, _XSPACE = 6, 7, 8
_TOOL_NAME, _TOOL_BYTES = 1, 2
_FRAMING_BYTES: Final = 64
"""More than the tags, lengths and names around one profile take."""


def xspace_of_response(response: bytes) -> memoryview:
    """A view of the XSpace in a serialised ProfileResponse; empty when it has none.

    Raises:
        MalformedXSpaceError: the bytes are no such message.
    """
    buffer = memoryview(response)
    found = buffer[:0]
    for item in fields(buffer):
        if item.number == _XSPACE and item.wire_type == LENGTH_DELIMITED:
            found = buffer[item.value : item.end]
    return found


def profile_response(
    xspace: Pieces | None, tools: Sequence[tuple[str, Pieces]] = (), *, is_empty: bool = False
) -> bytes:
    """A serialised ProfileResponse; this joins the pieces, once.

    Args:
        xspace: For the field of that name.
        tools: File name suffix and content of what stock clients save.
        is_empty: No event was collected.
    """
    chunks: list[Chunk] = []
    for name, pieces in tools:
        body = [tagged_text(_TOOL_NAME, name), tag_and_length(_TOOL_BYTES, pieces.size)]
        size = sum(len(part) for part in body) + pieces.size
        chunks += [tag_and_length(_TOOL_DATA, size), *body, *pieces.chunks]
    if is_empty:
        chunks.append(tagged_varint(_EMPTY_TRACE, 1))
    if xspace is not None:
        chunks += [tag_and_length(_XSPACE, xspace.size), *xspace.chunks]
    return Pieces(chunks).joined()


def room_for(pieces: Pieces) -> int:
    """Bytes of a response that a profile takes, at most."""
    return pieces.size + _FRAMING_BYTES
