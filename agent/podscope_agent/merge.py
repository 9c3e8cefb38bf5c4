"""Merges the XSpaces of a host's processes into one, on the wire format.

Events are copied as bytes and never parsed. What is rewritten: names and ids of planes that
would collide, the start of lines (each process counts from its own session's start), and the
programs of ``/host:metadata``, which are united into one plane.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from podscope_agent.wire_format import (
    LENGTH_DELIMITED,
    VARINT,
    Field,
    fields,
    read_varint,
    tag_and_length,
    tagged_text,
    tagged_varint,
)
from podscope_protos.v1.xplane_pb2 import XPlane, XStat

METADATA_PLANE: Final = "/host:metadata"
TASK_PLANE: Final = "Task Environment"
_DEVICE_PLANE = re.compile(r"^(?P<kind>/device:[A-Za-z]+:)(?P<ordinal>\d+)(?P<rest>( .*)?)$")

_SPACE_PLANES, _SPACE_ERRORS, _SPACE_WARNINGS, _SPACE_HOSTNAMES = 1, 2, 3, 4
_PLANE_ID, _PLANE_NAME, _PLANE_LINES, _PLANE_STATS = 1, 2, 3, 6
_PLANE_STAT_METADATA = 5
_LINE_TIMESTAMP_NS, _LINE_EVENTS = 3, 4

Chunk = bytes | memoryview


@dataclass(frozen=True)
class ProcessXSpace:
    """What one process of the host returned.

    Attributes:
        process: Its process id, or another number that tells it from its neighbours.
        xspace: A serialised XSpace.
        source: What people call it (``localhost:9999``), for warnings.
    """

    process: int
    xspace: bytes
    source: str


@dataclass
class _Merged:
    """The output while it grows, and what is taken already."""

    chunks: list[Chunk] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    device_ids: set[int] = field(default_factory=set)
    metadata: XPlane | None = None
    warnings: list[str] = field(default_factory=list)
    hostnames: list[str] = field(default_factory=list)


def merge_xspaces(processes: Sequence[ProcessXSpace], warnings: Sequence[str] = ()) -> bytes:
    """Return one XSpace of all processes, in the order given.

    A single process's bytes are passed on as they are. With several, the first keeps its plane
    names; a later one's device planes take the next free ordinals, its other planes get
    `` [process]`` appended and a ``process_id`` stat. Times become relative to the earliest
    session start.

    Raises:
        MalformedXSpaceError: the bytes of a process are not an XSpace.
    """
    extra = b"".join(tagged_text(_SPACE_WARNINGS, text) for text in warnings)
    if len(processes) == 1:
        return processes[0].xspace + extra
    merged = _Merged(warnings=list(warnings))
    starts = [_session_start_ns(process.xspace) for process in processes]
    known = [start for start in starts if start is not None]
    earliest = min(known, default=0)
    for index, (process, start) in enumerate(zip(processes, starts, strict=True)):
        shift_ns = 0 if start is None else start - earliest
        _append_process(merged, process, is_first=index == 0, shift_ns=shift_ns)
    if merged.metadata is not None:
        serialised = merged.metadata.SerializeToString()
        merged.chunks += [tag_and_length(_SPACE_PLANES, len(serialised)), serialised]
    merged.chunks += [tagged_text(_SPACE_WARNINGS, text) for text in merged.warnings]
    merged.chunks += [
        tagged_text(_SPACE_HOSTNAMES, name) for name in dict.fromkeys(merged.hostnames)
    ]
    return b"".join(merged.chunks)


def has_events(xspace: bytes) -> bool:
    """Whether any line of any plane has an event: a stock server's test of an empty trace.

    Raises:
        MalformedXSpaceError: the bytes are not an XSpace.
    """
    buffer = memoryview(xspace)
    return any(
        item.number == _LINE_EVENTS
        for plane in _planes(buffer)
        for line in fields(buffer, plane.value, plane.end)
        if line.number == _PLANE_LINES and line.wire_type == LENGTH_DELIMITED
        for item in fields(buffer, line.value, line.end)
    )


def _planes(buffer: memoryview) -> Iterator[Field]:
    for item in fields(buffer):
        if item.number == _SPACE_PLANES and item.wire_type == LENGTH_DELIMITED:
            yield item


def _text(buffer: memoryview, item: Field) -> str:
    return str(buffer[item.value : item.end], "utf-8", "replace")


def _plane_name(buffer: memoryview, plane: Field) -> str:
    name = ""
    for item in fields(buffer, plane.value, plane.end):
        if item.number == _PLANE_NAME and item.wire_type == LENGTH_DELIMITED:
            name = _text(buffer, item)
    return name


def _without_lines(buffer: memoryview, plane: Field) -> XPlane:
    """Parse everything of a plane but its lines."""
    parts = [
        buffer[item.start : item.end]
        for item in fields(buffer, plane.value, plane.end)
        if item.number != _PLANE_LINES
    ]
    return XPlane.FromString(b"".join(parts))


def _stat(plane: XPlane, name: str) -> XStat | None:
    for stat in plane.stats:
        if plane.stat_metadata[stat.metadata_id].name == name:
            return stat
    return None


def _session_start_ns(xspace: bytes) -> int | None:
    """Return the Unix time of the session's start, when the capture tells."""
    buffer = memoryview(xspace)
    for plane in _planes(buffer):
        if _plane_name(buffer, plane) == TASK_PLANE:
            stat = _stat(_without_lines(buffer, plane), "profile_start_time")
            if stat is not None:
                return stat.uint64_value or stat.int64_value or None
    return None


def _append_process(
    merged: _Merged, process: ProcessXSpace, *, is_first: bool, shift_ns: int
) -> None:
    buffer = memoryview(process.xspace)
    ordinals = _device_ordinals(merged, buffer)
    for item in fields(buffer):
        if item.number == _SPACE_PLANES and item.wire_type == LENGTH_DELIMITED:
            name = _plane_name(buffer, item)
            if name == METADATA_PLANE:
                _unite_programs(merged, _without_lines(buffer, item), process.source)
            elif name == TASK_PLANE and name in merged.names:
                continue  # one per host: the times of all lines count from the earliest start
            else:
                new_name = _free_name(merged, name, ordinals, process.process, is_first=is_first)
                merged.names.add(new_name)
                _append_plane(merged, buffer, item, new_name, process.process, shift_ns)
        elif item.number == _SPACE_HOSTNAMES:
            merged.hostnames.append(_text(buffer, item))
        elif item.number in {_SPACE_ERRORS, _SPACE_WARNINGS} and not is_first:
            text = f"{process.source}: {_text(buffer, item)}"
            merged.chunks.append(tagged_text(item.number, text))
        else:
            merged.chunks.append(buffer[item.start : item.end])


def _device_ordinals(merged: _Merged, buffer: memoryview) -> dict[tuple[str, str], int]:
    """Choose a free ordinal for every device of a process; its planes keep together."""
    taken: dict[str, set[int]] = {}
    for name in merged.names:
        if match := _DEVICE_PLANE.match(name):
            taken.setdefault(match["kind"], set()).add(int(match["ordinal"]))
    chosen: dict[tuple[str, str], int] = {}
    for plane in _planes(buffer):
        match = _DEVICE_PLANE.match(_plane_name(buffer, plane))
        if match is None or (match["kind"], match["ordinal"]) in chosen:
            continue
        used = taken.setdefault(match["kind"], set())
        ordinal = int(match["ordinal"])
        if ordinal in used:
            ordinal = max(used) + 1
        used.add(ordinal)
        chosen[match["kind"], match["ordinal"]] = ordinal
    return chosen


def _free_name(
    merged: _Merged,
    name: str,
    ordinals: dict[tuple[str, str], int],
    process: int,
    *,
    is_first: bool,
) -> str:
    if match := _DEVICE_PLANE.match(name):
        ordinal = ordinals[match["kind"], match["ordinal"]]
        return f"{match['kind']}{ordinal}{match['rest']}"
    if is_first or name not in merged.names:
        return name
    return f"{name} [{process}]"


def _append_plane(
    merged: _Merged, buffer: memoryview, plane: Field, name: str, process: int, shift_ns: int
) -> None:
    chunks: list[Chunk] = [tagged_text(_PLANE_NAME, name)]
    header = _without_lines(buffer, plane)
    plane_id = header.id
    if _DEVICE_PLANE.match(name):
        # Step databases key cores by this id.
        if plane_id in merged.device_ids:
            plane_id = max(merged.device_ids) + 1
        merged.device_ids.add(plane_id)
    if plane_id:
        chunks.append(tagged_varint(_PLANE_ID, plane_id))
    for item in fields(buffer, plane.value, plane.end):
        if item.number == _PLANE_LINES and item.wire_type == LENGTH_DELIMITED and shift_ns:
            chunks += _shifted_line(buffer, item, shift_ns)
        elif item.number not in {_PLANE_ID, _PLANE_NAME}:
            chunks.append(buffer[item.start : item.end])
    if _stat(header, "process_id") is None:
        chunks += _process_id_stat(header, process)
    length = sum(len(chunk) for chunk in chunks)
    merged.chunks += [tag_and_length(_SPACE_PLANES, length), *chunks]


def _shifted_line(buffer: memoryview, line: Field, shift_ns: int) -> list[Chunk]:
    """Return a line whose start is moved; its events, relative to that, are not touched.

    The scalar fields come before the events in every serialiser's order, so the walk ends at the
    first event.
    """
    header: list[Chunk] = []
    timestamp_ns = 0
    rest = line.end
    for item in fields(buffer, line.value, line.end):
        if item.number == _LINE_EVENTS:
            rest = item.start
            break
        if item.number == _LINE_TIMESTAMP_NS and item.wire_type == VARINT:
            timestamp_ns, _ = read_varint(buffer, item.value, item.end)
        else:
            header.append(buffer[item.start : item.end])
    if timestamp_ns >> 63:
        timestamp_ns -= 1 << 64
    header.append(tagged_varint(_LINE_TIMESTAMP_NS, timestamp_ns + shift_ns))
    events = buffer[rest : line.end]
    length = sum(len(part) for part in header) + len(events)
    return [tag_and_length(_PLANE_LINES, length), *header, events]


def _process_id_stat(plane: XPlane, process: int) -> list[Chunk]:
    by_name = {metadata.name: key for key, metadata in plane.stat_metadata.items()}
    chunks: list[Chunk] = []
    metadata_id = by_name.get("process_id")
    if metadata_id is None:
        metadata_id = max(plane.stat_metadata, default=0) + 1
        added = XPlane()
        added.stat_metadata[metadata_id].id = metadata_id
        added.stat_metadata[metadata_id].name = "process_id"
        chunks.append(added.SerializeToString())
    stat = XPlane(stats=[XStat(metadata_id=metadata_id, int64_value=process)])
    return [*chunks, stat.SerializeToString()]


def _unite_programs(merged: _Merged, plane: XPlane, source: str) -> None:
    """Add a process's programs to those of the host; ids of stats are per plane, so by name."""
    if merged.metadata is None:
        merged.metadata = plane
        return
    into = merged.metadata
    stat_ids = {metadata.name: key for key, metadata in into.stat_metadata.items()}
    translated: dict[int, int] = {}
    for key, metadata in plane.stat_metadata.items():
        if metadata.name not in stat_ids:
            new_id = max(into.stat_metadata, default=0) + 1
            into.stat_metadata[new_id].CopyFrom(metadata)
            into.stat_metadata[new_id].id = new_id
            stat_ids[metadata.name] = new_id
        translated[key] = stat_ids[metadata.name]
    differing = 0
    for key, program in plane.event_metadata.items():
        for stat in program.stats:
            stat.metadata_id = translated.get(stat.metadata_id, stat.metadata_id)
        if key not in into.event_metadata:
            into.event_metadata[key].CopyFrom(program)
        elif into.event_metadata[key].name != program.name:
            differing += 1
    if differing:
        merged.warnings.append(
            f"{source}: {differing} programs have ids that another process of the host uses for "
            "other programs; their ops are attributed to the first process's programs"
        )
