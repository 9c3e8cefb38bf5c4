"""How late every host arrives at the collectives in which the hosts meet.

A collective ends for all when the last has arrived, so that who arrives late waits less: the
difference of the durations is the difference of the arrivals, and no clock has to be trusted.
Where the capture measured the hosts' clocks, the begins themselves are compared too, and are
preferred as far as the clocks' error is small beside the lateness: they also hold where a
collective lets its members go one by one.

Collectives are matched by the id that the tracer gives them and, where an id repeats within a
step, by their order. Tracers of GPUs give none: there the id is the kind of the kernel, which
says less, so that such collectives only count where they behave as one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from podscope_analyzers.clocks import Shift
from podscope_analyzers.lateness import lateness
from podscope_analyzers.sorted_values import distinct, median
from podscope_analyzers.steps import StepDatabase
from podscope_analyzers.steps.database import CORES_PER_HOST, Int64s

Float64s = npt.NDArray[np.float64]
Basis = Literal["durations", "clocks"]

MAX_ERROR_RATIO: Final = 1 / 3
"""Error of the clocks, as a share of the lateness that they are to tell."""
MAX_CELLS: Final = 4_000_000
"""Hosts times meetings that are compared; of more meetings, one of every few."""

# Members of one collective end together: by what share of the largest lateness the distance of
# two hosts' ends may change from one to the next, where only the kind says that they are one.
_MAX_END_SCATTER: Final = 0.1
_MAD_TO_SIGMA: Final = 1.4826


@dataclass(frozen=True)
class Arrivals:
    """Arrivals of one host.

    Attributes:
        lateness_ps: Median over the steps of how much later than the median of the other hosts
            its last core arrives, at the step's collective where that is most.
        meetings: Collectives in which it met other hosts.
        last: At how many of them it was the last to arrive.
        basis: What says so.
        error_ps: The lateness is right to within this; 0 where it is of durations.
        is_by_kind: The collectives have no ids: kind and order match them.
    """

    lateness_ps: float
    meetings: int
    last: int
    basis: Basis = "durations"
    error_ps: int = 0
    is_by_kind: bool = False


@dataclass(frozen=True)
class Meetings:
    """Collectives of several hosts; matrices have shape (hosts, meetings), NaN where none.

    Attributes:
        hosts: Index of every host, shape (hosts,).
        step: Place of the step, ascending, shape (meetings,).
        id: Of the collective, likewise.
        occurrence: Which of that id in the step, from 0, likewise.
        waited_ps: Time in the collective, of the host's core that waits least.
        ended_ps: When the last core of the host leaves it, by the host's own times.
        late_ps: Lateness by durations, against the median of the other hosts.
        clock_late_ps: By begins on corrected clocks; of hosts whose clock is known.
        error_ps: Of the latter, shape (hosts,); NaN where the clock is unknown.
        is_by_kind: Whether kind and order matched them.
    """

    hosts: Int64s
    step: Int64s
    id: Int64s
    occurrence: Int64s
    waited_ps: Float64s
    ended_ps: Float64s
    late_ps: Float64s
    clock_late_ps: Float64s
    error_ps: Float64s
    is_by_kind: bool


def arrivals_of(met: Meetings) -> dict[int, Arrivals]:
    """Of every host how late it arrives, by its clock where that can be told."""
    begins = np.flatnonzero(np.diff(met.step, prepend=-1))
    found: dict[int, Arrivals] = {}
    by_duration = _typical(met.late_ps, begins)
    by_clock = _typical(met.clock_late_ps, begins)
    last, clock_last = _last(met.late_ps), _last(met.clock_late_ps)
    for row, host in enumerate(met.hosts.tolist()):
        count = int((~np.isnan(met.late_ps[row])).sum())
        if not count:
            continue
        late, error = float(by_clock[row]), float(met.error_ps[row])
        if is_told(late, error):
            count = int((~np.isnan(met.clock_late_ps[row])).sum())
            found[host] = Arrivals(
                late, count, int(clock_last[row]), "clocks", int(error), met.is_by_kind
            )
        else:
            found[host] = Arrivals(
                float(by_duration[row]), count, int(last[row]), is_by_kind=met.is_by_kind
            )
    return found


def is_told(late_ps: float, error_ps: float) -> bool:
    """Whether the clocks are exact enough to tell this lateness; False where there is none."""
    return error_ps <= MAX_ERROR_RATIO * abs(late_ps)


def _typical(late: Float64s, begins: npt.NDArray[np.intp]) -> Float64s:
    """Median over the steps of each step's largest lateness, shape (hosts,)."""
    most = np.fmax.reduceat(late, begins, axis=1)
    typical = np.full(len(most), np.nan)
    known = ~np.isnan(most).all(axis=1)
    typical[known] = np.nanmedian(most[known], axis=1)
    return typical


def _last(late: Float64s) -> Int64s:
    """At how many meetings every host was the last, shape (hosts,)."""
    most = np.fmax.reduce(late, axis=0)
    with np.errstate(invalid="ignore"):
        count: Int64s = ((late == most) & (late > 0)).sum(axis=1)
    return count


def find_meetings(steps: StepDatabase, shift_of: Mapping[int, Shift]) -> Meetings | None:
    """The collectives in which at least two hosts took part; None without any.

    Args:
        steps: Of all hosts.
        shift_of: By host index, for hosts whose clock is known.
    """
    told = steps.collectives
    known = np.flatnonzero((told.id != 0) & _of_tensor_cores(steps))
    if not len(known):
        return None
    step, identity, core = told.step[known], told.id[known], told.core_id[known]
    begin, end = told.begin_ps[known], told.end_ps[known]
    occurrence = occurrences(step, identity, core, begin)
    is_by_kind = steps.kind == "generic"
    if is_by_kind:
        even = _evenly_often(step, identity, core, occurrence)
        step, identity, core, begin, end, occurrence = (
            column[even] for column in (step, identity, core, begin, end, occurrence)
        )
        if not len(step):
            return None
    _, first, meeting = np.unique(
        _joined_codes(step, identity, occurrence), return_index=True, return_inverse=True
    )
    rows = np.stack([step, identity, occurrence])[:, first]
    hosts, place = np.unique(core // CORES_PER_HOST, return_inverse=True)
    stride = -(-len(hosts) * rows.shape[1] // MAX_CELLS)
    rows = rows[:, ::stride]
    # Before the matrices are made: all meetings of a large pod would not fit into memory.
    kept = np.flatnonzero(meeting % stride == 0)
    place, meeting, begin, end = place[kept], meeting[kept] // stride, begin[kept], end[kept]
    shape = (len(hosts), rows.shape[1])
    # Of every host the core that waits least: it is the one that arrived last.
    waited = _least(shape, place, meeting, (end - begin).astype(np.float64))
    arrived = -_least(shape, place, meeting, -begin.astype(np.float64))
    ended = -_least(shape, place, meeting, -end.astype(np.float64))
    met = (~np.isnan(waited)).sum(axis=0) >= 2
    if is_by_kind:
        met &= _end_together(rows[1], ended, waited)
    if not met.any():
        return None
    waited, arrived, ended = waited[:, met], arrived[:, met], ended[:, met]
    shift, error = _shift_columns(hosts, shift_of, steps, ended)
    return Meetings(
        hosts=hosts,
        step=rows[0, met],
        id=rows[1, met],
        occurrence=rows[2, met],
        waited_ps=waited,
        ended_ps=ended,
        late_ps=lateness(-waited),
        clock_late_ps=lateness(arrived + shift[:, None]),
        error_ps=error,
        is_by_kind=is_by_kind,
    )


def _of_tensor_cores(steps: StepDatabase) -> npt.NDArray[np.bool_]:
    """Which collectives are not of SparseCores."""
    told = steps.collectives
    if steps.kind == "generic":
        return np.ones(len(told.id), np.bool_)
    tensor = distinct(steps.core_id[~steps.is_sparse_core])
    found: npt.NDArray[np.bool_] = np.isin(told.core_id, tensor)
    return found


def occurrences(step: Int64s, identity: Int64s, core: Int64s, begin: Int64s) -> Int64s:
    """Which of the collectives of one id on one core in one step each is, from 0, by time."""
    key = _joined_codes(step, core, identity)
    order = np.lexsort((begin, key))
    key = key[order]
    starts = np.ones(len(order), np.bool_)
    starts[1:] = key[1:] != key[:-1]
    run_begin = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = np.arange(len(order)) - run_begin
    return occurrence


def _joined_codes(*columns: Int64s) -> Int64s:
    """One number per row that is equal where all columns are, in their order; shape (n,).

    Many times faster than ``np.unique`` of rows, which compares them as bytes.
    """
    joined = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        if len(joined) and int(joined.max()) >= np.iinfo(np.int64).max // max(len(values), 1):
            joined = np.asarray(np.unique(joined, return_inverse=True)[1], np.int64)
        joined = joined * len(values) + code
    return joined


def _evenly_often(
    step: Int64s, identity: Int64s, core: Int64s, occurrence: Int64s
) -> npt.NDArray[np.bool_]:
    """Which are of a kind that every core that has it runs equally often in the step.

    Otherwise the third of one core may be the fourth of another.
    """
    keys, place = np.unique(_joined_codes(step, identity), return_inverse=True)
    runs = occurrence == 0
    # Occurrences of a core end at its count less one: equal for all, or their sum is short.
    most = np.zeros(len(keys), np.int64)
    np.maximum.at(most, place, occurrence)
    cores = np.bincount(place[runs], minlength=len(keys))
    total = np.bincount(place, minlength=len(keys))
    even: npt.NDArray[np.bool_] = (total == cores * (most + 1))[place]
    return even


def _least(
    shape: tuple[int, int], host: npt.NDArray[np.intp], meeting: npt.NDArray[np.intp], of: Float64s
) -> Float64s:
    """The least value of every host at every meeting; NaN without any."""
    least = np.full(shape, np.inf)
    np.minimum.at(least, (host, meeting), of)
    least[np.isinf(least)] = np.nan
    return least


def _end_together(kind: Int64s, ended: Float64s, waited: Float64s) -> npt.NDArray[np.bool_]:
    """Which meetings are of a kind whose members end at a constant distance from each other.

    The distance is that of the clocks. Collectives of a host's own devices end whenever that host
    gets there, and are of the same kind.
    """
    together = np.zeros(len(kind), np.bool_)
    for one in distinct(kind).tolist():
        at = np.flatnonzero(kind == one)
        at = at[(~np.isnan(ended[:, at])).sum(axis=0) >= 2]
        if not len(at):
            continue
        distance = ended[:, at] - np.nanmedian(ended[:, at], axis=0)
        present = ~np.isnan(distance).all(axis=1)
        distance = distance[present] - np.nanmedian(distance[present], axis=1)[:, None]
        scatter = _MAD_TO_SIGMA * float(np.nanmedian(np.abs(distance)))
        apart = np.nanmax(waited[:, at], axis=0) - np.nanmin(waited[:, at], axis=0)
        together[at] = scatter <= _MAX_END_SCATTER * median(apart)
    return together


def _shift_columns(
    hosts: Int64s, shift_of: Mapping[int, Shift], steps: StepDatabase, ended: Float64s
) -> tuple[Float64s, Float64s]:
    """Shift of every host's times and error of its lateness, NaN where the clock is unknown."""
    known = [shift_of.get(host) for host in hosts.tolist()]
    shift = np.array([np.nan if one is None else float(one.shift_ps) for one in known])
    own = np.array([np.nan if one is None else float(one.error_ps) for one in known])
    if np.isnan(own).all():
        return shift, own
    # Ends of one collective lie within it: a host half a step away counts other steps, or its
    # clock was set during the capture.
    spans = ended + shift[:, None]
    with_clock = ~np.isnan(shift)
    told = (~np.isnan(spans)).any(axis=0)
    if told.any():
        away = spans[:, told] - np.nanmedian(spans[:, told], axis=0)
        placed = with_clock & (~np.isnan(away)).any(axis=1)
        off = np.zeros(len(hosts), np.bool_)
        typical_step = median(steps.duration_ps) if len(steps.duration_ps) else 0.0
        off[placed] = np.abs(np.nanmedian(away[placed], axis=1)) > typical_step / 2
        shift[off], own[off] = np.nan, np.nan
    if np.isnan(own).all():
        return shift, own
    # Two clocks are compared: the host's, and that of the typical other host.
    return shift, own + float(np.nanmedian(own))
