"""Steps that all hosts have: found by time, since every host numbers its own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels.steps import overlap_by_offset
from podscope_analyzers.steps.database import (
    CORES_PER_HOST,
    Collectives,
    Int64s,
    StepDatabase,
    Transfers,
)
from podscope_analyzers.steps.work import StepWork


@dataclass(frozen=True)
class StepIntersection:
    """Which steps of every host are the common ones.

    Attributes:
        first_step: Index of the first common step in each host's own list, shape (h,); -1 for a
            host that takes no part because it has no device while others have.
        step_count: Common steps.
        steps_dropped: Further common steps, beyond the most that were asked for.
        is_empty: There are steps, but no common ones.
    """

    first_step: Int64s
    step_count: int
    steps_dropped: int
    is_empty: bool


def step_spans(database: StepDatabase) -> tuple[Int64s, Int64s]:
    """Begin and end of every step over its cores, each of shape (s,); 0 and 0 without cores."""
    begin = np.zeros(len(database), np.int64)
    end = np.zeros(len(database), np.int64)
    if len(database.row_step):
        steps, first = np.unique(database.row_step, return_index=True)
        begin[steps] = np.minimum.reduceat(database.begin_ps, first)
        end[steps] = np.maximum.reduceat(database.begin_ps + database.duration_ps, first)
    return begin, end


def intersect_steps(
    databases: Sequence[StepDatabase], max_steps: int | None = None
) -> StepIntersection:
    """Find the steps that all hosts have, by the overlap of their times.

    Every host is aligned with the chief, the host with the shortest span: of all offsets
    between the two numberings, the one with the longest overlap is taken.

    Args:
        databases: One per host, in the order of the hosts.
        max_steps: Keep at most so many common steps; None keeps all.
    """
    first_step = np.full(len(databases), -1, np.int64)
    any_device = any(database.has_device for database in databases)
    workers = [h for h, d in enumerate(databases) if d.has_device or not any_device]
    if not workers:
        return StepIntersection(first_step, 0, 0, is_empty=False)
    spans = {h: step_spans(databases[h]) for h in workers}
    chief = min(workers, key=lambda h: (_host_duration(*spans[h]), h))
    chief_count = len(databases[chief])
    chief_begin = np.zeros(len(databases), np.int64)
    latest_begin, earliest_end = 0, chief_count
    for h in workers:
        if h == chief:
            first_step[h], chief_begin[h], count = 0, 0, chief_count
        else:
            offset = _best_offset(*spans[h], *spans[chief])
            first_step[h], chief_begin[h] = max(0, -offset), max(0, offset)
            remaining = len(databases[h]) - int(first_step[h])
            count = min(remaining, chief_count - int(chief_begin[h]))
        latest_begin = max(latest_begin, int(chief_begin[h]))
        earliest_end = min(earliest_end, int(chief_begin[h]) + count)
    if latest_begin > earliest_end:
        first_step[workers] = 0
        return StepIntersection(first_step, 0, 0, is_empty=True)
    first_step[workers] += latest_begin - chief_begin[workers]
    common = earliest_end - latest_begin
    kept = common if max_steps is None else min(common, max_steps)
    return StepIntersection(first_step, kept, common - kept, is_empty=False)


def combine_step_databases(
    databases: Sequence[StepDatabase],
    *,
    keep_incomplete: bool = False,
    max_steps: int | None = None,
) -> StepDatabase:
    """The steps that all hosts have, with the cores of all hosts side by side.

    Args:
        databases: One per host, with all its steps, in the order of the hosts: host h's cores
            get the ids ``1000 * h`` plus their own.
        keep_incomplete: Keep each host's first and last step too.
        max_steps: Keep at most so many common steps; None keeps all.
    """
    if not keep_incomplete:
        databases = [database.without_incomplete_steps() for database in databases]
    if not databases:
        return StepDatabase.empty()
    if len(databases) == 1:
        return databases[0]
    common = intersect_steps(databases, max_steps)
    workers = [h for h in range(len(databases)) if common.first_step[h] >= 0]
    parts = [
        _common_part(databases[h], h, int(common.first_step[h]), common.step_count) for h in workers
    ]
    joined = _side_by_side(parts, common.step_count)
    return replace(
        joined,
        precision_16bit_ps=sum(database.precision_16bit_ps for database in databases),
        precision_32bit_ps=sum(database.precision_32bit_ps for database in databases),
        steps_dropped=common.steps_dropped,
        is_intersection_empty=common.is_empty,
    )


def _host_duration(begin: Int64s, end: Int64s) -> int:
    used = end > begin
    if not used.any():
        return 0
    return int(end[used].max() - begin[used].min())


def _best_offset(begin: Int64s, end: Int64s, chief_begin: Int64s, chief_end: Int64s) -> int:
    """By how much the chief's index of a step exceeds the host's, for the longest overlap."""
    overlap = overlap_by_offset(begin, end, chief_begin, chief_end)
    if not overlap.any():
        return 0
    # Offsets 0, 1, .. come before -1, -2, ..: of equal ones the first in that order wins.
    hosts = len(begin)
    ordered = np.concatenate([overlap[hosts:], overlap[:hosts][::-1]])
    best = int(np.argmax(ordered))
    return best if best < len(chief_begin) else len(chief_begin) - 1 - best


def _common_part(database: StepDatabase, host: int, first: int, count: int) -> StepDatabase:
    """A host's share of the common steps, with the core ids of the whole job."""
    part = database.select(np.arange(first, first + count))
    shift = CORES_PER_HOST * host
    return replace(
        part,
        core_id=part.core_id + shift,
        host_index=np.full(len(part.core_id), host, np.int64),
        collectives=replace(part.collectives, core_id=part.collectives.core_id + shift),
    )


def _side_by_side(parts: Sequence[StepDatabase], step_count: int) -> StepDatabase:
    """The rows of all hosts, sorted by step and core, in one table of categories and names."""
    categories = list(dict.fromkeys(c for part in parts for c in part.categories))
    names = list(dict.fromkeys(["", *(name for part in parts for name in part.names)]))
    name_code = {name: code for code, name in enumerate(names)}
    row_step = _joined(part.row_step for part in parts)
    core_id = _joined(part.core_id for part in parts)
    order = np.lexsort((core_id, row_step))
    breakdown_ps = np.zeros((len(order), len(categories)), np.int64)
    in_breakdown = np.zeros((len(order), len(categories)), np.bool_)
    at = 0
    for part in parts:
        columns = [categories.index(c) for c in part.categories]
        rows = slice(at, at + len(part.row_step))
        breakdown_ps[rows, columns] = part.breakdown_ps
        in_breakdown[rows, columns] = part.in_breakdown
        at = rows.stop
    return StepDatabase(
        kind="tpu" if any(part.kind == "tpu" for part in parts) else "generic",
        has_device=any(part.has_device for part in parts),
        step_numbers=np.arange(step_count),
        row_step=row_step[order],
        core_id=core_id[order],
        host_index=_joined(part.host_index for part in parts)[order],
        begin_ps=_joined(part.begin_ps for part in parts)[order],
        duration_ps=_joined(part.duration_ps for part in parts)[order],
        name_code=_joined(
            np.array([name_code[name] for name in part.names], np.int64)[part.name_code]
            for part in parts
        )[order],
        names=tuple(names),
        categories=tuple(categories),
        breakdown_ps=breakdown_ps[order],
        in_breakdown=in_breakdown[order],
        collectives=Collectives.concatenate([part.collectives for part in parts]),
        # The reference leaves the copies of several hosts out.
        transfers=Transfers.zeros(step_count),
        work=_summed_work(parts),
    )


def _summed_work(parts: Sequence[StepDatabase]) -> StepWork | None:
    found = [part.work for part in parts if part.work is not None]
    return reduce(StepWork.plus, found) if found else None


def _joined(arrays: Iterable[NDArray[np.int64]]) -> Int64s:
    return np.concatenate([np.zeros(0, np.int64), *arrays])
