"""The steps of every host as the comparison of hosts needs them: own work, waiting, parts."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from podscope_analyzers.arrivals import Meetings, arrivals_of, find_meetings
from podscope_analyzers.capture_stats import CaptureStats, HostRow
from podscope_analyzers.clocks import HostClock, shifts
from podscope_analyzers.step_categories import (
    BETWEEN_DEVICES,
    COLLECTIVES,
    COMPUTE,
    INPUT,
    Int64s,
    own_categories_ps,
)
from podscope_analyzers.steps import StepDatabase
from podscope_analyzers.stragglers import HostWork, StragglerReport, find_stragglers

MISSING = -1


def compare_hosts(
    stats: CaptureStats, clocks: Mapping[str, HostClock] | None = None
) -> StragglerReport:
    """Find the hosts that the others wait for, over all steps that they have in common.

    Args:
        stats: Of the capture.
        clocks: Those that were measured, by host.
    """
    return find_stragglers(host_works(stats, host_meetings(stats, clocks)))


def host_meetings(
    stats: CaptureStats, clocks: Mapping[str, HostClock] | None = None
) -> Meetings | None:
    """The collectives in which the hosts met; None without any.

    Args:
        stats: Of the capture.
        clocks: Those that were measured, by host.
    """
    if not clocks:
        return find_meetings(stats.all_steps, {})
    found = shifts({host.host: host.facts.time_base_ns for host in stats.hosts}, clocks)
    known = {host.index: found[host.host] for host in stats.hosts if host.host in found}
    return find_meetings(stats.all_steps, known)


def host_works(stats: CaptureStats, met: Meetings | None = None) -> list[HostWork]:
    """The steps of every host that takes part in them, in name order.

    Args:
        stats: Of the capture.
        met: What ``host_meetings`` found; without it no arrivals are told.
    """
    steps = stats.all_steps
    times = own_categories_ps(steps, stats.hosts)
    own = own_work_ps(steps, times)
    order = np.argsort(steps.host_index, kind="stable")
    order = order[~steps.is_sparse_core[order]]
    arrivals = {} if met is None else arrivals_of(met)
    begins = np.searchsorted(steps.host_index[order], np.arange(len(stats.hosts) + 1))
    return [
        replace(
            _host_work(stats, times, own, host, order[begins[host.index] : begins[host.index + 1]]),
            arrivals=arrivals.get(host.index),
        )
        for host in stats.hosts
        if begins[host.index + 1] > begins[host.index]
    ]


def own_work_ps(steps: StepDatabase, times: Int64s) -> Int64s:
    """Time of every row less its waiting in collectives, shape (r,)."""
    own: Int64s = steps.duration_ps - times[:, COLLECTIVES]
    return own


def _host_work(
    stats: CaptureStats, times: Int64s, own_ps: Int64s, host: HostRow, rows: Int64s
) -> HostWork:
    """One host.

    Args:
        stats: Of the capture.
        times: Of every row, by category.
        own_ps: Own work of every row.
        host: Which one.
        rows: Its rows, those of SparseCores not among them.
    """
    steps = stats.all_steps
    busiest = _busiest_rows(steps, own_ps, rows)
    is_there = busiest >= 0
    picked = busiest[is_there]

    def column(values: Int64s, missing: int = 0) -> Int64s:
        whole = np.full(len(steps), missing, np.int64)
        whole[is_there] = values
        return whole

    waiting = times[picked, COLLECTIVES]
    has_activity = not steps.has_device or len(host.activity.phases)
    own = host.own_steps(steps)[picked] if has_activity else picked
    if steps.has_device:
        parts = {
            "compute": times[picked, COMPUTE],
            "input": times[picked, INPUT],
            "communication": times[picked, BETWEEN_DEVICES],
        }
    else:
        parts = {
            "compute": host.activity.compute_ps[own],
            "input": times[picked, INPUT],
            "communication": np.zeros(len(picked), np.int64),
        }
    total = steps.duration_ps[picked]
    parts["host"] = np.maximum(total - waiting - sum(parts.values()), 0)
    cores, core_own = _cores(stats, own_ps, rows)
    return HostWork(
        host=host.host,
        total_ps=column(total, MISSING),
        waiting_ps=column(waiting),
        parts_ps={name: column(values) for name, values in parts.items()},
        phases_ps={
            name: column(values[own])
            for name, values in zip(host.activity.phases, host.activity.phase_ps, strict=True)
        },
        cores=cores,
        core_own_ps=core_own,
    )


def _cores(
    stats: CaptureStats, own_ps: Int64s, rows: Int64s
) -> tuple[tuple[str, ...], Int64s | None]:
    """Names of a host's cores and the own work of each in every step, where it has several."""
    steps = stats.all_steps
    ids, place = np.unique(steps.core_id[rows], return_inverse=True)
    if len(ids) < 2:
        return (), None
    own = np.full((len(ids), len(steps)), MISSING, np.int64)
    own[place, steps.row_step[rows]] = own_ps[rows]
    names = [stats.cores[core].label if core in stats.cores else str(core) for core in ids.tolist()]
    return tuple(names), own


def _busiest_rows(steps: StepDatabase, own_ps: Int64s, rows: Int64s) -> Int64s:
    """Of every step, the one of these rows with the longest own work, shape (s,); -1 if none."""
    best = np.full(len(steps), -1, np.int64)
    # Ascending own work: the last assignment of a step is its longest.
    ordered = rows[np.argsort(own_ps[rows], kind="stable")]
    best[steps.row_step[ordered]] = ordered
    return best
