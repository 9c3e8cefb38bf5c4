"""Makes derived lines of merged events."""

import numpy as np

from podscope_analyzers.kernels import natural_order
from podscope_analyzers.kernels.levels import Merged
from podscope_analyzers.prepared import DerivedStat, PreparedLine, PreparedPlane
from podscope_analyzers.prepared_lines import derived_line
from podscope_analyzers.xspace.columns import Int64s


def merged_line(
    plane: PreparedPlane,
    merged: Merged,
    group: Int64s,
    *,
    name: str,
    line_id: int,
    display_id: int = 0,
    stats: dict[str, DerivedStat] | None = None,
) -> tuple[PreparedLine, ...]:
    """The line of merged events, in natural order; no line without events.

    Args:
        plane: Its metadata has the rows that the events' codes are.
        merged: The events.
        group: Of every event that they are merged from.
        name: The line's.
        line_id: One of the derived ids.
        display_id: The line's.
        stats: Of the merged events, by name.
    """
    if not len(merged.code):
        return ()
    duration = merged.end_ps - merged.start_ps
    order = natural_order(merged.start_ps, duration)
    at = np.arange(len(duration)) if order is None else order
    return (
        derived_line(
            plane,
            name=name,
            line_id=line_id,
            metadata=merged.code[at],
            start_ps=merged.start_ps[at],
            duration_ps=duration[at],
            group_id=group[merged.first[at]],
            stats={
                stat: (present[at], values[at]) for stat, (present, values) in (stats or {}).items()
            },
            display_id=display_id,
        ),
    )
