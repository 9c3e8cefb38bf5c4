"""Merges the XSpaces of a host's processes into one, on the wire format.

Nothing is copied: the result is made of views of what came in. What is rewritten: names and ids of
planes that would collide, the start of lines (each process counts from its own session's start),
and the programs of ``/host:metadata``, which are united into one plane.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from google.protobuf.message import DecodeError

from podscope_agent.pieces import Chunk, Pieces
from podscope_agent.scanning import (
    LINE_EVENTS,
    LINE_TIMESTAMP_NS,
    METADATA_PLANE,
    PLANE_EVENT_METADATA,
    PLANE_ID,
    PLANE_LINES,
    PLANE_NAME,
    SPACE_HOSTNAMES,
    SPACE_PLANES,
    SPACE_WARNINGS,
    TASK_PLANE,
    ScannedPlane,
    ScannedXSpace,
    program_key,
    scan,
)
from podscope_agent.wire_format import (
    VARINT,
    Field,
    fields,
    read_varint,
    tag_and_length,
    tagged_text,
    tagged_varint,
)
from podscope_protos.v1.xplane_pb2 import XEventMetadata, XPlane, XStat

_DEVICE_PLANE = re.compile(r"^(?P<kind>/device:[A-Za-z]+:)(?P<ordinal>\d{1,18})(?P<rest>( .*)?)$")
_MAP_KEY: Final = 1
_MAP_VALUE: Final = 2


@dataclass(frozen=True)
class ProcessXSpace:
    """What one process of the host returned.

    Attributes:
        process: Its process id, or another number that tells it from its neighbours.
        xspace: A serialised XSpace.
        source: What people call it (``localhost:9999``), for warnings.
    """

    process: int
    xspace: Chunk
    source: str

    @cached_property
    def scanned(self) -> ScannedXSpace:
        """Where its parts are.

        Raises:
            MalformedXSpaceError: the bytes are not an XSpace.
        """
        return scan(memoryview(self.xspace))


@dataclass(frozen=True)
class HostPart:
    """One file of a host's profile.

    Attributes:
        suffix: Tells it from the host's other files; empty for the first or only one.
        pieces: A serialised XSpace.
    """

    suffix: str
    pieces: Pieces


@dataclass
class _Merged:
    """The output while it grows, and what is taken already."""

    chunks: list[Chunk] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    device_ids: set[int] = field(default_factory=set)
    programs: "_Programs | None" = None
    warnings: list[str] = field(default_factory=list)
    hostnames: list[str] = field(default_factory=list)


def merge_xspaces(processes: Sequence[ProcessXSpace], warnings: Sequence[str] = ()) -> Pieces:
    """Return one XSpace of all processes, in the order given.

    A single process's bytes are passed on as they are. With several, the first keeps its plane
    names; a later one's device planes take the next free ordinals, its other planes get
    `` [process]`` appended, and all a ``process_id`` stat. Times become relative to the earliest
    session start.

    Raises:
        MalformedXSpaceError: the bytes of a process are not an XSpace.
    """
    if len(processes) == 1:
        return Pieces([processes[0].xspace, *_texts(SPACE_WARNINGS, warnings)])
    merged = _Merged(warnings=list(warnings))
    starts = [process.scanned.start_ns for process in processes]
    earliest = min((start for start in starts if start is not None), default=0)
    for index, (process, start) in enumerate(zip(processes, starts, strict=True)):
        shift_ns = 0 if start is None else start - earliest
        _append_process(merged, process, is_first=index == 0, shift_ns=shift_ns)
    if merged.programs is not None:
        merged.chunks += _delimited(SPACE_PLANES, merged.programs.chunks)
    merged.chunks += _texts(SPACE_WARNINGS, merged.warnings)
    merged.chunks += _texts(SPACE_HOSTNAMES, dict.fromkeys(merged.hostnames))
    return Pieces(merged.chunks)


def merge_into_files(
    processes: Sequence[ProcessXSpace], warnings: Sequence[str], limit_bytes: int
) -> list[HostPart]:
    """The host's profile as one file, or as one of each process when it would be too large.

    No reader of protobuf messages takes more than 2 GiB.
    """
    whole = merge_xspaces(processes, warnings)
    if whole.size <= limit_bytes or len(processes) == 1:
        return [HostPart("", whole)]
    split = (
        f"the profile of this host has {whole.size:,} bytes, more than one file can have "
        f"({limit_bytes:,}): each of its {len(processes)} processes has a file of its own"
    )
    return [
        HostPart(
            "" if index == 0 else f"process-{process.process}",
            merge_xspaces([process], [*warnings, split] if index == 0 else [split]),
        )
        for index, process in enumerate(processes)
    ]


def with_warnings(pieces: Pieces, warnings: Sequence[str]) -> Pieces:
    """The XSpace with further warnings."""
    return Pieces([*pieces.chunks, *_texts(SPACE_WARNINGS, warnings)])


def _texts(number: int, texts: Sequence[str] | dict[str, None]) -> list[Chunk]:
    return [tagged_text(number, text) for text in texts]


def _delimited(number: int, chunks: list[Chunk]) -> list[Chunk]:
    return [tag_and_length(number, sum(len(chunk) for chunk in chunks)), *chunks]


def _append_process(
    merged: _Merged, process: ProcessXSpace, *, is_first: bool, shift_ns: int
) -> None:
    buffer, scanned = memoryview(process.xspace), process.scanned
    ordinals = _device_ordinals(merged, scanned)
    for plane in scanned.planes:
        if plane.name == METADATA_PLANE:
            _unite_programs(merged, buffer, plane, process.source)
        elif plane.name == TASK_PLANE and plane.name in merged.names:
            continue  # one per host: the times of all lines count from the earliest start
        else:
            name = _free_name(merged, plane.name, ordinals, process.process, is_first=is_first)
            merged.names.add(name)
            _append_plane(merged, buffer, plane, name, process.process, shift_ns)
    for number, text in scanned.texts:
        if number == SPACE_HOSTNAMES:
            merged.hostnames.append(text)
        else:
            told = text if is_first else f"{process.source}: {text}"
            merged.chunks.append(tagged_text(number, told))
    merged.chunks += [buffer[start:end] for start, end in scanned.others]


def _device_ordinals(merged: _Merged, scanned: ScannedXSpace) -> dict[tuple[str, str], int]:
    """Choose a free ordinal for every device of a process; its planes keep together."""
    taken: dict[str, set[int]] = {}
    for name in merged.names:
        if match := _DEVICE_PLANE.match(name):
            taken.setdefault(match["kind"], set()).add(int(match["ordinal"]))
    chosen: dict[tuple[str, str], int] = {}
    for plane in scanned.planes:
        match = _DEVICE_PLANE.match(plane.name)
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
    merged: _Merged,
    buffer: memoryview,
    plane: ScannedPlane,
    name: str,
    process: int,
    shift_ns: int,
) -> None:
    chunks: list[Chunk] = [tagged_text(PLANE_NAME, name)]
    plane_id = plane.id
    if _DEVICE_PLANE.match(name):
        # Step databases key cores by this id.
        if plane_id in merged.device_ids:
            plane_id = max(merged.device_ids) + 1
        merged.device_ids.add(plane_id)
    if plane_id:
        chunks.append(tagged_varint(PLANE_ID, plane_id))
    chunks += [buffer[start:end] for start, end in plane.others]
    for line in plane.lines:
        if shift_ns:
            chunks += _shifted_line(buffer, line, shift_ns)
        else:
            chunks.append(buffer[line.start : line.end])
    if plane.stat("process_id") is None:
        chunks += _process_id_stat(plane.header, process)
    merged.chunks += _delimited(SPACE_PLANES, chunks)


def _shifted_line(buffer: memoryview, line: Field, shift_ns: int) -> list[Chunk]:
    """Return a line whose start is moved; its events, relative to that, are not touched.

    The scalar fields come before the events in every serialiser's order, so the walk ends at the
    first event.
    """
    header: list[Chunk] = []
    timestamp_ns = 0
    rest = line.end
    for item in fields(buffer, line.value, line.end):
        if item.number == LINE_EVENTS:
            rest = item.start
            break
        if item.number == LINE_TIMESTAMP_NS and item.wire_type == VARINT:
            timestamp_ns, _ = read_varint(buffer, item.value, item.end)
        else:
            header.append(buffer[item.start : item.end])
    if timestamp_ns >> 63:
        timestamp_ns -= 1 << 64
    header.append(tagged_varint(LINE_TIMESTAMP_NS, timestamp_ns + shift_ns))
    return _delimited(PLANE_LINES, [*header, buffer[rest : line.end]])


def _process_id_stat(header: XPlane, process: int) -> list[Chunk]:
    by_name = {metadata.name: key for key, metadata in header.stat_metadata.items()}
    chunks: list[Chunk] = []
    metadata_id = by_name.get("process_id")
    if metadata_id is None:
        metadata_id = max(header.stat_metadata, default=0) + 1
        added = XPlane()
        added.stat_metadata[metadata_id].id = metadata_id
        added.stat_metadata[metadata_id].name = "process_id"
        chunks.append(added.SerializeToString())
    stat = XPlane(stats=[XStat(metadata_id=metadata_id, int64_value=process)])
    return [*chunks, stat.SerializeToString()]


@dataclass
class _Programs:
    """The united ``/host:metadata`` plane.

    Attributes:
        chunks: Its fields so far.
        names: Of its programs, by id.
        stat_ids: Of its stats, by name; ids are per plane.
    """

    chunks: list[Chunk]
    names: dict[int, str]
    stat_ids: dict[str, int]


def _unite_programs(merged: _Merged, buffer: memoryview, plane: ScannedPlane, source: str) -> None:
    """Add a process's programs to those of the host: hundreds of megabytes, passed on unparsed."""
    if merged.programs is None:
        header = [tagged_varint(PLANE_ID, plane.id)] if plane.id else []
        merged.programs = _Programs(
            [
                *header,
                tagged_text(PLANE_NAME, METADATA_PLANE),
                *(buffer[start:end] for start, end in plane.others),
                *(buffer[line.start : line.end] for line in plane.lines),
            ],
            {key: name for key, name, _ in (program_key(buffer, e) for e in plane.programs)},
            {entry.name: key for key, entry in plane.header.stat_metadata.items()},
        )
        return
    into = merged.programs
    translated = _translated_stats(into, plane.header)
    differing = unreadable = 0
    for entry in plane.programs:
        key, name, value = program_key(buffer, entry)
        if key in into.names:
            differing += into.names[key] != name
            continue
        into.names[key] = name
        if value is None or all(old == new for old, new in translated.items()):
            into.chunks.append(buffer[entry.start : entry.end])
            continue
        try:
            program = XEventMetadata.FromString(bytes(buffer[value.value : value.end]))
        except DecodeError:
            unreadable += 1
            continue
        for stat in program.stats:
            stat.metadata_id = translated.get(stat.metadata_id, stat.metadata_id)
        body = program.SerializeToString()
        into.chunks += _delimited(
            PLANE_EVENT_METADATA,
            [tagged_varint(_MAP_KEY, key), tag_and_length(_MAP_VALUE, len(body)), body],
        )
    if unreadable:
        merged.warnings.append(f"{source}: {unreadable} programs cannot be read and are left out")
    if differing:
        merged.warnings.append(
            f"{source}: {differing} programs have ids that another process of the host uses for "
            "other programs; their ops are attributed to the first process's programs"
        )


def _translated_stats(into: _Programs, header: XPlane) -> dict[int, int]:
    """What a process's stat ids are in the united plane; stats that it lacks are added."""
    translated: dict[int, int] = {}
    for key, metadata in header.stat_metadata.items():
        if metadata.name not in into.stat_ids:
            new_id = max(into.stat_ids.values(), default=0) + 1
            added = XPlane()
            added.stat_metadata[new_id].CopyFrom(metadata)
            added.stat_metadata[new_id].id = new_id
            into.chunks.append(added.SerializeToString())
            into.stat_ids[metadata.name] = new_id
        translated[key] = into.stat_ids[metadata.name]
    return translated
