"""Steps of a GPU: groups filled in over its streams, and a line of steps made of them."""

import numpy as np

from podscope_analyzers.planes import DERIVED_STEPS, STEPS
from podscope_analyzers.prepared import PreparedPlane
from podscope_analyzers.prepared_lines import derived_line
from podscope_analyzers.sorted_values import distinct


def derive_steps(plane: PreparedPlane) -> None:
    """Gives events without a group the one seen last, and adds the ``Steps`` line."""
    lines = [line for line in plane.lines if not line.is_derived and line.event_count]
    if not lines:
        return
    columns = [line.columns() for line in lines]
    start = np.concatenate([c.start_ps for c in columns])
    duration = np.concatenate([c.duration_ps for c in columns])
    group = np.concatenate([line.group_id for line in lines])
    order = np.lexsort((duration, start))
    ordered = group[order]
    seen = np.maximum.accumulate(np.where(ordered >= 0, np.arange(len(order)), -1))
    filled = np.where(seen >= 0, ordered[np.maximum(seen, 0)], -1)
    group[order] = filled
    at = 0
    for line in lines:
        line.fill_groups(group[at : at + line.event_count])
        at += line.event_count
    first_grouped = int(np.searchsorted(seen, 0))
    if first_grouped == len(order):
        return
    order, filled = order[first_grouped:], filled[first_grouped:]
    first = np.flatnonzero(np.append(True, filled[1:] != filled[:-1]))
    begin = start[order[first]]
    end = np.maximum.reduceat(start[order] + duration[order], first)
    ids = filled[first]
    rows = {int(g): plane.event_metadata.add(str(g)) for g in distinct(ids)}
    steps = derived_line(
        plane,
        name=STEPS,
        line_id=DERIVED_STEPS,
        metadata=np.array([rows[int(g)] for g in ids], np.int32),
        start_ps=begin,
        duration_ps=end - begin,
        group_id=ids,
        is_step=True,
    )
    plane.lines = (*plane.lines, steps)
