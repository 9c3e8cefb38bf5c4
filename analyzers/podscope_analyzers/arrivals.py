"""How late every host arrives at the collectives in which the hosts meet.

A collective ends for all when the last has arrived, so that who arrives late waits less: the
difference of the durations is the difference of the arrivals, and no clock has to be trusted.
Collectives are matched by the id that the tracer gives them and, where an id repeats within a
step, by their order.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podscope_analyzers.steps import StepDatabase
from podscope_analyzers.steps.database import Int64s

Float64s = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Arrivals:
    """Arrivals of one host.

    Attributes:
        lateness_ps: Median over the steps of how much later than the median host its last core
            arrives, at the step's collective where that is most.
        meetings: Collectives in which it met other hosts.
        last: At how many of them it was the last to arrive.
    """

    lateness_ps: float
    meetings: int
    last: int


def host_arrivals(steps: StepDatabase) -> dict[int, Arrivals]:
    """Arrivals by host index; empty where no collective says which one it is."""
    told = steps.collectives
    tensor = ~steps.is_sparse_core
    cores, first = np.unique(steps.core_id[tensor], return_index=True)
    known = np.flatnonzero((told.id != 0) & np.isin(told.core_id, cores))
    if not len(known):
        return {}
    step, identity, core = told.step[known], told.id[known], told.core_id[known]
    begin, duration = told.begin_ps[known], told.end_ps[known] - told.begin_ps[known]
    occurrence = _occurrences(step, identity, core, begin)
    host = steps.host_index[tensor][first][np.searchsorted(cores, core)]
    meeting = _numbered(step, identity, occurrence)
    # Of every host the core that waits least: it is the one that arrived last.
    pair = _numbered(meeting, host)
    shortest = np.full(int(pair.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, pair, duration)
    first = np.unique(pair, return_index=True)[1]
    meeting, host, step = meeting[first], host[first], step[first]
    middle, least, count = _by_group(meeting, shortest)
    met = count[meeting] >= 2
    late = middle[meeting] - shortest
    is_last = met & (shortest == least[meeting])
    found = {}
    for index in np.unique(host[met]).tolist():
        own = np.flatnonzero(met & (host == index))
        steps_met, place = np.unique(step[own], return_inverse=True)
        most = np.full(len(steps_met), -np.inf)
        np.maximum.at(most, place, late[own])
        found[index] = Arrivals(float(np.median(most)), len(own), int(is_last[own].sum()))
    return found


def _occurrences(step: Int64s, identity: Int64s, core: Int64s, begin: Int64s) -> Int64s:
    """Which of the collectives of one id on one core in one step each is, from 0, by time."""
    order = np.lexsort((begin, identity, core, step))
    key = np.stack([step, core, identity])[:, order]
    starts = np.ones(len(order), np.bool_)
    starts[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
    run_begin = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = np.arange(len(order)) - run_begin
    return occurrence


def _numbered(*columns: Int64s) -> Int64s:
    """Equal rows numbered from 0, in ascending order."""
    _, place = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return np.asarray(place, np.int64).reshape(-1)


def _by_group(group: Int64s, values: Int64s) -> tuple[Float64s, Int64s, Int64s]:
    """Median, least and count of the values of every group, groups numbered from 0."""
    order = np.lexsort((values, group))
    ordered = values[order]
    begin = np.searchsorted(group[order], np.arange(int(group.max()) + 2))
    count = np.diff(begin)
    low, high = begin[:-1] + (count - 1) // 2, begin[:-1] + count // 2
    return (ordered[low] + ordered[high]) / 2.0, ordered[begin[:-1]], count
