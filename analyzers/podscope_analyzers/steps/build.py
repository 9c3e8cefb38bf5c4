"""The step database of one host, from its prepared planes."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.planes import (
    OP_LINES,
    TPU_PREFIX,
    is_gpu,
    is_sparse_core,
    is_tensor_core,
)
from podscope_analyzers.prepared import PreparedPlane, PreparedSpace
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.steps.database import (
    IDLE,
    SPARSE_CORE_OFFSET,
    Collectives,
    Int64s,
    StepDatabase,
    Transfers,
)
from podscope_analyzers.steps.device import device_step_events
from podscope_analyzers.steps.event_types import EVENT_TYPES, EventType
from podscope_analyzers.steps.events import (
    StepEvents,
    intersect,
    longest_markers,
    step_times,
    unite,
)
from podscope_analyzers.steps.exclusive import exclusive_times
from podscope_analyzers.steps.host import host_step_events
from podscope_analyzers.steps.timed_cores import Spans, with_timed_cores
from podscope_analyzers.steps.tpu import INFEED, SCV0_INFEED, attribute_input
from podscope_analyzers.steps.work import StepWork

_GENERIC_CORE = 1


def _never(_plane: PreparedPlane) -> Spans:
    """The activity of a core of which nothing more is known than its steps."""
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def host_step_database(
    prepared: PreparedSpace,
    events_of: Callable[[PreparedPlane], StepEvents] = device_step_events,
    active_of: Callable[[PreparedPlane], Spans] = _never,
) -> StepDatabase:
    """All steps of one host: of its TPUs, else its GPUs, else its own threads.

    Args:
        prepared: The host's planes with their events grouped.
        events_of: Gives what is known of a device's steps.
        active_of: Gives starts and ends of the disjoint spans in which a SparseCore worked;
            asked of those whose operations are of no step.
    """
    host = prepared.host_plane
    if prepared.has_tpu:
        events, active = StepEvents(), {}
        for plane in prepared.planes:
            if not plane.name.startswith(TPU_PREFIX):
                continue
            found = events_of(plane)
            if len(found.steps()):
                events = intersect(events, found)
            elif is_sparse_core(plane.name):
                active[plane.id + SPARSE_CORE_OFFSET] = active_of(plane)
        database = with_timed_cores(tpu_step_database(events), active)
        if host is not None and not any(map(_has_infeed, prepared.planes)):
            database = attribute_input(database, host_step_events(host))
        return database
    if prepared.has_gpu:
        parts = [events_of(plane) for plane in prepared.planes if is_gpu(plane.name)]
        return generic_step_database(unite(parts), has_device=True)
    events = host_step_events(host, for_times=True) if host is not None else StepEvents()
    return generic_step_database(events, has_device=False)


def generic_step_database(events: StepEvents, *, has_device: bool) -> StepDatabase:
    """Steps of a CPU or GPU host.

    Steps without duration, without computation on the device, or without events on a host
    that has none, are left out.

    Args:
        events: Of the host.
        has_device: Whether the host has GPUs.
    """
    steps = events.steps()
    begin, duration = step_times(events, steps)
    times = exclusive_times(events, steps, begin, duration)
    time_ps, present = times.time_ps, times.present
    rest = duration - time_ps.sum(axis=1)
    unknown = EventType.UNKNOWN_TIME
    time_ps[:, unknown] += np.maximum(rest, 0)
    if has_device:
        compute = (EventType.DEVICE_COMPUTE_32, EventType.DEVICE_COMPUTE_16)
        formed = present[:, compute].any(axis=1)
    else:
        formed = present[:, EventType.HOST_COMPUTE].copy()
    present[:, unknown] |= rest > 0
    kept = np.flatnonzero(formed & (duration > 0))
    count = len(kept)
    names = ["", *dict.fromkeys(events.names.values())]
    code = {name: at for at, name in enumerate(names)}
    return StepDatabase(
        kind="generic",
        has_device=has_device,
        step_numbers=steps[kept],
        row_step=np.arange(count),
        core_id=np.full(count, _GENERIC_CORE, np.int64),
        host_index=np.zeros(count, np.int64),
        begin_ps=begin[kept],
        duration_ps=duration[kept],
        name_code=np.array(
            [code[events.names.get(int(step), "")] for step in steps[kept]], np.int64
        ),
        names=tuple(names),
        categories=EVENT_TYPES,
        breakdown_ps=time_ps[kept],
        in_breakdown=present[kept],
        collectives=_of_steps(events.collectives, steps[kept]),
        transfers=_transfers(events, steps[kept]),
        precision_16bit_ps=int(times.total_ps[EventType.DEVICE_COMPUTE_16]),
        precision_32bit_ps=int(times.total_ps[EventType.DEVICE_COMPUTE_32]),
    )


def tpu_step_database(events: StepEvents) -> StepDatabase:
    """Steps of a TPU host: one row per core, with the time of each category and ``IDLE``.

    TensorCores share the longest marker of the step's TensorCores; a SparseCore keeps its own.

    Args:
        events: Of the host's devices.
    """
    steps = events.steps()
    sparse_marker = events.marker_core >= SPARSE_CORE_OFFSET
    begin, duration = longest_markers(events, steps, ~sparse_marker)
    any_begin, any_duration = longest_markers(events, steps, np.ones_like(sparse_marker))
    whole = np.where(duration > 0, duration, any_duration)
    begin = np.where(duration > 0, begin, any_begin)
    # One row per step and core; steps without a span have none.
    pairs, row_of = np.unique(
        np.stack([np.searchsorted(steps, events.core_step), events.core_id], axis=1),
        axis=0,
        return_inverse=True,
    )
    row_of = row_of.reshape(-1)
    row_step, core_id = pairs[:, 0], pairs[:, 1]
    categories = (IDLE, *(c for c in events.categories if c != IDLE))
    column = {c: at for at, c in enumerate(categories)}
    breakdown_ps = np.zeros((len(pairs), len(categories)), np.int64)
    in_breakdown = np.zeros((len(pairs), len(categories)), np.bool_)
    known = np.flatnonzero(events.core_category >= 0)
    at_column = np.array([column[c] for c in events.categories], np.int64)
    if len(known):
        where = (row_of[known], at_column[events.core_category[known]])
        np.add.at(breakdown_ps, where, events.core_self_ps[known])
        in_breakdown[where] = True
    row_begin, row_duration = begin[row_step], whole[row_step]
    for core in distinct(core_id[core_id >= SPARSE_CORE_OFFSET]):
        own_begin, own_duration = longest_markers(events, steps, events.marker_core == core)
        rows = core_id == core
        row_begin = np.where(rows, own_begin[row_step], row_begin)
        row_duration = np.where(rows, own_duration[row_step], row_duration)
    idle = np.maximum(0, row_duration - breakdown_ps.sum(axis=1))
    breakdown_ps[:, 0] += idle
    in_breakdown[:, 0] = True
    kept = np.flatnonzero(whole[row_step] > 0)
    names = ["", *dict.fromkeys(events.names.values())]
    code = {name: at for at, name in enumerate(names)}
    name_of = np.array([code[events.names.get(int(s), "")] for s in steps], np.int64)
    return StepDatabase(
        kind="tpu",
        has_device=True,
        step_numbers=steps,
        row_step=row_step[kept].astype(np.int64),
        core_id=core_id[kept],
        host_index=np.zeros(len(kept), np.int64),
        begin_ps=row_begin[kept],
        duration_ps=row_duration[kept],
        name_code=name_of[row_step[kept]],
        names=tuple(names),
        categories=categories,
        breakdown_ps=breakdown_ps[kept],
        in_breakdown=in_breakdown[kept],
        collectives=_of_steps(events.collectives, steps),
        transfers=_transfers(events, steps),
        work=_work(events, steps, whole > 0, row_step[kept], core_id[kept], breakdown_ps[kept]),
    )


def _work(
    events: StepEvents,
    steps: Int64s,
    has_time: NDArray[np.bool_],
    row_step: Int64s,
    core_id: Int64s,
    breakdown_ps: Int64s,
) -> StepWork:
    """Work of all TensorCores by step; none in steps that have no time."""
    work = StepWork.zeros(len(steps))
    if not len(steps):
        return work
    at = np.searchsorted(steps, events.work_step)
    known = has_time[at]
    np.add.at(work.values, at[known], events.work[known])
    np.add.at(work.feeds_time_ps, at[known], events.work_feeds_ps[known])
    # A row's categories, idle time among them, are all of its time.
    tensor = core_id < SPARSE_CORE_OFFSET
    np.add.at(work.time_ps, row_step[tensor], breakdown_ps[tensor].sum(axis=1))
    return work


def _of_steps(collectives: Collectives, steps: Int64s) -> Collectives:
    """Those of some steps, by the steps' indices."""
    if not len(steps):
        return Collectives()
    at = np.minimum(np.searchsorted(steps, collectives.step), len(steps) - 1)
    rows = np.flatnonzero(steps[at] == collectives.step)
    return collectives.take(rows, at[rows].astype(np.int64))


def _transfers(events: StepEvents, steps: Int64s) -> Transfers:
    transfers = Transfers.zeros(len(steps))
    if not len(steps):
        return transfers
    at = np.minimum(np.searchsorted(steps, events.transfer_step), len(steps) - 1)
    rows = np.flatnonzero(steps[at] == events.transfer_step)
    where = (at[rows], events.transfer_kind[rows])
    np.add.at(transfers.count, where, 1)
    np.add.at(transfers.time_us, where, events.transfer_duration_ps[rows] / 1e6)
    np.add.at(transfers.size_bytes, where, events.transfer_bytes[rows])
    return transfers


def _has_infeed(plane: PreparedPlane) -> bool:
    """Whether a TensorCore ran operations that wait for the host's infeed."""
    if not is_tensor_core(plane.name):
        return False
    table = plane.event_metadata
    if "hlo_category" not in plane.stat_names:
        return False
    waits = np.array(
        [table.stats(row).get("hlo_category") in (INFEED, SCV0_INFEED) for row in range(len(table))]
    )
    if not waits.any():
        return False
    for line in plane.lines:
        if not line.is_derived and line.name in OP_LINES and line.event_count:
            survey = line.survey(frozenset())
            if survey is not None:
                if waits[survey.rows].any():
                    return True
                continue
            if waits[line.columns().metadata].any():
                return True
            line.release()
    return False
