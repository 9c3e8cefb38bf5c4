"""What a TPU's step went into, by the categories of its operations."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from podscope_analyzers.steps.database import IDLE, Int64s, StepDatabase
from podscope_analyzers.steps.event_types import EventType
from podscope_analyzers.steps.events import StepEvents

INFEED: Final = "infeed"
SCV0_INFEED: Final = "sparsecorev0 infeed"
_HOST_TRANSFERS: Final = ("host send", "host send-done", "host recv", "host recv-done")


@dataclass(frozen=True)
class TpuBreakdown:
    """Times of every row of a step database, picoseconds, all of shape (r,)."""

    infeed_ps: Int64s
    host_outfeed_ps: Int64s
    wait_for_scv0_ps: Int64s
    scv0_infeed_transform_ps: Int64s
    cross_replica_sum_ps: Int64s
    send_ps: Int64s
    recv_ps: Int64s
    host_send_ps: Int64s
    host_recv_ps: Int64s
    wait_for_megacore_fusion_peer_ps: Int64s
    high_flops_compute_ps: Int64s
    tc_idle_ps: Int64s
    tc_busy_ps: Int64s


def tpu_breakdown(database: StepDatabase) -> TpuBreakdown:
    """The times that people ask for, of every core in every step."""
    time = database.time_ps
    scv0_infeed, scv0_outfeed = time(SCV0_INFEED), time("sparsecorev0 outfeed")
    # The embedding core's infeed is its transformation as far as it also feeds out.
    transform = np.minimum(scv0_infeed, scv0_outfeed)
    wait = time("sparsecorev0 infeed wait") + scv0_infeed - transform
    infeed, outfeed = time(INFEED), time("outfeed")
    host_transfers = time(*_HOST_TRANSFERS)
    megacore = time("megacore fusion")
    busy = database.breakdown_ps.sum(axis=1) - time(IDLE)
    idle = database.duration_ps - busy
    off_duty = idle + infeed + outfeed + host_transfers + megacore
    return TpuBreakdown(
        infeed_ps=infeed,
        host_outfeed_ps=outfeed,
        wait_for_scv0_ps=wait,
        scv0_infeed_transform_ps=time("sparsecorev0 infeed transform") + transform,
        cross_replica_sum_ps=time("all-reduce", "all-reduce fusion", "all-to-all"),
        send_ps=time("send", "send-done"),
        recv_ps=time("recv", "recv-done"),
        host_send_ps=time("host send", "host send-done"),
        host_recv_ps=time("host recv", "host recv-done"),
        wait_for_megacore_fusion_peer_ps=megacore,
        high_flops_compute_ps=time(
            "convolution",
            "convolution base-dilated",
            "convolution window-dilated",
            "convolution fusion",
            "output fusion",
        ),
        tc_idle_ps=idle,
        tc_busy_ps=database.duration_ps - off_duty - wait,
    )


def step_idle_ps(database: StepDatabase) -> Int64s:
    """Idle time of every step as a whole, shape (s,), picoseconds.

    What the shortest TensorCore's step leaves when the least computation, the longest waits
    and infeed of any core, and the mean outfeed are taken off it.
    """
    idle = np.zeros(len(database), np.int64)
    rows = np.flatnonzero(~database.is_sparse_core)
    if not len(rows):
        return idle
    times = tpu_breakdown(database)
    duration = database.duration_ps
    waits = times.infeed_ps + times.host_outfeed_ps + times.host_send_ps + times.host_recv_ps
    compute = duration - (waits + times.tc_idle_ps + times.wait_for_scv0_ps)
    steps, first = np.unique(database.row_step[rows], return_index=True)
    count = np.diff(np.append(first, len(rows)))
    outfeed = np.add.reduceat(times.host_outfeed_ps[rows], first) // count
    used = (
        np.minimum.reduceat(compute[rows], first)
        + np.maximum.reduceat(times.wait_for_scv0_ps[rows], first)
        + np.maximum.reduceat(times.infeed_ps[rows], first)
        + outfeed
    )
    idle[steps] = np.maximum(0, np.minimum.reduceat(duration[rows], first) - used)
    return idle


def attribute_input(database: StepDatabase, host: StepEvents) -> StepDatabase:
    """Counts idle time as infeed as far as the host was busy with input during the step.

    Programs whose input comes as arguments have no infeed operation that could show it.

    Args:
        database: Of one TPU host without infeed operations.
        host: Steps on the host's threads.
    """
    inputs = np.isin(host.event_type, (EventType.HOST_WAIT_INPUT, EventType.HOST_TO_DEVICE))
    steps = host.event_step[inputs]
    at = np.minimum(np.searchsorted(database.step_numbers, steps), max(len(database) - 1, 0))
    if not len(database) or not len(steps):
        return database
    known = database.step_numbers[at] == steps
    total = np.zeros(len(database), np.int64)
    duration = (host.event_end_ps - host.event_begin_ps)[inputs]
    np.add.at(total, at[known], duration[known])
    total_ms, idle_ms = total / 1e9, step_idle_ps(database) / 1e9
    ratio = np.zeros(len(database))
    divisible = np.abs(idle_ms) >= 1e-10
    ratio[divisible] = np.minimum(1.0, total_ms[divisible] / idle_ms[divisible])
    idle = database.categories.index(IDLE)
    row_ratio = ratio[database.row_step]
    concerned = ~database.is_sparse_core & (total[database.row_step] > 0)
    idle_ps = database.breakdown_ps[:, idle]
    moved = np.where(concerned & (idle_ps > 0), (idle_ps * row_ratio).astype(np.int64), 0)
    if not moved.any():
        return database
    categories = database.categories
    breakdown_ps, in_breakdown = database.breakdown_ps.copy(), database.in_breakdown.copy()
    if INFEED not in categories:
        categories = (*categories, INFEED)
        rows = len(breakdown_ps)
        breakdown_ps = np.column_stack([breakdown_ps, np.zeros(rows, np.int64)])
        in_breakdown = np.column_stack([in_breakdown, np.zeros(rows, np.bool_)])
    infeed = categories.index(INFEED)
    breakdown_ps[:, idle] -= moved
    # The category is set, not added to: there is none without an infeed operation.
    breakdown_ps[moved > 0, infeed] = moved[moved > 0]
    in_breakdown[moved > 0, infeed] = True
    return replace(
        database, categories=categories, breakdown_ps=breakdown_ps, in_breakdown=in_breakdown
    )
