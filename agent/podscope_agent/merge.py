"""Merges the XSpaces of a host's processes into one, on the wire format.

Nothing is copied: the result is made of views of what came in. What is rewritten: names and ids of
planes that would collide, the start of lines (each process counts from its own session's start),
and the programs of ``/host:metadata``, which are united into one plane; where two processes use
one number for different programs, the lines that refer to the later one's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from podscope_agent.pieces import Chunk, Pieces
from podscope_agent.programs import FreeNumbers, Program, UnitedPrograms, programs_of
from podscope_agent.renumbering import PlaneNumbers
from podscope_agent.scanning import (
    LINE_EVENTS,
    LINE_TIMESTAMP_NS,
    METADATA_PLANE,
    PLANE_ID,
    PLANE_LINES,
    PLANE_NAME,
    SPACE_HOSTNAMES,
    SPACE_PLANES,
    SPACE_WARNINGS,
    TASK_PLANE,
    ScannedPlane,
    ScannedXSpace,
    scan,
)
from podscope_agent.wire_format import (
    VARINT,
    Field,
    delimited,
    fields,
    read_varint,
    tagged_text,
    tagged_varint,
)
from podscope_protos.v1.xplane_pb2 import XPlane, XStat

_DEVICE_PLANE = re.compile(r"^(?P<kind>/device:[A-Za-z]+:)(?P<ordinal>\d{1,18})(?P<rest>( .*)?)$")


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

    @cached_property
    def programs(self) -> tuple[tuple[ScannedPlane, list[Program]], ...]:
        """The planes that tell of its programs, one if any, each with these.

        Raises:
            MalformedXSpaceError: the bytes are not an XSpace.
        """
        view = memoryview(self.xspace)
        planes = [plane for plane in self.scanned.planes if plane.name == METADATA_PLANE]
        return tuple((plane, programs_of(view, plane)) for plane in planes)


@dataclass(frozen=True)
class HostPart:
    """One file of a host's profile.

    Attributes:
        suffix: Tells it from the host's other files; empty for the first or only one.
        pieces: A serialised XSpace.
    """

    suffix: str
    pieces: Pieces

    def name(self, host: str) -> str:
        """What stands before ``.xplane.pb`` in the name of its file."""
        return f"{host}.{self.suffix}" if self.suffix else host


@dataclass
class _Merged:
    """The output while it grows, and what is taken already."""

    programs: UnitedPrograms
    chunks: list[Chunk] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    device_ids: set[int] = field(default_factory=set)
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
    numbers = {
        program.number
        for process in processes
        for _, programs in process.programs
        for program in programs
        if program.number is not None
    }
    merged = _Merged(UnitedPrograms(FreeNumbers(numbers)), warnings=list(warnings))
    starts = [process.scanned.start_ns for process in processes]
    earliest = min((start for start in starts if start is not None), default=0)
    for index, (process, start) in enumerate(zip(processes, starts, strict=True)):
        shift_ns = 0 if start is None else start - earliest
        _append_process(merged, process, is_first=index == 0, shift_ns=shift_ns)
    if merged.programs.chunks:
        merged.chunks += delimited(SPACE_PLANES, merged.programs.chunks)
    merged.chunks += _texts(SPACE_WARNINGS, merged.warnings)
    merged.chunks += _texts(SPACE_HOSTNAMES, dict.fromkeys(merged.hostnames))
    return Pieces(merged.chunks)


def merged_into_files(
    whole: Pieces, processes: Sequence[ProcessXSpace], warnings: Sequence[str], limit_bytes: int
) -> list[HostPart]:
    """The host's profile as one file, or as one of each process when it would be too large.

    No reader of protobuf messages takes more than 2 GiB.

    Args:
        whole: What ``merge_xspaces`` made of the processes and the warnings.
        processes: What it is made of.
        warnings: What it tells beside them.
        limit_bytes: Of one file.
    """
    if whole.size <= limit_bytes or len(processes) == 1:
        return [HostPart("", whole)]
    split = (
        f"the profile of this host has {whole.size:,} bytes, more than one file can have "
        f"({limit_bytes:,}): each of its {len(processes)} processes has a file of its own"
    )
    # One that sent nothing is told of by a warning, not by a file.
    first, *others = [process for process in processes if process.xspace]
    return [
        HostPart("", merge_xspaces([first], [*warnings, split])),
        *(
            HostPart(f"process-{process.process}", merge_xspaces([process], [split]))
            for process in others
        ),
    ]


def with_warnings(pieces: Pieces, warnings: Sequence[str]) -> Pieces:
    """The XSpace with further warnings."""
    return Pieces([*pieces.chunks, *_texts(SPACE_WARNINGS, warnings)])


def _texts(number: int, texts: Sequence[str] | dict[str, None]) -> list[Chunk]:
    return [tagged_text(number, text) for text in texts]


def _append_process(
    merged: _Merged, process: ProcessXSpace, *, is_first: bool, shift_ns: int
) -> None:
    buffer, scanned = memoryview(process.xspace), process.scanned
    ordinals = _device_ordinals(merged, scanned)
    renumbered = merged.programs.unknown()
    for plane, programs in process.programs:
        renumbered = merged.programs.add(buffer, plane, programs)
    for plane in scanned.planes:
        if plane.name == METADATA_PLANE:
            continue
        if plane.name == TASK_PLANE and plane.name in merged.names:
            continue  # one per host: the times of all lines count from the earliest start
        name = _free_name(merged, plane.name, ordinals, process.process, is_first=is_first)
        merged.names.add(name)
        numbers = PlaneNumbers(renumbered, plane.header) if renumbered else None
        _append_plane(merged, buffer, plane, name, process.process, shift_ns, numbers)
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
    numbers: PlaneNumbers | None,
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
    if numbers is None:
        chunks += [buffer[start:end] for start, end in plane.others]
    else:
        chunks += numbers.others(buffer, plane)
    for line in plane.lines:
        if shift_ns or numbers:
            chunks += _rewritten_line(buffer, line, shift_ns, numbers)
        else:
            chunks.append(buffer[line.start : line.end])
    if plane.stat("process_id") is None:
        chunks += _process_id_stat(plane.header, process)
    merged.chunks += delimited(SPACE_PLANES, chunks)


def _rewritten_line(
    buffer: memoryview, line: Field, shift_ns: int, numbers: PlaneNumbers | None
) -> list[Chunk]:
    """Return a line whose start is moved; its events are relative to that.

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
    if numbers is None:
        events: Chunk = buffer[rest : line.end]
    else:
        events = numbers.events(buffer, rest, line.end)
    return delimited(PLANE_LINES, [*header, events])


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
