"""Steps that all hosts have: found by time, since every host numbers its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels.steps import overlap_by_offset
from podscope_analyzers.steps.database import Int64s, StepDatabase


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
    spans = [step_spans(database) for database in databases]
    return intersect_spans(
        np.concatenate([np.zeros(0, np.int64), *(begin for begin, _ in spans)]),
        np.concatenate([np.zeros(0, np.int64), *(end for _, end in spans)]),
        np.array([len(database) for database in databases], np.int64),
        np.array([database.has_device for database in databases], np.bool_),
        max_steps,
    )


def intersect_spans(
    begin_ps: Int64s,
    end_ps: Int64s,
    counts: Int64s,
    has_device: NDArray[np.bool_],
    max_steps: int | None = None,
) -> StepIntersection:
    """As ``intersect_steps``, of spans as ``step_spans`` finds them.

    Args:
        begin_ps: Begin of every step of every host, one host after the other.
        end_ps: Likewise.
        counts: Steps of every host, shape (h,).
        has_device: Which hosts have a device, shape (h,).
        max_steps: Keep at most so many common steps; None keeps all.
    """
    first_step = np.full(len(counts), -1, np.int64)
    workers = np.flatnonzero(has_device) if has_device.any() else np.arange(len(counts))
    if not len(workers):
        return StepIntersection(first_step, 0, 0, is_empty=False)
    starts = np.cumsum(counts) - counts
    spans = [slice(at, at + n) for at, n in zip(starts.tolist(), counts.tolist(), strict=True)]
    chief = min(
        workers.tolist(), key=lambda h: _host_duration(begin_ps[spans[h]], end_ps[spans[h]])
    )
    chief_begin, chief_end = begin_ps[spans[chief]], end_ps[spans[chief]]
    offset = np.zeros(len(counts), np.int64)
    offset[workers] = [
        0
        if h == chief
        else _best_offset(begin_ps[spans[h]], end_ps[spans[h]], chief_begin, chief_end)
        for h in workers.tolist()
    ]
    offset, count = offset[workers], counts[workers]
    # Where in the chief's steps the host's first common one is, and how many they share.
    own_first, in_chief = np.maximum(0, -offset), np.maximum(0, offset)
    shared = np.minimum(count - own_first, counts[chief] - in_chief)
    latest_begin, earliest_end = int(in_chief.max()), int((in_chief + shared).min())
    if latest_begin > earliest_end:
        first_step[workers] = 0
        return StepIntersection(first_step, 0, 0, is_empty=True)
    first_step[workers] = own_first + latest_begin - in_chief
    common = earliest_end - latest_begin
    kept = common if max_steps is None else min(common, max_steps)
    return StepIntersection(first_step, kept, common - kept, is_empty=False)


def _host_duration(begin: Int64s, end: Int64s) -> int:
    used = end > begin
    if not used.any():
        return 0
    return int(end[used].max()) - int(begin[used].min())


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
