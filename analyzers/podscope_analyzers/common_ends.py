"""How far hosts' clocks are still apart when they have been corrected, by ends that they share.

All members of a collective leave it together, when the last of them has arrived: what two hosts'
clocks show then differs by the clocks alone. Who arrives late, and why, does not move its end, so
that no slow host looks like a wrong clock; and nothing here is ever added to a host's times, it is
only told. Of the collectives the one is taken whose ends keep their distance best from one to the
next, among those in which most hosts met: it is the one whose members do leave together. A group
of hosts that meets only within itself, and is later than another by always the same, cannot be
told from a clock.

Steps end together where nothing else is known, but only nearly: a host that is slower *after* the
last exchange looks as if its clock were ahead. The basis says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from podscope_analyzers.arrivals import Float64s, Meetings, find_meetings
from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.clocks import HostClock, shifts
from podscope_analyzers.sorted_values import median
from podscope_analyzers.steps import StepDatabase

Basis = Literal["collective_ends", "step_ends"]

MIN_ENDS: Final = 3
"""Of fewer ends nothing tells how well they keep their distance."""

_MAX_KINDS: Final = 32
_MAD_TO_SIGMA: Final = 1.4826


@dataclass(frozen=True)
class CommonEnds:
    """What the hosts' clocks show at ends that they share.

    Attributes:
        basis: Whose ends.
        difference_ns: By host, its clock less that of the median host, corrected as far as it was
            measured.
        ends: How many were compared.
        error_ns: The distance of two hosts is right to within this, as their ends keep it.
        unplaced: Hosts more than half a step away, whose steps may be others.
    """

    basis: Basis
    difference_ns: Mapping[str, int]
    ends: int
    error_ns: int
    unplaced: tuple[str, ...] = ()

    @property
    def residual_ns(self) -> int:
        """Between the host that is most ahead and the one that is most behind."""
        return max(self.difference_ns.values()) - min(self.difference_ns.values())

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON-ready values."""
        return {
            "basis": self.basis,
            "difference_ns": dict(self.difference_ns),
            "end_count": self.ends,
            "error_ns": self.error_ns,
            "unplaced": list(self.unplaced),
        }


def find_common_ends(
    stats: CaptureStats, clocks: Mapping[str, HostClock] | None = None
) -> CommonEnds | None:
    """The distances of the hosts' clocks; None where fewer than two hosts share ends.

    Args:
        stats: Of the capture.
        clocks: Those that were measured, by host; the others are taken as they are.
    """
    bases = {host.host: host.facts.time_base_ns for host in stats.hosts}
    every = {host: HostClock(0, 0) for host in bases} | dict(clocks or {})
    placed = shifts(bases, every)
    if len(placed) < 2:
        return None
    shift_ps = np.array(
        [placed[h.host].shift_ps if h.host in placed else np.nan for h in stats.hosts]
    )
    steps = stats.all_steps
    names = [host.host for host in stats.hosts]
    met = find_meetings(steps, {})
    if met is not None:
        ended = met.ended_ps + shift_ps[met.hosts][:, None]
        hosts = [names[index] for index in met.hosts.tolist()]
        found = _steadiest(steps, hosts, ended, met.id if met.is_by_kind else _places(met, ended))
        if found is not None:
            return found
    ended = _step_ends(steps, len(names)) + shift_ps[:, None]
    return _compare("step_ends", steps, names, ended)


def _steadiest(
    steps: StepDatabase, hosts: list[str], ended: Float64s, kind: npt.NDArray[np.int64]
) -> CommonEnds | None:
    _, place, count = np.unique(kind, return_inverse=True, return_counts=True)
    often = np.argsort(-count, kind="stable")[:_MAX_KINDS]
    found = [
        _compare("collective_ends", steps, hosts, ended[:, place == one]) for one in often.tolist()
    ]
    known = [one for one in found if one is not None]
    return min(known, key=lambda one: (-len(one.difference_ns), one.error_ns), default=None)


def _places(met: Meetings, ended: Float64s) -> npt.NDArray[np.int64]:
    """Which of its step each collective is: steps repeat what they do, with ids of their own."""
    order = np.lexsort((np.nanmedian(ended, axis=0), met.step))
    first = np.searchsorted(met.step[order], met.step[order])
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order)) - first
    return places


def _compare(
    basis: Basis, steps: StepDatabase, hosts: list[str], ended: Float64s
) -> CommonEnds | None:
    """Compare ends of shape (hosts, ends), NaN where a host does not share one."""
    away = _away(ended)
    middle = _medians(away)
    typical_step = median(steps.duration_ps) if len(steps.duration_ps) else 0.0
    far = np.abs(middle) > typical_step / 2
    if far.any():
        # Without them the median is of hosts whose steps are the same.
        away = _away(np.where(far[:, None], np.nan, ended))
        middle = _medians(away)
    rows = np.flatnonzero((~np.isnan(away)).sum(axis=1) >= MIN_ENDS)
    if len(rows) < 2:
        return None
    scatter = _MAD_TO_SIGMA * _medians(np.abs(away[rows] - middle[rows, None]))
    return CommonEnds(
        basis,
        {hosts[row]: round(middle[row] / 1000) for row in rows.tolist()},
        int((~np.isnan(away[rows])).any(axis=0).sum()),
        # Two hosts are compared, each with its own scatter.
        round(2 * float(scatter.max()) / 1000),
        tuple(hosts[row] for row in np.flatnonzero(far).tolist()),
    )


def _away(ended: Float64s) -> Float64s:
    """Ends less the median host's, of those that two hosts share; NaN elsewhere."""
    shared = ended[:, (~np.isnan(ended)).sum(axis=0) >= 2]
    if not shared.shape[1]:
        return shared
    away: Float64s = shared - np.nanmedian(shared, axis=0)
    return away


def _medians(rows: Float64s) -> Float64s:
    """Median of every row; NaN of those without any value."""
    medians = np.full(len(rows), np.nan)
    known = (~np.isnan(rows)).any(axis=1)
    if known.any():
        medians[known] = np.nanmedian(rows[known], axis=1)
    return medians


def _step_ends(steps: StepDatabase, hosts: int) -> Float64s:
    """When the last core of every host ends every step, shape (hosts, steps); NaN without."""
    ended = np.full((hosts, len(steps)), -np.inf)
    rows = np.flatnonzero(~steps.is_sparse_core)
    end_ps = (steps.begin_ps + steps.duration_ps)[rows].astype(np.float64)
    np.maximum.at(ended, (steps.host_index[rows], steps.row_step[rows]), end_ps)
    ended[np.isinf(ended)] = np.nan
    return ended
