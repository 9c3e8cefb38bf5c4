"""What was planted, as one JSON document.

Times are picoseconds. ``steps[i]`` describes every step whose number is ``i`` modulo the number
of entries, so the document holds for any capture of the pod. The guide explains each field.
"""

from collections.abc import Sequence
from typing import Any

from podscope_agent.simulator.counters import step_counters, unit_shares
from podscope_agent.simulator.input_pipeline import slowest_iterator
from podscope_agent.simulator.memory import LEAKING, peak_bytes
from podscope_agent.simulator.pod import Pod
from podscope_agent.simulator.program import Op
from podscope_agent.simulator.server import ServedHost
from podscope_agent.simulator.slices import transfers_truth
from podscope_agent.simulator.slots import compute_bounds
from podscope_agent.simulator.timeline import StepTiming
from podscope_agent.simulator.xspace import mxu_utilization_percent, record_host

TRUTH_VERSION = 1
_MAX_SUMMED_SLOTS = 20_000_000
"""Above this, summing the time of each category would take longer than the profiles themselves."""


def planted_truth(pod: Pod, hosts: Sequence[ServedHost]) -> dict[str, Any]:
    """The document for a pod and where its hosts are served (or were written)."""
    program, kind = pod.program, pod.kind
    trace = record_host(pod)
    return {
        "version": TRUTH_VERSION,
        "pod": {
            "device": pod.device,
            "hosts": pod.hosts,
            "cores_per_host": kind.cores_per_host,
            "steps": pod.steps,
            "seed": pod.seed,
            "events": pod.events,
            "slow_host": pod.slow_host,
            "slow_factor": pod.slow_factor if pod.slow_host is not None else None,
            "slow_part": pod.slow_part if pod.slow_host is not None else None,
            "noise": pod.noise,
            "input_bound": pod.input_bound,
            "host_bytes": pod.host_bytes,
            "clock_skew_ms": pod.clock_skew_ms,
            "input_stage": pod.input_stage,
            "leak_bytes": pod.leak_bytes,
            "counters": pod.counters,
            "slices": pod.slices,
            "started_at_ns": pod.started_at_ns,
            "peak_teraflops_per_second": kind.peak_tflops,
            "memory_gigabytes_per_second": kind.memory_gbps,
        },
        "program": {
            "module": program.module_name,
            "program_id": program.program_id,
            "layers": program.size.layers,
            "microbatches": program.size.microbatches,
            "tokens": program.size.tokens,
            "flops_per_core_step": program.flops_per_step,
            "bytes_per_core_step": program.bytes_per_step,
            "matrix_unit_utilization_percent": mxu_utilization_percent(pod),
            # Of captures of no fixed length nobody knows how much has leaked in the end.
            "peak_memory_bytes_per_core": None
            if pod.leak_bytes and not pod.steps
            else peak_bytes(program, pod.steps * pod.leak_bytes),
            "leak": {"framework_name": LEAKING, "bytes_per_step": pod.leak_bytes}
            if pod.leak_bytes
            else None,
            "slowest_iterator": slowest_iterator(pod.input_stage),
            "counters_per_core_step": step_counters(pod)
            if pod.counters and kind.family != "cpu"
            else {},
            "unit_utilization_ratio": unit_shares(pod) if pod.counters else {},
            "slice_transfers": transfers_truth(program),
            "ops": [_op_truth(pod, op) for op in program.ops],
        },
        "capture": {"events": trace.event_count, "events_by_plane": trace.events_by_plane},
        "hosts": [
            {
                "index": host.index,
                "hostname": host.hostname,
                "address": host.address,
                "fault": None if host.fault is None else host.fault.kind,
                "is_slow": host.index == pod.slow_host,
                "clock_offset_ns": pod.clock_offset_ns(host.index),
                "category_ps": _category_ps(pod, host.index),
            }
            for host in hosts
        ],
        "steps": [_step_truth(index, timing) for index, timing in enumerate(pod.timeline.steps)],
    }


def _op_truth(pod: Pod, op: Op) -> dict[str, Any]:
    return {
        "name": op.name,
        "category": _category(pod, op),
        "framework_name": op.framework_name,
        "executions_per_step": pod.program.executions[op.name],
        "flops": op.flops,
        "bytes_accessed": op.bytes_accessed,
    }


def _category_ps(pod: Pod, host: int) -> dict[str, int] | None:
    """Self time by HLO category, summed over the cores and steps of one capture."""
    program, period, kind = pod.program, pod.timeline.period, pod.kind
    slots = program.compute_slots
    if pod.hosts * kind.cores_per_host * period * len(slots) > _MAX_SUMMED_SLOTS:
        return None
    is_tpu = kind.family == "tpu"
    categories = [_category(pod, slot.op) if slot.op is not None else "while" for slot in slots]
    totals: dict[str, int] = {}

    def add(category: str, duration_ps: int) -> None:
        totals[category] = totals.get(category, 0) + duration_ps

    for step, timing in enumerate(pod.timeline.steps):
        for core, compute_ps in enumerate(timing.compute_ps[host]):
            bounds = compute_bounds(program, pod.seed, step + core, compute_ps)
            for i, category in enumerate(categories):
                add(category, bounds[i + 1] - bounds[i])
            arrival = timing.launch_ps(host) + compute_ps
            add("all-reduce", timing.collective_end_ps[-1] - arrival)
            for op in program.epilogue:
                add(_category(pod, op), op.weight_ps)
            if is_tpu:
                add("infeed", timing.input_ps[host])
            elif program.lead is not None:
                add("loop fusion", program.lead.weight_ps)
    if not is_tpu:
        # The loop is the host's there, and no kernel of its own stands for it.
        totals.pop("while", None)
    return totals


def _category(pod: Pod, op: Op) -> str:
    return op.tpu_category if pod.kind.family == "tpu" else op.hlo_category


def _step_truth(index: int, timing: StepTiming) -> dict[str, Any]:
    arrivals = [
        [timing.launch_ps(host) + compute for compute in cores]
        for host, cores in enumerate(timing.compute_ps)
    ]
    last_arrival = max(max(cores) for cores in arrivals)
    collective_end = timing.collective_end_ps[-1]
    return {
        "step": index,
        "step_time_ps": timing.end_ps,
        "period_ps": timing.period_ps,
        "collective_transfer_ps": collective_end - last_arrival,
        "update_ps": timing.update_end_ps - collective_end,
        "idle_ps": timing.end_ps - timing.update_end_ps,
        "hosts": [
            {
                "host": host,
                "input_wait_ps": timing.input_ps[host],
                "host_delay_ps": timing.delay_ps[host],
                "own_compute_ps": list(timing.compute_ps[host]),
                "collective_wait_ps": [last_arrival - arrival for arrival in arrivals[host]],
            }
            for host in range(len(arrivals))
        ],
    }
