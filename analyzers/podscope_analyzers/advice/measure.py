"""Takes the metrics of the rules from the stats of a capture."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeGuard

import numpy as np

from podscope_analyzers.advice.metrics import (
    CaptureMetrics,
    DeviceMetrics,
    HostMetrics,
    Metrics,
    PaddedOp,
    PodMetrics,
    StepMetrics,
)
from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.host_facts import HostFacts, MemoryFact
from podscope_analyzers.host_work import compare_hosts
from podscope_analyzers.input_pipeline.host_ops import input_ops, input_time
from podscope_analyzers.matrix_ops import matrix_results, narrow_ratio
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.headline import eager_ratio, outside_compilation_ratio
from podscope_analyzers.op_metrics.rates import UNKNOWN_BOUND, Roofline
from podscope_analyzers.overview_steps import CATEGORY_IDS, complete_steps
from podscope_analyzers.own_input import input_evidence, input_share
from podscope_analyzers.result import Scope
from podscope_analyzers.sorted_values import median
from podscope_analyzers.step_categories import COLLECTIVES, Int64s, own_categories_ps
from podscope_analyzers.steps import StepDatabase
from podscope_analyzers.summary import flops_per_second

TPU_TILE: Final = (8, 128)
"""Rows and lanes of a TPU's vector registers: results are padded to whole tiles of them."""
GPU_TILE: Final = (8, 8)
"""What tensor cores want the last two dimensions of 16-bit operands to be multiples of."""

_SHUFFLES: Final = frozenset(
    (
        *("broadcast", "concatenate", "data formatting", "dynamic-slice", "dynamic-update-slice"),
        *("gather", "pad", "reverse", "scatter", "select", "select-and-scatter", "shuffle"),
        *("slice", "sort"),
    )
)
_ASYNC_DONE: Final = "async-done"
_BETWEEN_CORES: Final = ("send", "send-done", "recv", "recv-done", "megacore fusion")
# As XProf tells outliers: deviations from the median by the median deviation, which is that of
# hundredths of a step at least.
_OUTLIER: Final = 3.5
_NORMAL_QUARTILE: Final = 0.6745
_LEAST_DEVIATION: Final = 0.001
_LEAST_HOSTS: Final = 3


def measure(stats: CaptureStats, scope: Scope, groups: Iterable[str]) -> Metrics:
    """The metrics of a capture.

    Args:
        stats: Of its hosts.
        scope: Says which hosts are missing, and what the hosts' clocks show.
        groups: Which fields of ``Metrics`` are wanted; the others stay None.
    """
    taken: dict[str, Any] = {name: _GROUPS[name](stats) for name in groups if name in _GROUPS}
    if "pod" in groups:
        taken["pod"] = _pod(stats, scope)
    if "capture" in groups:
        taken["capture"] = CaptureMetrics(
            losses=tuple(stats.losses),
            missing_hosts=tuple(scope.missing_hosts),
            hosts=len(stats.hosts),
        )
    return Metrics(**taken)


def _steps(stats: CaptureStats) -> StepMetrics | None:
    whole = complete_steps(stats)
    steps = whole if len(whole) else stats.all_steps
    times = own_categories_ps(steps, stats.hosts)
    total = int(times.sum())
    if not total:
        return None
    ops = input_ops(stats.host_ops)
    time = input_time(ops, stats.host_ops, transfer_ratio=0.0)
    input_us = time.enqueue_us + time.demanded_file_read_us + time.advanced_file_read_us
    input_us += time.preprocessing_us + time.unclassified_us
    enqueue = time.enqueue_us / input_us if input_us > 0 else None
    return StepMetrics(
        has_device=steps.has_device,
        is_tpu=steps.kind == "tpu",
        step_ms=float(np.mean(steps.duration_ps)) / 1e9,
        steps_per_host=len(whole),
        shares={
            name: int(time_ps) / total
            for name, time_ps in zip(CATEGORY_IDS, times.sum(axis=0).tolist(), strict=True)
        },
        communication_ratio=_communication_ps(steps, times) / total,
        input_error_ratio=input_share(steps, times)[1],
        between_ratio=_between(steps),
        host_work_ratio=None if steps.has_device else _host_work(stats, steps),
        enqueue_ratio=enqueue,
        other_input_ratio=None if enqueue is None else 1.0 - enqueue,
        is_input_observed=enqueue is not None or bool(input_evidence(stats)),
    )


def _communication_ps(steps: StepDatabase, times: Int64s) -> int:
    found = int(times[:, COLLECTIVES].sum())
    if steps.kind == "tpu":
        found += int(steps.time_ps(*_BETWEEN_CORES).sum())
    return found


def _between(steps: StepDatabase) -> float | None:
    """Share of the time between the begins of consecutive steps in which no step ran."""
    if len(steps) < 2:
        return None
    host = steps.host_index.astype(np.int64)
    rows = np.flatnonzero(~steps.is_sparse_core)
    count = len(steps)
    # One row per step and host: the earliest begin and the latest end of its cores.
    key = host[rows] * count + steps.row_step[rows]
    keys, place = np.unique(key, return_inverse=True)
    begin = np.full(len(keys), np.iinfo(np.int64).max)
    end = np.full(len(keys), np.iinfo(np.int64).min)
    np.minimum.at(begin, place, steps.begin_ps[rows])
    np.maximum.at(end, place, steps.begin_ps[rows] + steps.duration_ps[rows])
    follows = np.flatnonzero(keys[1:] == keys[:-1] + 1)
    follows = follows[keys[follows] // count == keys[follows + 1] // count]
    period = begin[follows + 1] - begin[follows]
    gap = np.maximum(begin[follows + 1] - end[follows], 0)
    # A step that is missing between two others is no gap.
    is_next = (steps.step_numbers[1:] - steps.step_numbers[:-1] == 1)[keys[follows] % count]
    spent = int(period[is_next].sum())
    return int(gap[is_next].sum()) / spent if spent > 0 else None


def _host_work(stats: CaptureStats, steps: StepDatabase) -> float | None:
    compute = work = total = 0
    for host in stats.hosts:
        own = host.own_steps(steps)
        own = own[own >= 0]
        activity = host.activity
        compute += int(activity.compute_ps[own].sum())
        work += int(activity.host_ps[own].sum())
        total += sum(
            int(part[own].sum())
            for part in (
                activity.compute_ps,
                activity.waiting_ps,
                activity.input_ps,
                activity.host_ps,
            )
        )
    # Without a compiled operation the tracer cannot tell computing from other work.
    return work / total if compute > 0 and total > 0 else None


def _pod(stats: CaptureStats, scope: Scope) -> PodMetrics | None:
    if not stats.hosts:
        return None
    report = compare_hosts(stats, scope.clocks)
    waiting = report.waiting_ratio or 0.0
    return PodMetrics(len(stats.hosts), waiting, report.stragglers, report.slow_cores)


def _devices(stats: CaptureStats) -> DeviceMetrics | None:
    environment = stats.run_environment
    kind = environment.hardware_type
    if kind not in {"TPU", "GPU"}:
        return None
    ops = stats.device_ops
    found = DeviceMetrics(
        kind=kind,
        flops_ratio=_flops_ratio(stats),
        mxu_ratio=environment.mxu_utilization_ratio,
        hbm_ratio=environment.hbm_utilization_ratio,
        compute_16bit_ratio=narrow_ratio(ops, stats.all_steps),
        sparse_core_ratio=_sparse_core(stats.all_steps),
    )
    if not ops.top_count:
        return found
    categories = _self_time_by_category(ops)
    busy = sum(categories.values())
    found = _with_memory_bound(found, stats)
    found = _with_padding(found, ops, kind)
    found = _with_kernels(found, stats)
    return replace(
        found,
        outside_ratio=outside_compilation_ratio(
            ops,
            between_slices_ps=sum(host.slice_transfers.send_done_ps for host in stats.hosts),
        ),
        eager_ratio=eager_ratio(ops),
        shuffle_ratio=sum(categories.get(name, 0) for name in _SHUFFLES) / busy if busy else None,
        async_done_ratio=categories.get(_ASYNC_DONE, 0) / busy if busy else None,
        idle_ratio=ops.idle_ratio,
        slowdown_ratio=_slowdown(ops),
        memory_ratio=max(
            (
                used_ratio(fact)
                for host in stats.hosts
                for fact in host.facts.memory
                if fact.capacity_bytes
            ),
            default=None,
        ),
    )


def _flops_ratio(stats: CaptureStats) -> float | None:
    achieved = flops_per_second(stats.device_ops)
    peak = stats.perf_env.peak_tera_flops_per_second * 1e12
    return achieved / peak if achieved is not None and peak else None


def _sparse_core(steps: StepDatabase) -> float | None:
    rows = np.flatnonzero(steps.is_sparse_core)
    total = int(steps.duration_ps[rows].sum())
    if not total:
        return None
    return 1.0 - int(steps.time_ps("IDLE")[rows].sum()) / total


def _self_time_by_category(ops: OpDatabase) -> dict[str, int]:
    top = ops.top_count
    busy = np.flatnonzero(~ops.is_idle[:top])
    codes, place = np.unique(ops.top("category")[busy], return_inverse=True)
    spent = np.zeros(len(codes), np.int64)
    np.add.at(spent, place, ops.top("self_time_ps")[busy])
    return {
        ops.texts[code]: int(time_ps) for code, time_ps in zip(codes.tolist(), spent, strict=True)
    }


def _with_memory_bound(found: DeviceMetrics, stats: CaptureStats) -> DeviceMetrics:
    ops = stats.device_ops
    rates = Roofline(ops, stats.perf_env, stats.run_environment.device_type, own=True)
    self_ps = ops.top("self_time_ps").tolist()
    known = bound = 0
    longest, longest_ps = "", 0
    for row in np.flatnonzero(~ops.is_idle[: ops.top_count]).tolist():
        by = rates[row].bound_by
        if by == UNKNOWN_BOUND:
            continue
        known += self_ps[row]
        if by != "Compute":
            bound += self_ps[row]
            if self_ps[row] > longest_ps:
                longest, longest_ps = ops.text("name", row), self_ps[row]
    if not known:
        return found
    return replace(found, memory_bound_ratio=bound / known, memory_bound_op=longest)


def _with_padding(found: DeviceMetrics, ops: OpDatabase, kind: str) -> DeviceMetrics:
    tile = TPU_TILE if kind == "TPU" else GPU_TILE
    total = wasted = 0.0
    worst: PaddedOp | None = None
    worst_ps = 0.0
    self_ps = ops.top("self_time_ps").tolist()
    for row, element_type, dims, order in matrix_results(ops):
        waste = padding_ratio(dims, order, tile)
        total += self_ps[row]
        wasted += waste * self_ps[row]
        if waste * self_ps[row] > worst_ps:
            worst_ps = waste * self_ps[row]
            worst = PaddedOp(
                ops.text("name", row), f"{element_type}[{','.join(map(str, dims))}]", waste
            )
    if not total:
        return found
    return replace(found, padding_ratio=wasted / total, padded=worst)


def padding_ratio(dims: Sequence[int], order: Sequence[int], tile: tuple[int, int]) -> float:
    """Share of the padded array that is padding.

    Args:
        dims: Of the array.
        order: Its dimensions from the fastest to the slowest; empty means the last is fastest.
        tile: What the second fastest and the fastest are padded to multiples of.
    """
    # A dimension of one is laid out with its neighbour: there is nothing to pad to.
    places = [place for place in order if place < len(dims)] or list(range(len(dims)))[::-1]
    fastest = [dims[place] for place in places if dims[place] > 1][:2]
    kept = 1.0
    for size, unit in zip(fastest, reversed(tile), strict=False):
        kept *= size / (-(-size // unit) * unit)
    return 1.0 - kept


def _with_kernels(found: DeviceMetrics, stats: CaptureStats) -> DeviceMetrics:
    kernels = stats.kernels.kernels
    count = sum(kernel.occurrences for kernel in kernels)
    if not count:
        return found
    total_ns = sum(kernel.total_ns for kernel in kernels)
    return replace(found, kernels=count, kernel_us=total_ns / count / 1000)


def _slowdown(ops: OpDatabase) -> float | None:
    """How much longer the operations took than at the nominal clock."""
    normalized = ops.normalized_total_op_time_ps
    return ops.total_op_time_ps / normalized - 1.0 if normalized > 0 else None


def _hosts(stats: CaptureStats) -> HostMetrics | None:
    if not stats.hosts:
        return None
    facts = [(host.host, host.facts) for host in stats.hosts]
    found = HostMetrics(
        eager_ratio=eager_ratio(stats.host_ops) if len(stats.host_ops) else None,
        throttled=sum(fact.throttled for _, fact in facts),
        throttled_host=max(facts, key=lambda item: item[1].throttled)[0],
    )
    compiled = [
        (_compile_ratio(f), host, f)
        for host, f in facts
        if f.compilations is not None and is_share(_compile_ratio(f))
    ]
    if compiled:
        ratio, host, fact = max(compiled, key=lambda item: item[0])
        found = replace(
            found, compilations=fact.compilations, compile_ratio=ratio, compiling_host=host
        )
    functions = [one for _, fact in facts for one in fact.functions if one.calls > 1]
    if functions:
        found = replace(found, function=max(functions, key=lambda f: f.expensive_ratio))
    barriers = [(h, f.barrier_ratio) for h, f in facts if is_share(f.barrier_ratio)]
    if barriers:
        mean = sum(ratio for _, ratio in barriers) / len(barriers)
        found = replace(found, barrier_ratio=mean, barrier_outliers=outliers(barriers))
    prints = [(f.debug_print_ratio, h) for h, f in facts if is_share(f.debug_print_ratio)]
    if prints:
        ratio, host = max(prints)
        found = replace(found, debug_print_ratio=ratio, debug_print_host=host)
    return _with_memory(found, facts)


def is_share(ratio: float | None) -> TypeGuard[float]:
    """Whether it was measured: of more than all there is, the capture is damaged."""
    return ratio is not None and 0.0 <= ratio <= 1.0


def outliers(shares: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Hosts whose share of a step is far from the others', the farthest first.

    Args:
        shares: Of every host, 0 to 1; of fewer than three none stands out.
    """
    if len(shares) < _LEAST_HOSTS:
        return ()
    values = np.array([share for _, share in shares])
    distance = np.abs(values - median(values))
    scale = max(median(distance), _LEAST_DEVIATION)
    order = np.argsort(-distance, kind="stable")
    far = order[_NORMAL_QUARTILE * distance[order] / scale > _OUTLIER]
    return tuple(shares[index] for index in far.tolist())


def _compile_ratio(fact: HostFacts) -> float:
    return fact.compile_ps / fact.window_ps if fact.window_ps > 0 else 0.0


def _with_memory(found: HostMetrics, facts: Sequence[tuple[str, HostFacts]]) -> HostMetrics:
    known = [
        (fact, host) for host, facts_of in facts for fact in facts_of.memory if fact.capacity_bytes
    ]
    if not known:
        return found
    memory, memory_host = max(known, key=lambda item: used_ratio(item[0]))
    found = replace(found, memory=memory, memory_host=memory_host)
    fragmented = [
        item
        for item in known
        if item[0].fragmentation is not None and used_ratio(item[0]) >= _HALF_FULL
    ]
    if not fragmented:
        return found
    worst, host = max(fragmented, key=lambda item: item[0].fragmentation or 0.0)
    return replace(found, fragmented=worst, fragmented_host=host)


# Fragments of an allocator that is nearly empty take nothing from anybody.
_HALF_FULL: Final = 0.5


def used_ratio(fact: MemoryFact) -> float:
    """How full an allocator was at its fullest."""
    return fact.peak_bytes / fact.capacity_bytes if fact.capacity_bytes else 0.0


_GROUPS: Final[Mapping[str, Callable[[CaptureStats], object]]] = {
    "steps": _steps,
    "devices": _devices,
    "hosts": _hosts,
}
