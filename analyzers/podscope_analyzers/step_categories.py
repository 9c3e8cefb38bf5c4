"""The nine categories of a step that people see, for every core of every host."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.capture_stats import HostRow
from podscope_analyzers.collectives import is_collective_name
from podscope_analyzers.steps import StepDatabase
from podscope_analyzers.steps.event_types import GENERIC_GROUPS

Int64s = npt.NDArray[np.int64]

CATEGORY_NAMES: Final = tuple(name for name, _ in GENERIC_GROUPS)
"""Names by id less one."""

COMPUTE, BETWEEN_DEVICES, COLLECTIVES, HOST_COMPUTE, LAUNCH, INPUT, OUTPUT, COMPILE, OTHER = range(
    9
)

_TPU_BETWEEN_DEVICES = frozenset(
    {"send", "send-done", "recv", "recv-done", "megacore fusion", "async-done"}
)
_TPU_COLLECTIVES = frozenset({"all-reduce", "all-reduce fusion", "all-to-all"})
_TPU_INPUT = frozenset(
    {
        "infeed",
        "host recv",
        "host recv-done",
        "sparsecorev0 infeed",
        "sparsecorev0 infeed wait",
        "sparsecorev0 infeed transform",
    }
)
_TPU_OUTPUT = frozenset({"outfeed", "host send", "host send-done", "sparsecorev0 outfeed"})
_HOST_RECV = ("host recv", "host recv-done")
_HOST_SEND = ("host send", "host send-done")


def reference_categories_ps(steps: StepDatabase) -> Int64s:
    """Time of every row in every category as the reference has it, shape (r, 9)."""
    if steps.kind == "tpu":
        return _tpu_categories(steps, [_reference_tpu_category(c) for c in steps.categories])
    return _generic_categories(steps)


def own_categories_ps(steps: StepDatabase, hosts: Sequence[HostRow]) -> Int64s:
    """Time of every row in every category as we have it, shape (r, 9).

    All kinds of collectives are collectives, those between slices too, whose operations are host
    transfers. What the threads of a host say is used: on CPUs waiting in collectives and for input
    is no computation, and GPUs that run nothing while the host waits for input wait for input too.
    """
    if steps.kind == "tpu":
        times = _tpu_categories(steps, [own_tpu_category(c) for c in steps.categories])
        _move_slice_transfers(times, steps, hosts)
        return times
    times = _generic_categories(steps)
    for host in hosts:
        if steps.has_device:
            rows, starved_ps = starved_times_ps(steps, host)
            moved = np.minimum(starved_ps, times[rows, OTHER])
            times[rows, OTHER] -= moved
            times[rows, INPUT] += moved
        else:
            _split_host_time(times, steps, host)
    return times


def starved_times_ps(steps: StepDatabase, host: HostRow) -> tuple[Int64s, Int64s]:
    """Rows of a host with devices, and how long each had nothing to run for want of input."""
    starved_ps = host.activity.starved_ps
    if not starved_ps.any():
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    own = host.own_steps(steps)
    rows = np.flatnonzero(own >= 0)
    return rows, starved_ps[own[rows]]


def own_tpu_category(category: str) -> int:
    """The category that an HLO category belongs to."""
    known = _reference_tpu_category(category)
    if known == COMPUTE and is_collective_name(category):
        return COLLECTIVES
    return known


def _reference_tpu_category(category: str) -> int:
    if category in _TPU_BETWEEN_DEVICES:
        return BETWEEN_DEVICES
    if category in _TPU_COLLECTIVES:
        return COLLECTIVES
    if category in _TPU_INPUT:
        return INPUT
    if category in _TPU_OUTPUT:
        return OUTPUT
    return OTHER if category == "IDLE" else COMPUTE


def _tpu_categories(steps: StepDatabase, columns: Sequence[int]) -> Int64s:
    times = np.zeros((len(steps.row_step), len(CATEGORY_NAMES)), np.int64)
    for column, category in enumerate(columns):
        if category != OTHER:
            times[:, category] += steps.breakdown_ps[:, column]
    times[:, OTHER] = np.maximum(steps.duration_ps - times.sum(axis=1), 0)
    return times


def _move_slice_transfers(times: Int64s, steps: StepDatabase, hosts: Sequence[HostRow]) -> None:
    """Take what hosts exchange between slices out of input and output.

    Steps know host transfers by their category alone, so that of a host whose programs also call
    back into it every step gives the same share of them.
    """
    if not any(host.slice_transfers.rows for host in hosts):
        return
    for source, category_names, moved_ps in (
        (INPUT, _HOST_RECV, [host.slice_transfers.recv_ps for host in hosts]),
        (OUTPUT, _HOST_SEND, [host.slice_transfers.send_ps for host in hosts]),
    ):
        ratio = np.zeros(1 + max(host.index for host in hosts))
        for host, known_ps in zip(hosts, moved_ps, strict=True):
            whole_ps = int(host.steps.time_ps(*category_names).sum()) if known_ps else 0
            ratio[host.index] = min(known_ps / whole_ps, 1.0) if whole_ps else 0.0
        moved = np.rint(steps.time_ps(*category_names) * ratio[steps.host_index]).astype(np.int64)
        times[:, source] -= moved
        times[:, COLLECTIVES] += moved


def _generic_categories(steps: StepDatabase) -> Int64s:
    groups = [steps.time_ps(*(kind.name.lower() for kind in kinds)) for _, kinds in GENERIC_GROUPS]
    return np.stack(groups, axis=1)


def _split_host_time(times: Int64s, steps: StepDatabase, host: HostRow) -> None:
    own = host.own_steps(steps)
    rows = np.flatnonzero(own >= 0)
    # A thread that waits in a collective does nothing else: that time is in no category yet, if
    # no other thread computes. Annotations of input are computation until they are looked at.
    for category, told, sources in (
        (COLLECTIVES, host.activity.waiting_ps, (OTHER, HOST_COMPUTE)),
        (INPUT, host.activity.input_ps, (HOST_COMPUTE, OTHER)),
    ):
        missing = np.maximum(told[own[rows]] - times[rows, category], 0)
        for source in sources:
            moved = np.minimum(missing, times[rows, source])
            times[rows, source] -= moved
            times[rows, category] += moved
            missing = missing - moved
