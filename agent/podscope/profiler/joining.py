"""Joins what this process recorded with the XSpaces of the frameworks in it.

The largest framework's lines stay bytes, whatever their size. Planes of one name become one, as
readers look for one; so do the lines of one thread, as steps are found by nesting within a line.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from podscope import wire
from podscope.profiler.planes import HOST_PLANE, PS_PER_NS, TASK_PLANE, PlaneBuilder

THREAD_MARK: Final = "podscope thread"
"""The event by which a framework's session tells which of its lines is which thread's."""

_START = "profile_start_time"
# PyTorch's, of threads that it knows by number alone.
_NAMELESS: Final = re.compile(r"thread \d+( \(.*\))?")


def join(own: Any, start_unix_ns: int, spaces: Sequence[bytes]) -> bytes:
    """Return one serialised XSpace of all, its times relative to the earliest start.

    Args:
        own: The XSpace of this library, of lines whose ids are the system's thread ids.
        start_unix_ns: When the own recording began.
        spaces: Serialised XSpaces of frameworks.

    Raises:
        DecodeError: bytes that are no XSpace.
    """
    if not spaces:
        whole: bytes = own.SerializeToString()
        return whole
    ordered = sorted(spaces, key=len, reverse=True)
    outlines = [wire.SpaceOutline.FromString(space) for space in ordered]
    starts = [_start_unix_ns(outline, start_unix_ns) for outline in outlines]
    earliest = min(start_unix_ns, *starts)
    planes = _Planes()
    for outline, start in zip(outlines, starts, strict=True):
        for plane in outline.planes:
            planes.add(plane, start - earliest)
        del outline.planes[:]
    for plane in own.planes:
        planes.add(plane.SerializeToString(), start_unix_ns - earliest, is_own=True)
    del own.planes[:]
    # What else the spaces hold: errors, warnings, host names.
    rest = wire.XSpace.FromString(b"".join(part.SerializeToString() for part in [own, *outlines]))
    hostnames = list(dict.fromkeys(rest.hostnames))
    del rest.hostnames[:]
    rest.hostnames.extend(hostnames)
    joined: bytes = planes.serialised(earliest) + rest.SerializeToString()
    return joined


def _start_unix_ns(space: Any, default: int) -> int:
    for plane in space.planes:
        if wire.PlaneOutline.FromString(plane).name == TASK_PLANE:
            message = wire.XPlane.FromString(plane)
            for stat in message.stats:
                if message.stat_metadata[stat.metadata_id].name == _START:
                    start: int = stat.uint64_value or stat.int64_value
                    return start or default
    return default


class _Planes:
    def __init__(self) -> None:
        self._by_name: dict[str, _Plane] = {}
        self._line_of_thread: dict[int, int] = {}

    def add(self, plane: bytes, shift_ns: int, *, is_own: bool = False) -> None:
        outline = wire.PlaneOutline.FromString(plane)
        if outline.name == HOST_PLANE and not is_own:
            self._line_of_thread = {**_take_marks(outline), **self._line_of_thread}
        found = self._by_name.get(outline.name)
        if found is None:
            self._by_name[outline.name] = _Plane(outline, shift_ns)
        elif outline.name != TASK_PLANE:
            other = wire.XPlane.FromString(outline.SerializeToString())
            if is_own:
                for line in other.lines:
                    line.id = self._line_of_thread.get(line.id, line.id)
            found.join(other, shift_ns)

    def serialised(self, start_unix_ns: int) -> bytes:
        message = self._by_name[TASK_PLANE].builder.message
        for stat in message.stats:
            if message.stat_metadata[stat.metadata_id].name == _START:
                stat.uint64_value = start_unix_ns
        space = wire.SpaceOutline(planes=[plane.serialised() for plane in self._by_name.values()])
        whole: bytes = space.SerializeToString()
        return whole


class _Plane:
    """A plane that others of its name are written into."""

    def __init__(self, outline: Any, shift_ns: int) -> None:
        self._lines: list[bytes] = list(outline.lines)
        self._line_indices: dict[int, int] = {}
        for index, line in enumerate(self._lines):
            read = wire.LineOutline.FromString(line)
            self._line_indices.setdefault(read.id, index)
            if shift_ns:
                read.timestamp_ns += shift_ns
                self._lines[index] = read.SerializeToString()
        del outline.lines[:]
        self.builder = PlaneBuilder(wire.XPlane.FromString(outline.SerializeToString()))

    def join(self, other: Any, shift_ns: int) -> None:
        """Write another plane's lines and stats into this one, under this one's ids."""
        builder = self.builder
        translated = _Translation(other, builder)
        for line in other.lines:
            for event in line.events:
                event.metadata_id = translated.event_id(event.metadata_id)
                translated.rewrite(event.stats)
            line.timestamp_ns += shift_ns
            index = self._line_indices.get(line.id)
            if index is None:
                self._line_indices[line.id] = len(self._lines)
                self._lines.append(line.SerializeToString())
            else:
                self._lines[index] = _joined_line(wire.XLine.FromString(self._lines[index]), line)
        translated.rewrite(other.stats)
        known = {stat.metadata_id for stat in builder.message.stats}
        builder.message.stats.extend(stat for stat in other.stats if stat.metadata_id not in known)

    def serialised(self) -> bytes:
        lines = wire.PlaneOutline(lines=self._lines)
        whole: bytes = self.builder.message.SerializeToString() + lines.SerializeToString()
        return whole


class _Translation:
    """Ids of one plane in another's terms."""

    def __init__(self, source: Any, target: PlaneBuilder) -> None:
        self._source = source
        self._target = target
        self._events: dict[int, int] = {}
        self._stats: dict[int, int] = {}

    def event_id(self, source_id: int) -> int:
        found = self._events.get(source_id)
        if found is None:
            described = self._source.event_metadata[source_id]
            found = self._events[source_id] = self._target.event_id(described.name)
            kept = self._target.message.event_metadata[found]
            if not kept.display_name:
                kept.display_name = described.display_name
            if not kept.stats:
                self.rewrite(described.stats)
                kept.stats.extend(described.stats)
        return found

    def rewrite(self, stats: Any) -> None:
        for stat in stats:
            stat.metadata_id = self._stat_id(stat.metadata_id)
            if stat.WhichOneof("value") == "ref_value":
                stat.ref_value = self._stat_id(stat.ref_value)

    def _stat_id(self, source_id: int) -> int:
        found = self._stats.get(source_id)
        if found is None:
            name = self._source.stat_metadata[source_id].name
            found = self._stats[source_id] = self._target.stat_id(name)
        return found


def _joined_line(line: Any, other: Any) -> bytes:
    """One line of both's events, in the order that readers expect: outer before inner."""
    earliest_ns = min(line.timestamp_ns, other.timestamp_ns)
    for part in (line, other):
        shift_ps = (part.timestamp_ns - earliest_ns) * PS_PER_NS
        if shift_ps:
            for event in part.events:
                event.offset_ps += shift_ps
    line.timestamp_ns = earliest_ns
    if other.name and _NAMELESS.fullmatch(line.name):
        line.name = other.name
    line.events.extend(other.events)
    line.events.sort(key=lambda event: (event.offset_ps, -event.duration_ps))
    whole: bytes = line.SerializeToString()
    return whole


def _take_marks(plane: Any) -> dict[int, int]:
    """The line of each thread that left a mark in the plane; the marks are taken out."""
    lines = list(plane.lines)
    del plane.lines[:]
    message = wire.XPlane.FromString(plane.SerializeToString())
    marks = {key for key, kept in message.event_metadata.items() if kept.name == THREAD_MARK}
    line_of_thread: dict[int, int] = {}
    if marks:
        # An event's bytes begin with the id of its name: the others need not be read.
        prefixes = tuple(wire.XEvent(metadata_id=key).SerializeToString() for key in marks)
        for index, line in enumerate(lines):
            outline = wire.LineOutline.FromString(line)
            found = [event for event in outline.events if event.startswith(prefixes)]
            for event in found:
                for stat in wire.XEvent.FromString(event).stats:
                    line_of_thread[stat.int64_value] = outline.id
            if found:
                kept = [event for event in outline.events if not event.startswith(prefixes)]
                del outline.events[:]
                outline.events.extend(kept)
                lines[index] = outline.SerializeToString()
        for key in marks:
            del message.event_metadata[key]
        plane.ParseFromString(message.SerializeToString())
    plane.lines.extend(lines)
    return line_of_thread
