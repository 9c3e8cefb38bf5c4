"""SparseCores that nothing links to a step: what they did while the TensorCores' step lasted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from podscope_analyzers.steps.database import IDLE, SPARSE_CORE_OFFSET, Int64s, StepDatabase

BUSY: Final = "busy"
"""Category of their time: of what, their spans do not say."""

Spans = tuple[Int64s, Int64s]


def with_timed_cores(database: StepDatabase, active: Mapping[int, Spans]) -> StepDatabase:
    """Adds a row for every such core to every step that a TensorCore has.

    Args:
        database: Of one TPU host.
        active: Of each core's id, starts and ends of the disjoint spans in which it worked,
            ascending, picoseconds. Cores that never did are left out.
    """
    cores = sorted(core for core, (start, _) in active.items() if len(start))
    tensor = np.flatnonzero(database.core_id < SPARSE_CORE_OFFSET)
    # All TensorCores of a step share its span.
    steps, first = np.unique(database.row_step[tensor], return_index=True)
    if not cores or not len(steps):
        return database
    begin, duration = (
        column[tensor[first]] for column in (database.begin_ps, database.duration_ps)
    )
    busy = np.concatenate([_covered(*active[core], begin, begin + duration) for core in cores])
    idle = database.categories.index(IDLE)
    width = len(database.categories)
    row_step = np.concatenate([database.row_step, np.tile(steps, len(cores))])
    core_id = np.concatenate([database.core_id, np.repeat(cores, len(steps))])
    order = np.lexsort((core_id, row_step))

    def rows(before: Int64s, of_step: Int64s) -> Int64s:
        found: Int64s = np.concatenate([before, np.tile(of_step, len(cores))])[order]
        return found

    before = len(database.row_step)
    breakdown_ps = np.zeros((len(order), width + 1), np.int64)
    breakdown_ps[:before, :width] = database.breakdown_ps
    breakdown_ps[before:, idle] = np.tile(duration, len(cores)) - busy
    breakdown_ps[before:, width] = busy
    in_breakdown = np.zeros((len(order), width + 1), np.bool_)
    in_breakdown[:before, :width] = database.in_breakdown
    in_breakdown[before:, [idle, width]] = True
    return replace(
        database,
        row_step=row_step[order],
        core_id=core_id[order],
        host_index=rows(database.host_index, np.zeros_like(steps)),
        begin_ps=rows(database.begin_ps, begin),
        duration_ps=rows(database.duration_ps, duration),
        name_code=rows(database.name_code, database.name_code[tensor[first]]),
        categories=(*database.categories, BUSY),
        breakdown_ps=breakdown_ps[order],
        in_breakdown=in_breakdown[order],
    )


def _covered(start: Int64s, end: Int64s, begin: Int64s, until: Int64s) -> Int64s:
    """How much of every window disjoint spans cover, shape (s,)."""

    def covered_before(time: Int64s) -> Int64s:
        spans = np.searchsorted(start, time, "right")
        total = np.append(0, np.cumsum(end - start))[spans]
        last = np.maximum(spans - 1, 0)
        beyond: Int64s = np.where(spans > 0, np.maximum(end[last] - time, 0), 0)
        return total - beyond

    return covered_before(until) - covered_before(begin)
