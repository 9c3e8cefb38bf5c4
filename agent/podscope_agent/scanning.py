"""Finds the parts of a serialised XSpace by field lengths; events are never looked into."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from podscope_agent.errors import MalformedXSpaceError
from podscope_agent.wire_format import LENGTH_DELIMITED, VARINT, Field, fields, read_varint
from podscope_protos.v1.xplane_pb2 import XPlane, XStat

METADATA_PLANE: Final = "/host:metadata"
TASK_PLANE: Final = "Task Environment"

SPACE_PLANES, SPACE_ERRORS, SPACE_WARNINGS, SPACE_HOSTNAMES = 1, 2, 3, 4
PLANE_ID, PLANE_NAME, PLANE_LINES = 1, 2, 3
PLANE_EVENT_METADATA, PLANE_STAT_METADATA, PLANE_STATS = 4, 5, 6
LINE_TIMESTAMP_NS, LINE_EVENTS = 3, 4

Span = tuple[int, int]


@dataclass
class ScannedPlane:
    """Where the parts of a plane are.

    Attributes:
        header: Its stats and the names of stats; nothing else of it is parsed.
        others: Runs of bytes that are neither its id, its name nor a line.
        lines: Its lines.
        programs: Its event metadata one by one; only of ``/host:metadata``.
    """

    name: str = ""
    id: int = 0
    header: XPlane = field(default_factory=XPlane)
    others: list[Span] = field(default_factory=list)
    lines: list[Field] = field(default_factory=list)
    programs: list[Field] = field(default_factory=list)

    def stat(self, name: str) -> XStat | None:
        """The plane's stat of that name."""
        for stat in self.header.stats:
            if self.header.stat_metadata[stat.metadata_id].name == name:
                return stat
        return None


@dataclass
class ScannedXSpace:
    """Where the parts of an XSpace are.

    Attributes:
        planes: In order.
        texts: Field number and text of errors, warnings and host names, in order.
        others: Fields that this schema does not know.
        has_events: Whether any line has an event: a stock server's test of an empty trace.
        start_ns: Unix time of the session's start, when the capture tells.
    """

    planes: list[ScannedPlane] = field(default_factory=list)
    texts: list[tuple[int, str]] = field(default_factory=list)
    others: list[Span] = field(default_factory=list)
    has_events: bool = False
    start_ns: int | None = None


def scan(buffer: memoryview) -> ScannedXSpace:
    """Walk an XSpace once.

    Raises:
        MalformedXSpaceError: the bytes are not an XSpace.
    """
    found = ScannedXSpace()
    for item in fields(buffer):
        if item.wire_type != LENGTH_DELIMITED:
            found.others.append((item.start, item.end))
        elif item.number == SPACE_PLANES:
            plane = _scan_plane(buffer, item)
            found.planes.append(plane)
            found.has_events = found.has_events or any(
                part.number == LINE_EVENTS
                for line in plane.lines
                for part in fields(buffer, line.value, line.end)
            )
            if plane.name == TASK_PLANE and found.start_ns is None:
                start = plane.stat("profile_start_time")
                if start is not None:
                    found.start_ns = start.uint64_value or start.int64_value or None
        elif item.number in {SPACE_ERRORS, SPACE_WARNINGS, SPACE_HOSTNAMES}:
            found.texts.append((item.number, text_of(buffer, item)))
        else:
            found.others.append((item.start, item.end))
    return found


def text_of(buffer: memoryview, item: Field) -> str:
    """The text of a string field."""
    return str(buffer[item.value : item.end], "utf-8", "replace")


def _scan_plane(buffer: memoryview, plane: Field) -> ScannedPlane:
    found = ScannedPlane()
    header: list[Span] = []
    for item in fields(buffer, plane.value, plane.end):
        if item.number == PLANE_LINES and item.wire_type == LENGTH_DELIMITED:
            found.lines.append(item)
            continue
        if item.number == PLANE_ID and item.wire_type == VARINT:
            found.id, _ = read_varint(buffer, item.value, item.end)
            continue
        if item.number == PLANE_NAME and item.wire_type == LENGTH_DELIMITED:
            found.name = text_of(buffer, item)
            continue
        if item.number in {PLANE_STAT_METADATA, PLANE_STATS}:
            _extend(header, item)
        elif item.number == PLANE_EVENT_METADATA and item.wire_type == LENGTH_DELIMITED:
            found.programs.append(item)
        _extend(found.others, item)
    try:
        found.header = XPlane.FromString(b"".join(_views(buffer, header)))
    except DecodeError as error:
        raise MalformedXSpaceError(header[0][0]) from error
    if found.name != METADATA_PLANE:
        found.programs.clear()
    return found


def _extend(spans: list[Span], item: Field) -> None:
    """Add a field to runs of bytes; the neighbour of the last one makes it longer."""
    if spans and spans[-1][1] == item.start:
        spans[-1] = (spans[-1][0], item.end)
    else:
        spans.append((item.start, item.end))


def _views(buffer: memoryview, spans: list[Span]) -> Iterator[memoryview]:
    for start, end in spans:
        yield buffer[start:end]
