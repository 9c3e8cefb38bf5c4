"""Takes a ``ProfileResponse`` apart without parsing or copying the XSpace in it."""

from dataclasses import dataclass
from typing import Final

from podscope_collector.errors import CollectorError
from podscope_protos.v1 import profiler_service_pb2

_TOOL_DATA: Final = 6
_EMPTY_TRACE: Final = 7
_XSPACE: Final = 8
_XPLANE_TOOL: Final = "xplane.pb"


class ResponseError(CollectorError):
    """The bytes are no ``ProfileResponse``."""

    code = "bad_response"


@dataclass(frozen=True, slots=True)
class ProfileAnswer:
    """What a profiler server sent.

    Attributes:
        xspace: The serialised XSpace, a view of the message where possible; None when the
            server sent none.
        is_empty: The server says that it saw no event.
    """

    xspace: bytes | memoryview | None
    is_empty: bool


def unwrap(message: bytes) -> ProfileAnswer:
    """The XSpace and the flag of a serialised ``ProfileResponse``.

    A server that ignores ``emit_xspace`` may still send the XSpace as tool data, as it does
    for stock clients; that is taken when the field itself is unset.

    Raises:
        ResponseError: The bytes are no such message.
    """
    view = memoryview(message)
    pieces: list[memoryview] = []
    from_tool: bytes | None = None
    is_empty = False
    at, end = 0, len(view)
    while at < end:
        key, at = _varint(view, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            msg = f"field 0 at byte {at}"
            raise ResponseError(msg)
        if kind == 0:
            scalar, at = _varint(view, at)
            if number == _EMPTY_TRACE:
                is_empty = scalar != 0
            continue
        if kind in {1, 5}:
            at += 8 if kind == 1 else 4
        elif kind == 2:
            size, at = _varint(view, at)
            if size > end - at:
                msg = f"a field of {size} bytes at byte {at} of {end}"
                raise ResponseError(msg)
            if number == _XSPACE:
                pieces.append(view[at : at + size])
            elif number == _TOOL_DATA:
                from_tool = _tool_xspace(view[at : at + size]) or from_tool
            at += size
        else:
            msg = f"wire type {kind} at byte {at}"
            raise ResponseError(msg)
        if at > end:
            msg = f"the last field is cut at byte {end}"
            raise ResponseError(msg)
    # A message field that occurs twice is merged, and merging is joining on the wire.
    xspace: bytes | memoryview | None = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if not xspace:
        xspace = from_tool or None
    return ProfileAnswer(xspace, is_empty)


def _tool_xspace(view: memoryview) -> bytes | None:
    try:
        tool = profiler_service_pb2.ProfileToolData.FromString(bytes(view))
    except Exception as error:  # protobuf's DecodeError has no stable place to import from
        msg = "its tool data cannot be read"
        raise ResponseError(msg) from error
    return tool.data if tool.name == _XPLANE_TOOL else None


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            break
        byte = view[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
    msg = f"a broken number at byte {at}"
    raise ResponseError(msg)
