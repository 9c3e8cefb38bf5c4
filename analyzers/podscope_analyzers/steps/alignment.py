"""Steps of a pod in which some hosts recorded only a part of theirs.

The steps that all hosts have are then few or none, and nobody could be compared with anybody. So
the hosts that lack steps are left out when the common steps are found, and their own steps are
placed among these by their time.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.sorted_values import median
from podscope_analyzers.steps.database import Int64s
from podscope_analyzers.steps.intersection import intersect_spans

MIN_RECORDED: Final = 0.75
"""A host with fewer steps than this share of the usual, in as little of the time, lacks some."""


@dataclass(frozen=True)
class Alignment:
    """Which step of the pod every host's steps are.

    Attributes:
        place: Step of the pod of every step of every host, one host after the other; -1 for none.
        step_count: Steps of the pod.
        takes_part: Hosts with at least one of them, shape (h,).
        lacking: How many of them every host lacks, shape (h,); 0 for a host without devices
            where others have some.
    """

    place: Int64s
    step_count: int
    takes_part: NDArray[np.bool_]
    lacking: Int64s


def align_lacking(
    begin_ps: Int64s, end_ps: Int64s, counts: Int64s, has_device: NDArray[np.bool_]
) -> Alignment | None:
    """Steps of the pod where some hosts lack steps; None where none does.

    Args:
        begin_ps: Begin of every step of every host, one host after the other.
        end_ps: Likewise.
        counts: Steps of every host, shape (h,).
        has_device: Which hosts have a device, shape (h,).
    """
    workers = has_device if has_device.any() else np.ones(len(counts), np.bool_)
    covered = np.bincount(
        np.repeat(np.arange(len(counts)), counts), (end_ps - begin_ps) / 1.0, len(counts)
    )
    recorded = workers & (counts > 0)
    if not recorded.any():
        return None
    # By both: a host whose steps are longer has fewer, and one that is quick covers less.
    is_lacking = workers & (counts < MIN_RECORDED * median(counts[recorded]))
    is_lacking &= covered < MIN_RECORDED * median(covered[recorded])
    whole = workers & ~is_lacking
    if not is_lacking.any():
        return None
    found = intersect_spans(begin_ps, end_ps, counts, whole)
    if not found.step_count:
        return None
    starts = np.cumsum(counts) - counts
    place = np.full(int(counts.sum()), -1, np.int64)
    for host in np.flatnonzero(whole).tolist():
        first = starts[host] + found.first_step[host]
        place[first : first + found.step_count] = np.arange(found.step_count)
    guide = starts[whole][0] + found.first_step[whole][0]
    middle = (begin_ps + end_ps) // 2
    line = middle[guide : guide + found.step_count]
    for host in np.flatnonzero(is_lacking).tolist():
        own = slice(starts[host], starts[host] + counts[host])
        place[own] = _nearest(middle[own], line, int(end_ps[guide] - begin_ps[guide]))
    host_of = np.repeat(np.arange(len(counts)), counts)
    present = np.bincount(host_of[place >= 0], minlength=len(counts))
    return Alignment(
        place, found.step_count, present > 0, np.where(workers, found.step_count - present, 0)
    )


def _nearest(own: Int64s, line: Int64s, length_ps: int) -> Int64s:
    """The nearest time of a line, ascending, for each of some; -1 beyond half a step from all."""
    if not len(own):
        return np.zeros(0, np.int64)
    period = median(np.diff(line)) if len(line) > 1 else float(length_ps)
    after = np.clip(np.searchsorted(line, own), 0, len(line) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(own - line[before] <= np.abs(line[after] - own), before, after)
    nearest[np.abs(own - line[nearest]) > period / 2] = -1
    # Two steps cannot be the same one of the pod.
    _, first = np.unique(nearest, return_index=True)
    chosen = np.full(len(own), -1, np.int64)
    chosen[first] = nearest[first]
    return chosen
