"""The steps of every host as the comparison of hosts needs them: own work, waiting, parts."""

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats, HostRow
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


def compare_hosts(stats: CaptureStats) -> StragglerReport:
    """Find the hosts that the others wait for, over all steps that they have in common."""
    return find_stragglers(host_works(stats))


def host_works(stats: CaptureStats) -> list[HostWork]:
    """The steps of every host that takes part in them, in name order."""
    steps = stats.all_steps
    times = own_categories_ps(steps, stats.hosts)
    taking_part = set(np.unique(steps.host_index).tolist())
    return [_host_work(steps, times, host) for host in stats.hosts if host.index in taking_part]


def own_work_ps(steps: StepDatabase, times: Int64s) -> Int64s:
    """Time of every row less its waiting in collectives, shape (r,)."""
    own: Int64s = steps.duration_ps - times[:, COLLECTIVES]
    return own


def _host_work(steps: StepDatabase, times: Int64s, host: HostRow) -> HostWork:
    rows = _busiest_rows(steps, own_work_ps(steps, times), host.index)
    is_there = rows >= 0
    picked = rows[is_there]

    def column(values: Int64s, missing: int = 0) -> Int64s:
        whole = np.full(len(steps), missing, np.int64)
        whole[is_there] = values
        return whole

    waiting = times[picked, COLLECTIVES]
    own = host.own_steps(steps)[picked]
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
    return HostWork(
        host=host.host,
        total_ps=column(total, MISSING),
        waiting_ps=column(waiting),
        parts_ps={name: column(values) for name, values in parts.items()},
        phases_ps={
            name: column(values[own])
            for name, values in zip(host.activity.phases, host.activity.phase_ps, strict=True)
        },
    )


def _busiest_rows(steps: StepDatabase, own_ps: Int64s, host_index: int) -> Int64s:
    """Of every step, the host's core with the longest own work, shape (s,); -1 without any."""
    rows = np.flatnonzero((steps.host_index == host_index) & ~steps.is_sparse_core)
    best = np.full(len(steps), -1, np.int64)
    # Ascending own work: the last assignment of a step is its longest.
    ordered = rows[np.argsort(own_ps[rows], kind="stable")]
    best[steps.row_step[ordered]] = ordered
    return best
