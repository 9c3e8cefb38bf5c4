"""GPU planes as the CUDA tracer writes them: one line per stream, kernels tied to launches."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from podscope_agent.simulator.encoding import (
    LineWriter,
    PlaneWriter,
    event_stat,
    varint,
    varint_field,
)
from podscope_agent.simulator.pod import Pod, Window
from podscope_agent.simulator.program import MODULE, Op, Program
from podscope_agent.simulator.slots import after_compute, compute_bounds
from podscope_agent.simulator.threads import US

_TIMESTAMP_NS: Final = 245_747
_COMPUTE_STREAM, _COPY_STREAM, _COLLECTIVE_STREAM = 13, 14, 22
_COPY_PS: Final = 5 * US
_NCCL: Final = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_GEMM: Final = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_"
    "warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
)
"""The vendor library's kernel, which readers know to use tensor cores."""
_PREDICATE_BYTES: Final = 1


@dataclass(frozen=True)
class Activity:
    """Something that runs on a GPU and is launched by the host.

    Attributes:
        name: Name of the kernel or copy.
        op: HLO instruction it belongs to, or None for a copy.
        stream: CUDA stream.
        start_ps: After the step's start.
        duration_ps: How long.
        copied_bytes: Size of a copy; 0 for a kernel.
    """

    name: str
    op: Op | None
    stream: int
    start_ps: int
    duration_ps: int
    copied_bytes: int


def activities(pod: Pod, host: int, core: int, step: int) -> Iterator[Activity]:
    """What one GPU does in one step, in the order in which the host launches it."""
    program, timing = pod.program, pod.timeline.timing(step)
    waited, launch = timing.input_ps[host], timing.launch_ps(host)
    if program.lead is not None:
        yield _kernel(program.lead, 0, program.lead.weight_ps)
    batch_bytes = 4 * program.size.tokens * program.size.microbatches
    yield Activity("MemcpyH2D", None, _COPY_STREAM, waited - _COPY_PS, _COPY_PS, batch_bytes)
    compute = timing.compute_ps[host][core]
    bounds = compute_bounds(program, pod.seed, step % pod.timeline.period + core, compute)
    for i, slot in enumerate(program.compute_slots):
        start, duration = launch + bounds[i], bounds[i + 1] - bounds[i]
        if slot.op is not None:
            yield _kernel(slot.op, start, duration)
        else:
            # The host reads the loop's condition after every iteration.
            yield Activity("MemcpyD2H", None, _COMPUTE_STREAM, start, duration, _PREDICATE_BYTES)
    for execution in after_compute(program, launch + compute, timing.collective_end_ps):
        yield _kernel(execution.op, execution.start_ps, execution.duration_ps)


def correlation_id(program: Program, step: int, cores: int, core: int, index: int) -> int:
    """Number that a launch and what it started share; unique on a host."""
    per_step = len(program.compute_slots) + len(program.collectives) + len(program.epilogue) + 2
    return 1 + (step * cores + core) * per_step + index


def _kernel(op: Op, start_ps: int, duration_ps: int) -> Activity:
    if op.kind == "all-reduce":
        return Activity(_NCCL, op, _COLLECTIVE_STREAM, start_ps, duration_ps, 0)
    name = _GEMM if op.kind == "matmul_add" else op.name.replace(".", "_")
    return Activity(name, op, _COMPUTE_STREAM, start_ps, duration_ps, 0)


def gpu_plane(pod: Pod, host: int, core: int, window: Window) -> PlaneWriter:
    """The plane of one GPU over a capture."""
    device, program = pod.kind, pod.program
    template, stats = _template(program)
    plane = template.fork(f"/device:GPU:{core}", core)
    lines = {
        _COMPUTE_STREAM: LineWriter(13, "Stream #13(Compute,MemcpyD2H)", _TIMESTAMP_NS),
        _COPY_STREAM: LineWriter(14, "Stream #14(MemcpyH2D)", _TIMESTAMP_NS),
        _COLLECTIVE_STREAM: LineWriter(22, "Stream #22(Compute)", _TIMESTAMP_NS),
    }
    launched = varint_field(1, plane.stat_id("correlation_id")) + b"\x18"
    to_profile_ps = (pod.started_at_ns - window.start_ns) * 1000
    for step in window.steps:
        start_ps = to_profile_ps + pod.timeline.start_ps(step)
        for index, activity in enumerate(activities(pod, host, core, step)):
            number = correlation_id(program, step, device.cores_per_host, core, index)
            head = plane.event_head(activity.name)
            details = event_stat(launched + varint(number))
            if activity.op is not None:
                details += stats[activity.op.name]
            else:
                details += event_stat(plane.ref_stat("memcpy_details", _copy_details(activity)))
            lines[activity.stream].add(
                head, start_ps + activity.start_ps, activity.duration_ps, details
            )
    for line in lines.values():
        plane.add_line(line)
    return plane


@lru_cache(maxsize=8)
def _template(program: Program) -> tuple[PlaneWriter, dict[str, bytes]]:
    """What all GPUs have in common: figures of the device, stats of the kernels."""
    device, plane = program.device, PlaneWriter("")
    plane.add_stat(plane.str_stat("device_vendor", "Nvidia"))
    plane.add_stat(plane.int_stat("clock_rate", device.clock_khz))
    plane.add_stat(plane.int_stat("core_count", device.compute_units))
    plane.add_stat(plane.uint_stat("memory_bandwidth", round(device.memory_gbps * 1e9)))
    plane.add_stat(plane.uint_stat("memory_size", device.memory_bytes))
    plane.add_stat(plane.int_stat("compute_cap_major", device.capability[0]))
    plane.add_stat(plane.int_stat("compute_cap_minor", device.capability[1]))
    return plane, {op.name: _op_stats(plane, program, op) for op in program.ops}


def _copy_details(activity: Activity) -> str:
    kinds = ("pinned", "device") if activity.name == "MemcpyH2D" else ("device", "pinned")
    return f"kind_src:{kinds[0]} kind_dst:{kinds[1]} size:{activity.copied_bytes} dest:0 async:1"


def _op_stats(plane: PlaneWriter, program: Program, op: Op) -> bytes:
    """Stats that every kernel of an op carries."""
    if op.kind in {"matmul", "matmul_add"}:
        shape = "regs:168 static_shared:0 dynamic_shared:196608"
        grid = max(1, op.outputs[0].elements // (128 * 256))
        launch, occupancy = f"grid:{grid},1,1 block:384,1,1", "18.75"
    elif op.kind == "all-reduce":
        shape, launch = "regs:96 static_shared:82992 dynamic_shared:0", "grid:24,1,1 block:544,1,1"
        occupancy = "26.5625"
    else:
        shape = "regs:32 static_shared:0 dynamic_shared:0"
        grid = max(1, sum(output.elements for output in op.outputs) // 1024)
        launch, occupancy = f"grid:{grid},1,1 block:256,1,1", "100"
    return plane.event_stats(
        kernel_details=f"{shape} {launch} occ_pct:{occupancy}",
        tf_op="XlaModule:",
        name=op.framework_name,
        hlo_op=op.name,
        hlo_module=MODULE,
        program_id=program.program_id,
    )
