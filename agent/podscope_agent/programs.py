"""The compiled programs of a host's processes, united into one ``/host:metadata`` plane.

Processes number their programs as they compile them, so that two of them have one number for
different programs. A later process's program then gets a number that nobody has; what its planes
must be rewritten for is told by :class:`Renumbered`.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from podscope_agent.pieces import Chunk
from podscope_agent.scanning import (
    METADATA_PLANE,
    PLANE_EVENT_METADATA,
    PLANE_ID,
    PLANE_NAME,
    ScannedPlane,
    text_of,
)
from podscope_agent.wire_format import (
    LENGTH_DELIMITED,
    VARINT,
    Field,
    delimited,
    fields,
    read_varint,
    size_of_varint,
    tagged_text,
    tagged_varint,
)
from podscope_protos.v1.xplane_pb2 import XPlane

PROGRAM_ID: Final = "program_id"
_HLO_PROTO: Final = frozenset({"Hlo Proto", "HLO Proto"})
_NUMBERED_NAME = re.compile(r"(?P<module>.*)\((?P<number>\d{1,20})\)", re.DOTALL)
_MAP_KEY, _MAP_VALUE = 1, 2
_METADATA_ID, _METADATA_NAME, _METADATA_STATS = 1, 2, 5
_STAT_METADATA_ID, _STAT_UINT64, _STAT_INT64, _STAT_BYTES = 1, 3, 4, 6


@dataclass(frozen=True)
class Stat:
    """A stat of a program.

    Attributes:
        id: Of its name, in the plane that it comes from.
        number: Its value when that is an integer, unsigned.
        value: Its value as it is on the wire, with tag.
    """

    id: int
    name: str
    number: int | None
    value: memoryview


@dataclass(frozen=True)
class Program:
    """One entry of a process's ``/host:metadata``.

    Attributes:
        key: Of the entry; tells nothing, JAX counts entries from 1.
        number: Which the process's events know the program by, unsigned; None for what is no
            program (TPU processes keep symbol tables there).
        name: ``module(number)``, as all producers write it.
        stats: Its HLO and more.
        others: Further fields of the entry.
    """

    key: int
    number: int | None
    name: str
    stats: tuple[Stat, ...]
    others: tuple[memoryview, ...]

    @cached_property
    def fingerprint(self) -> bytes:
        """Equal for the same program of several processes."""
        digest = hashlib.sha256(self.name.encode())
        for stat in sorted(self.stats, key=lambda stat: stat.name):
            if stat.name != PROGRAM_ID:
                digest.update(f"\0{stat.name} {len(stat.value)} ".encode())
                digest.update(stat.value)
        return digest.digest()

    def renamed(self, number: int) -> str:
        """Its name under another number."""
        named = _NUMBERED_NAME.fullmatch(self.name)
        return f"{named['module']}({number})" if named else self.name


def programs_of(buffer: memoryview, plane: ScannedPlane) -> list[Program]:
    """The programs of a process.

    Raises:
        MalformedXSpaceError: an entry of the plane is none.
    """
    names = {key: metadata.name for key, metadata in plane.header.stat_metadata.items()}
    return [_program(buffer, entry, names) for entry in plane.programs]


def _program(buffer: memoryview, entry: Field, stat_names: Mapping[int, str]) -> Program:
    key, name = 0, ""
    stats: list[Stat] = []
    others: list[memoryview] = []
    for item in fields(buffer, entry.value, entry.end):
        if item.number == _MAP_KEY and item.wire_type == VARINT:
            key, _ = read_varint(buffer, item.value, item.end)
        if item.number != _MAP_VALUE or item.wire_type != LENGTH_DELIMITED:
            continue
        for part in fields(buffer, item.value, item.end):
            if part.number == _METADATA_NAME and part.wire_type == LENGTH_DELIMITED:
                name = text_of(buffer, part)
            elif part.number == _METADATA_STATS and part.wire_type == LENGTH_DELIMITED:
                stats.append(_stat(buffer, part, stat_names))
            elif part.number != _METADATA_ID:
                others.append(buffer[part.start : part.end])
    own = [stat.number for stat in stats if stat.name == PROGRAM_ID and stat.number is not None]
    number: int | None = None
    if own:
        number = own[0]
    elif named := _NUMBERED_NAME.fullmatch(name):
        number = int(named["number"]) % (1 << 64)
    elif any(stat.name in _HLO_PROTO for stat in stats):
        number = key
    return Program(key, number, name, tuple(stats), tuple(others))


def _stat(buffer: memoryview, stat: Field, names: Mapping[int, str]) -> Stat:
    stat_id, number = 0, None
    value = buffer[:0]
    for item in fields(buffer, stat.value, stat.end):
        if item.number == _STAT_METADATA_ID and item.wire_type == VARINT:
            stat_id, _ = read_varint(buffer, item.value, item.end)
            continue
        value = buffer[item.start : item.end]
        if item.number in {_STAT_UINT64, _STAT_INT64} and item.wire_type == VARINT:
            number, _ = read_varint(buffer, item.value, item.end)
    return Stat(stat_id, names.get(stat_id, ""), number, value)


class FreeNumbers:
    """Numbers for programs that nobody else has.

    Args:
        taken: Every number that a process of the host uses.
    """

    def __init__(self, taken: Iterable[int]) -> None:
        self._taken = set(taken)
        self._next: dict[int, int] = {}

    def like(self, number: int) -> int:
        """A free number, if possible one that takes as many bytes on the wire."""
        for size in range(size_of_varint(number), 11):
            candidate = self._next.get(size, 1 << 7 * (size - 1) if size > 1 else 1)
            while candidate in self._taken:
                candidate += 1
            self._next[size] = candidate
            if size_of_varint(candidate) == size:
                self._taken.add(candidate)
                return candidate
        raise AssertionError  # there are 2**64


class Renumbered:
    """The numbers that a process's programs have in the merged profile, where they differ.

    Attributes:
        foreign: Numbers that stand for other programs there: whatever of this process refers to
            one of them needs another number, also when its program is not known.
        names: New names of programs by their old ones.
    """

    def __init__(self, foreign: frozenset[int], free: FreeNumbers) -> None:
        self.foreign = foreign
        self.names: dict[str, str] = {}
        self._free = free
        self._numbers: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.foreign)

    def __getitem__(self, number: int) -> int:
        """The number to write for one that the process wrote."""
        if number not in self.foreign:
            return number
        if number not in self._numbers:
            self._numbers[number] = self._free.like(number)
        return self._numbers[number]


class UnitedPrograms:
    """The ``/host:metadata`` plane of the host: hundreds of megabytes, passed on unparsed.

    Args:
        free: Where new numbers come from.
    """

    def __init__(self, free: FreeNumbers) -> None:
        self._free = free
        self._programs: dict[int, Program] = {}
        self._tables: set[bytes] = set()
        self._keys: set[int] = set()
        self._stat_ids: dict[str, int] = {}
        self.chunks: list[Chunk] = []
        """The fields of the plane; none while no process had one."""

    def add(self, buffer: memoryview, plane: ScannedPlane, programs: list[Program]) -> Renumbered:
        """Take in the programs of a process; tell which numbers they have now."""
        if not self.chunks:
            self._begin(buffer, plane, programs)
            return Renumbered(frozenset(), self._free)
        same = {program.number for program in programs if self._has(program)}
        renumbered = Renumbered(frozenset(self._programs.keys() - same), self._free)
        stat_ids = {
            key: self._stat_id(entry.name) for key, entry in plane.header.stat_metadata.items()
        }
        for program in programs:
            if program.number is None:
                if program.fingerprint not in self._tables:
                    self._append(program, self._free_key(program.key), program.name, stat_ids)
                self._tables.add(program.fingerprint)
            elif program.number not in same:
                self._add(program, program.number, stat_ids, renumbered)
        return renumbered

    def unknown(self) -> Renumbered:
        """For a process that tells none of its programs."""
        return Renumbered(frozenset(self._programs), self._free)

    def _has(self, program: Program) -> bool:
        known = None if program.number is None else self._programs.get(program.number)
        return known is not None and known.fingerprint == program.fingerprint

    def _begin(self, buffer: memoryview, plane: ScannedPlane, programs: list[Program]) -> None:
        """The first process's plane is taken as it is."""
        self.chunks = [
            *([tagged_varint(PLANE_ID, plane.id)] if plane.id else []),
            tagged_text(PLANE_NAME, METADATA_PLANE),
            *(buffer[start:end] for start, end in plane.others),
            *(buffer[line.start : line.end] for line in plane.lines),
        ]
        self._stat_ids = {entry.name: key for key, entry in plane.header.stat_metadata.items()}
        for program in programs:
            self._keys.add(program.key)
            if program.number is None:
                self._tables.add(program.fingerprint)
            else:
                # Of two with one number readers keep the first.
                self._programs.setdefault(program.number, program)

    def _add(
        self, program: Program, number: int, stat_ids: Mapping[int, int], renumbered: Renumbered
    ) -> None:
        new_number, name = renumbered[number], program.name
        if new_number in self._programs:
            return  # the process lists it twice
        self._programs[new_number] = program
        if new_number != number:
            name = program.renamed(new_number)
            renumbered.names[program.name] = name
        # The key of an entry need not be the number; this stat tells it.
        told = [
            tagged_varint(_STAT_METADATA_ID, self._stat_id(PROGRAM_ID)),
            tagged_varint(_STAT_UINT64, new_number),
        ]
        self._append(program, self._free_key(new_number), name, stat_ids, told)

    def _append(
        self,
        program: Program,
        key: int,
        name: str,
        stat_ids: Mapping[int, int],
        number: Sequence[Chunk] = (),
    ) -> None:
        body: list[Chunk] = [
            tagged_varint(_METADATA_ID, key),
            tagged_text(_METADATA_NAME, name),
            *program.others,
        ]
        for stat in program.stats:
            if not number or stat.name != PROGRAM_ID:
                stat_id = tagged_varint(_STAT_METADATA_ID, stat_ids.get(stat.id, stat.id))
                body += delimited(_METADATA_STATS, [stat_id, stat.value])
        if number:
            body += delimited(_METADATA_STATS, number)
        self.chunks += delimited(
            PLANE_EVENT_METADATA, [tagged_varint(_MAP_KEY, key), *delimited(_MAP_VALUE, body)]
        )

    def _free_key(self, wanted: int) -> int:
        key = wanted or 1
        while key in self._keys:
            key = len(self._keys) + 1 if key == wanted else key + 1
        self._keys.add(key)
        return key

    def _stat_id(self, name: str) -> int:
        """A stat's id in the united plane, which is added if it lacks."""
        if name not in self._stat_ids:
            new_id = max(self._stat_ids.values(), default=0) + 1
            added = XPlane()
            added.stat_metadata[new_id].id = new_id
            added.stat_metadata[new_id].name = name
            self.chunks.append(added.SerializeToString())
            self._stat_ids[name] = new_id
        return self._stat_ids[name]
