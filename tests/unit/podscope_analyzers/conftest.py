"""Small XSpaces written out in the tests."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from podscope_analyzers import XSpace, open_xspace
from podscope_analyzers.prepared import PreparedSpace
from podscope_protos.v1 import xplane_pb2

StatValue = int | float | str
Event = tuple[str, int, int] | tuple[str, int, int, Mapping[str, StatValue]]
Lines = Mapping[str, Sequence[Event]]
SpaceMaker = Callable[..., XSpace]


def _set(plane: xplane_pb2.XPlane, stat: xplane_pb2.XStat, name: str, value: StatValue) -> None:
    known = {entry.name: key for key, entry in plane.stat_metadata.items()}
    key = known.setdefault(name, len(known) + 1)
    plane.stat_metadata[key].id = key
    plane.stat_metadata[key].name = name
    stat.metadata_id = key
    if isinstance(value, str):
        stat.str_value = value
    elif isinstance(value, float):
        stat.double_value = value
    elif value >> 63:
        stat.uint64_value = value
    else:
        stat.int64_value = value


@pytest.fixture
def make_space() -> SpaceMaker:
    """A function that makes an XSpace of planes, lines and events.

    Planes are given as ``{name: {line: [(event, start_ps, duration_ps, stats), ...]}}``;
    ``metadata`` holds stats of event metadata by event name, ``ids`` the planes' ids,
    ``plane_stats`` their stats; ``line_ids`` and ``line_names`` are those of lines that are
    called otherwise in ``planes``.
    """

    def make(
        planes: Mapping[str, Lines],
        *,
        metadata: Mapping[str, Mapping[str, StatValue]] | None = None,
        ids: Mapping[str, int] | None = None,
        plane_stats: Mapping[str, Mapping[str, StatValue]] | None = None,
        line_ids: Mapping[str, int] | None = None,
        line_names: Mapping[str, str] | None = None,
    ) -> XSpace:
        space = xplane_pb2.XSpace()
        for plane_name, lines in planes.items():
            plane = space.planes.add(name=plane_name, id=(ids or {}).get(plane_name, 0))
            for name, value in (plane_stats or {}).get(plane_name, {}).items():
                _set(plane, plane.stats.add(), name, value)
            rows: dict[str, int] = {}
            for number, (line_name, events) in enumerate(lines.items(), start=1):
                line = plane.lines.add(name=(line_names or {}).get(line_name, line_name))
                line.id = (line_ids or {}).get(line_name, number)
                for event_name, start, duration, *stats in events:
                    row = rows.setdefault(event_name, len(rows) + 1)
                    if row not in plane.event_metadata:
                        about = plane.event_metadata[row]
                        about.id, about.name = row, event_name
                        for name, value in (metadata or {}).get(event_name, {}).items():
                            _set(plane, about.stats.add(), name, value)
                    event = line.events.add(metadata_id=row, offset_ps=start, duration_ps=duration)
                    for name, value in stats[0].items() if stats else ():
                        _set(plane, event.stats.add(), name, value)
        return open_xspace(space.SerializeToString())

    return make


def _set_stat(plane: xplane_pb2.XPlane, owner: Any, name: str, value: object) -> None:
    ids = {entry.name: key for key, entry in plane.stat_metadata.items()}
    key = ids.get(name, len(ids) + 1)
    plane.stat_metadata[key].id = key
    plane.stat_metadata[key].name = name
    stat = owner.stats.add(metadata_id=key)
    match value:
        case int():
            stat.int64_value = value
        case float():
            stat.double_value = value
        case str():
            stat.str_value = value
        case bytes():
            stat.bytes_value = value
        case ("uint", int() as unsigned):
            stat.uint64_value = unsigned
        case _:
            raise TypeError(value)


def _add_plane(space: xplane_pb2.XSpace, described: Mapping[str, Any]) -> None:
    plane = space.planes.add(name=described["name"], id=described.get("id", 0))
    for name, value in described.get("stats", {}).items():
        _set_stat(plane, plane, name, value)
    keys: dict[str, int] = {}

    def metadata(name: str) -> int:
        if name not in keys:
            told = described.get("metadata", {}).get(name, {})
            key = keys[name] = told.get("id", len(keys) + 1)
            entry = plane.event_metadata[key]
            entry.id, entry.name = key, told.get("name", name)
            entry.display_name = told.get("display_name", "")
            for stat, value in told.get("stats", {}).items():
                _set_stat(plane, entry, stat, value)
            entry.child_id.extend([metadata(child) for child in told.get("children", ())])
        return keys[name]

    for name in described.get("metadata", {}):
        metadata(name)
    for number, (line_name, events) in enumerate(described.get("lines", {}).items(), start=1):
        line = plane.lines.add(name=line_name, id=number)
        for name, start_ps, duration_ps, *rest in events:
            stats = dict(rest[0]) if rest else {}
            event = line.events.add(metadata_id=metadata(name), duration_ps=duration_ps)
            occurrences = stats.pop("num_occurrences", None)
            if occurrences is None:
                event.offset_ps = start_ps
            else:
                event.num_occurrences = occurrences
            for stat, value in stats.items():
                _set_stat(plane, event, stat, value)


@pytest.fixture
def make_planes() -> Callable[[Sequence[Mapping[str, Any]]], PreparedSpace]:
    """Makes a space of planes; every plane has ``name``, ``stats``, ``metadata`` and ``lines``.

    An event is (name, start in ps, duration in ps, stats). A stat is an int64, text, bytes, a
    float, or ("uint", number). Groups are those that the events carry.
    """

    def make(planes: Sequence[Mapping[str, Any]]) -> PreparedSpace:
        space = xplane_pb2.XSpace(hostnames=["host1"])
        for plane in planes:
            _add_plane(space, plane)
        return PreparedSpace(open_xspace(space.SerializeToString()))

    return make
