"""Writes other program numbers into a process's planes, on the wire.

A program's number is in stats of events (CPU and GPU), in stats of event metadata (TPU), and in
names like ``jit_step(7)`` of event metadata (executions of modules). A regular expression finds
candidates at the speed of C; whether one is a stat at all is told by walking, by their lengths,
the events up to it. What has nothing to be changed is passed on as it came.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from google.protobuf.message import DecodeError

from podscope_agent.errors import MalformedXSpaceError
from podscope_agent.pieces import Chunk
from podscope_agent.programs import PROGRAM_ID, Renumbered
from podscope_agent.scanning import LINE_EVENTS, PLANE_EVENT_METADATA, ScannedPlane, Span
from podscope_agent.wire_format import (
    LENGTH_DELIMITED,
    Field,
    delimited,
    fields,
    read_varint,
    tag_and_length,
    varint,
)
from podscope_protos.v1.xplane_pb2 import XEventMetadata, XPlane

_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_EVENT_SCALARS = re.compile(rb"(?:[\x08\x10\x18\x28]" + _VARINT + rb")*", re.DOTALL)
_STATS_TAG: Final = 4 << 3 | LENGTH_DELIMITED
_EVENTS_TAG: Final = LINE_EVENTS << 3 | LENGTH_DELIMITED
_STAT_HEADER_BYTES: Final = 2
_MAP_KEY, _MAP_VALUE = 1, 2


@dataclass(frozen=True)
class PlaneNumbers:
    """Rewrites one plane of a process.

    Attributes:
        renumbered: The process's programs.
        header: The stats of the plane and their names.
    """

    renumbered: Renumbered
    header: XPlane

    @cached_property
    def _stat_ids(self) -> frozenset[int]:
        entries = self.header.stat_metadata.items()
        return frozenset(key for key, entry in entries if entry.name == PROGRAM_ID)

    @cached_property
    def _stat(self) -> "re.Pattern[bytes] | None":
        """Matches the inside of a stat that holds a program's number."""
        if not self._stat_ids:
            return None
        ids = b"|".join(re.escape(varint(stat_id)) for stat_id in sorted(self._stat_ids))
        own = ids if len(self._stat_ids) == 1 else b"(?:" + ids + b")"
        return re.compile(rb"\x08" + own + rb"[\x18\x20](" + _VARINT + rb")", re.DOTALL)

    @cached_property
    def _new_numbers(self) -> "_NewNumbers":
        return _NewNumbers(self.renumbered)

    def events(self, buffer: memoryview, start: int, end: int) -> Chunk:
        """The part of a line that begins with its first event, with new numbers."""
        if self._stat is None or self._stat.search(buffer, start, end) is None:
            return buffer[start:end]
        # Indexing bytes takes half the time of indexing a view.
        line = bytes(buffer[start:end])
        try:
            return self._rewritten(self._stat, line) or buffer[start:end]
        except (MalformedXSpaceError, IndexError):
            # Whoever reads the profile says more of it than this.
            return buffer[start:end]

    def _rewritten(self, pattern: "re.Pattern[bytes]", line: bytes) -> bytearray:
        """The line with new numbers; nothing when it has none to change."""
        written = bytearray()
        new_numbers = self._new_numbers
        event = body = event_end = stat = done = 0
        header_start = header_end = grown = 0
        for match in pattern.finditer(line):
            number = new_numbers[match[1]]
            if number is None:
                continue
            at = match.start() - _STAT_HEADER_BYTES
            if at >= event_end:
                while event_end <= at:
                    event = event_end
                    length = line[event + 1]
                    if line[event] == _EVENTS_TAG and length < 0x80:
                        body = event + 2
                        event_end = body + length
                    else:
                        body, event_end = _long_field(line, event, _EVENTS_TAG)
                if event_end > len(line):
                    raise MalformedXSpaceError(event)
                scalars = _EVENT_SCALARS.match(line, body, event_end) if body else None
                stat = event_end if scalars is None else scalars.end()
            while stat < at:
                length = line[stat + 1]
                if line[stat] == _STATS_TAG and length < 0x80:
                    stat += 2 + length
                else:
                    _, stat = _long_field(line, stat, _STATS_TAG)
            size = match.end() - match.start()
            if stat != at or line[at] != _STATS_TAG or line[at + 1] != size:
                continue  # these bytes are in the middle of something else
            if done <= event:
                written += line[done:body]
                done, grown = body, 0
                header_end = len(written)
                header_start = header_end - (body - event)
            growth = len(number) - len(match[1])
            if growth:
                grown += growth
                header = tag_and_length(LINE_EVENTS, event_end - body + grown)
                written[header_start:header_end] = header
                header_end = header_start + len(header)
                written += line[done : at + 1]
                written.append(size + growth)
                done = match.start()
            written += line[done : match.start(1)]
            written += number
            done = match.end()
        if written:
            written += line[done:]
        return written

    def others(self, buffer: memoryview, plane: ScannedPlane) -> list[Chunk]:
        """What the plane has besides lines, with new numbers and names in its event metadata."""
        chunks: list[Chunk] = []
        for span in plane.others:
            chunks += self._entries(buffer, span)
        return chunks

    def _entries(self, buffer: memoryview, span: Span) -> list[Chunk]:
        start, end = span
        if not self._may_change(buffer, start, end):
            return [buffer[start:end]]
        chunks: list[Chunk] = []
        done = start
        for item in fields(buffer, start, end):
            if item.number != PLANE_EVENT_METADATA or item.wire_type != LENGTH_DELIMITED:
                continue
            if self._may_change(buffer, item.value, item.end):
                entry = self._entry(buffer, item)
                if entry:
                    chunks += [buffer[done : item.start], *entry]
                    done = item.end
        return [*chunks, buffer[done:end]]

    @cached_property
    def _names(self) -> "re.Pattern[bytes] | None":
        names = [re.escape(name.encode()) for name in self.renumbered.names]
        return re.compile(b"|".join(names)) if names else None

    def _may_change(self, buffer: memoryview, start: int, end: int) -> bool:
        if self._names is not None and self._names.search(buffer, start, end):
            return True
        return self._stat is not None and self._stat.search(buffer, start, end) is not None

    def _entry(self, buffer: memoryview, entry: Field) -> list[Chunk]:
        """An entry of the event metadata with new numbers; nothing when it stays as it is."""
        key: list[Chunk] = []
        metadata = XEventMetadata()
        for item in fields(buffer, entry.value, entry.end):
            if item.number == _MAP_VALUE and item.wire_type == LENGTH_DELIMITED:
                try:
                    metadata.MergeFromString(bytes(buffer[item.value : item.end]))
                except DecodeError:
                    return []
            else:
                key.append(buffer[item.start : item.end])
        is_changed = False
        for kind in ("name", "display_name"):
            new_name = self.renumbered.names.get(getattr(metadata, kind))
            if new_name is not None:
                setattr(metadata, kind, new_name)
                is_changed = True
        for stat in metadata.stats:
            value = stat.WhichOneof("value")
            if stat.metadata_id not in self._stat_ids or value is None:
                continue
            if value in {"int64_value", "uint64_value"}:
                old = getattr(stat, value)
                new = self.renumbered[old % (1 << 64)]
                if new != old % (1 << 64):
                    is_signed = value == "int64_value" and new >> 63
                    setattr(stat, value, new - (1 << 64) if is_signed else new)
                    is_changed = True
        if not is_changed:
            return []
        body = metadata.SerializeToString()
        return delimited(PLANE_EVENT_METADATA, [*key, tag_and_length(_MAP_VALUE, len(body)), body])


class _NewNumbers(dict[bytes, bytes | None]):
    """New varints by old ones, as they turn up; None for those that stay."""

    def __init__(self, renumbered: Renumbered) -> None:
        self._renumbered = renumbered
        super().__init__()

    def __missing__(self, old: bytes) -> bytes | None:
        number, _ = read_varint(memoryview(old), 0, len(old))
        new = self._renumbered[number]
        self[old] = None if new == number else varint(new)
        return self[old]


def _long_field(line: bytes, position: int, tag: int) -> tuple[int, int]:
    """Where the value of the field at `position` begins, 0 if it has another tag; its end."""
    field = next(fields(memoryview(line), position))
    return field.value if line[position] == tag else 0, field.end
