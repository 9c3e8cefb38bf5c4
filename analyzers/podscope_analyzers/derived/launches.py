"""How long the host took to launch the work of each step on a GPU."""

from dataclasses import dataclass

import numpy as np

from podscope_analyzers.planes import DERIVED_LAUNCH, LAUNCHES
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.prepared_lines import derived_line
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.xspace.columns import Int64s

_STATS = ("correlation_id", "device_id")
_PS_PER_US = 1e6


@dataclass(frozen=True)
class Launches:
    """The launches of each step on one device, by time, shape (s,).

    Attributes:
        group: The step.
        start_ps: Begin of the first launch.
        end_ps: End of the last one.
        count: How many.
        longest_ps: Duration of the longest.
        total_ps: Of all.
    """

    group: Int64s
    start_ps: Int64s
    end_ps: Int64s
    count: Int64s
    longest_ps: Int64s
    total_ps: Int64s


def step_launches(host: PreparedPlane) -> dict[int, Launches]:
    """The launches of a host by the number of the device.

    Events of the driver itself, whose names begin with ``cu``, are none.
    """
    names = host.event_metadata.names
    is_driver = np.array([name.startswith("cu") for name in names], np.bool_)
    parts = []
    if not set(_STATS) <= host.stat_names:
        return {}
    for line in host.lines:
        if line.is_derived or not line.event_count:
            continue
        columns = line.columns(_STATS)
        device = columns.stat("device_id")
        kept = device.present() & columns.stat("correlation_id").present()
        kept &= (line.group_id >= 0) & ~is_driver[columns.metadata]
        parts.append(
            (
                device.ints_or_uints()[kept],
                line.group_id[kept],
                columns.start_ps[kept],
                columns.duration_ps[kept],
            )
        )
    if not parts:
        return {}
    device_id, group, start, duration = (
        np.concatenate([part[field] for part in parts]) for field in range(4)
    )
    order = np.lexsort((group, device_id))
    device_id, group, start, duration = (
        values[order] for values in (device_id, group, start, duration)
    )
    first = np.flatnonzero(
        np.append(True, (group[1:] != group[:-1]) | (device_id[1:] != device_id[:-1]))
    )
    if not len(group):
        return {}
    begin = np.minimum.reduceat(start, first)
    found = {}
    for device_number in distinct(device_id).tolist():
        own = np.flatnonzero(device_id[first] == device_number)
        own = own[np.argsort(begin[own], kind="stable")]
        found[device_number] = Launches(
            group=group[first][own],
            start_ps=begin[own],
            end_ps=np.maximum.reduceat(start + duration, first)[own],
            count=np.diff(np.append(first, len(group)))[own],
            longest_ps=np.maximum.reduceat(duration, first)[own],
            total_ps=np.add.reduceat(duration, first)[own],
        )
    return found


def launch_line(plane: PreparedPlane, launches: Launches | None) -> tuple[PreparedLine, ...]:
    """The line with one event per step; no line without launches."""
    if launches is None:
        return ()
    groups = plane.space.groups
    every = np.ones(len(launches.group), np.bool_)
    metadata = [
        plane.event_metadata.add(f"{LAUNCHES} for {groups.name(group)}")
        for group in launches.group.tolist()
    ]
    return (
        derived_line(
            plane,
            name=LAUNCHES,
            line_id=DERIVED_LAUNCH,
            metadata=np.array(metadata, np.int32),
            start_ps=launches.start_ps,
            duration_ps=launches.end_ps - launches.start_ps,
            group_id=launches.group,
            stats={
                "num_launches": (every, launches.count),
                "max_launch_time_us": (every, launches.longest_ps / _PS_PER_US),
                # Whole picoseconds, as the reference counts them.
                "avg_launch_time_us": (every, launches.total_ps // launches.count / _PS_PER_US),
            },
        ),
    )
