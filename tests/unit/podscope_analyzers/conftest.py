"""Small XSpaces written out in the tests."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from podscope_analyzers import XSpace, open_xspace
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
    ``plane_stats`` their stats.
    """

    def make(
        planes: Mapping[str, Lines],
        *,
        metadata: Mapping[str, Mapping[str, StatValue]] | None = None,
        ids: Mapping[str, int] | None = None,
        plane_stats: Mapping[str, Mapping[str, StatValue]] | None = None,
        line_ids: Mapping[str, int] | None = None,
    ) -> XSpace:
        space = xplane_pb2.XSpace()
        for plane_name, lines in planes.items():
            plane = space.planes.add(name=plane_name, id=(ids or {}).get(plane_name, 0))
            for name, value in (plane_stats or {}).get(plane_name, {}).items():
                _set(plane, plane.stats.add(), name, value)
            rows: dict[str, int] = {}
            for number, (line_name, events) in enumerate(lines.items(), start=1):
                line = plane.lines.add(name=line_name)
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
