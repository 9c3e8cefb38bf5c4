"""TensorCore planes as the TPU's tracer writes them."""

from functools import lru_cache

from podscope_agent.simulator.encoding import (
    LineWriter,
    PlaneWriter,
    bytes_field,
    event_stat,
    varint,
    varint_field,
)
from podscope_agent.simulator.hlo import op_text, shape_text
from podscope_agent.simulator.pod import Pod, Window
from podscope_agent.simulator.program import SOURCE_FILE, Op, Program
from podscope_agent.simulator.slices import collective_description
from podscope_agent.simulator.slots import after_compute, compute_bounds

RUN_ID_LIMIT = 1 << 27
_HBM = 1
_READ, _WRITE = 1, 2
_DISPATCH_PS = 1_000_000


def plane_id(core: int) -> int:
    """Id of a TensorCore's plane."""
    return 2 + 8 * core


def run_id(step: int) -> int:
    """Id of the execution that runs a step, as the runtime numbers them."""
    return (step + 1) % RUN_ID_LIMIT


def tensor_core_plane(pod: Pod, host: int, core: int, window: Window) -> PlaneWriter:
    """The plane of one TensorCore over a capture."""
    template, heads = _template(pod.program)
    plane = template.fork(f"/device:TPU:{core}", plane_id(core))
    chip = host * pod.kind.cores_per_host + core
    details = (
        bytes_field(1, pod.hostname(host).encode())
        + varint_field(2, core)
        + varint_field(4, core)
        + varint_field(5, chip)
        + varint_field(6, chip)
    )
    plane.add_stat(plane.bytes_stat("core_details", details))
    _Recorder(pod, host, core, window, plane, heads).record()
    return plane


@lru_cache(maxsize=8)
def _template(program: Program) -> tuple[PlaneWriter, dict[str, bytes]]:
    """What all TensorCores have in common: figures of the device, metadata of the ops."""
    device, plane = program.device, PlaneWriter("")
    plane.add_stat(plane.str_stat("device_type_string", device.type_string))
    for name, value in (
        ("peak_teraflops_per_second", device.peak_tflops),
        ("peak_hbm_bw_gigabytes_per_second", device.memory_gbps),
        ("peak_cmem_rd_bw_gigabytes_per_second", 0.0),
        ("peak_cmem_wr_bw_gigabytes_per_second", 0.0),
        ("peak_vmem_rd_bw_gigabytes_per_second", device.vmem_read_gbps),
        ("peak_vmem_wr_bw_gigabytes_per_second", device.vmem_write_gbps),
        ("peak_sram_rd_bw_gigabytes_per_second", device.vmem_read_gbps),
        ("peak_sram_wr_bw_gigabytes_per_second", device.vmem_write_gbps),
    ):
        plane.add_stat(plane.double_stat(name, value))
    plane.add_stat(plane.int_stat("has_megacore", 0))
    plane.add_stat(plane.int_stat("has_merged_vmem", 1))
    return plane, {op.name: _op_head(plane, program, op) for op in program.ops}


def _op_head(plane: PlaneWriter, program: Program, op: Op) -> bytes:
    breakdown = b"".join(
        bytes_field(1, varint_field(1, kind) + varint_field(2, _HBM) + varint_field(3, size))
        for kind, size in ((_READ, op.bytes_read), (_WRITE, op.bytes_written))
        if size
    )
    stack = f"{SOURCE_FILE}:{op.source_line}:9\n{SOURCE_FILE}:158:5\n{SOURCE_FILE}:201:5\n"
    stats = [
        plane.str_stat("hlo_category", op.tpu_category),
        plane.uint_stat("program_id", program.program_id),
        plane.uint_stat("symbol_id", op.symbol_id),
        plane.int_stat("flops", op.flops),
        plane.int_stat("model_flops", op.flops),
        plane.int_stat("bytes_accessed", op.bytes_accessed),
        plane.bytes_stat("memory_access_breakdown", breakdown),
        plane.str_stat("source", f"{SOURCE_FILE}:{op.source_line}"),
        plane.str_stat("source_stack", stack),
        plane.int_stat("raw_bytes_accessed", op.bytes_accessed),
        plane.str_stat("tf_op", f"{op.framework_name}:"),
    ]
    if op.kind == "send":
        description = collective_description(program.slices)
        stats.append(plane.bytes_stat("dcn_collective_info", description))
    if op.outputs:
        shape = shape_text(program, op.outputs[0])
        stats.append(plane.str_stat("shape_with_layout", shape))
    return plane.event_head(op_text(program, op), op.name, stats)


class _Recorder:
    def __init__(
        self,
        pod: Pod,
        host: int,
        core: int,
        window: Window,
        plane: PlaneWriter,
        heads: dict[str, bytes],
    ) -> None:
        self._pod, self._host, self._core = pod, host, core
        self._window, self._plane, self._program = window, plane, pod.program
        self._steps = LineWriter(1, "Steps")
        self._modules = LineWriter(2, "XLA Modules")
        self._ops = LineWriter(3, "XLA Ops")
        self._async = LineWriter(4, "Async XLA Ops")
        self._trace_me = LineWriter(6, "XLA TraceMe")
        self._heads = heads
        # Both device times of an event are stats whose first bytes never change.
        self._offset_stat = varint_field(1, plane.stat_id("device_offset_ps")) + b"\x18"
        self._duration_stat = varint_field(1, plane.stat_id("device_duration_ps")) + b"\x18"

    def record(self) -> None:
        base_ps = self._window.start_ns * 1000
        start_of_pod = self._pod.started_at_ns * 1000
        for step in self._window.steps:
            self._record_step(step, start_of_pod + self._pod.timeline.start_ps(step) - base_ps)
        for line in (self._steps, self._modules, self._ops, self._async, self._trace_me):
            self._plane.add_line(line)

    def _device_stats(self, start_ps: int, duration_ps: int) -> bytes:
        return event_stat(self._offset_stat + varint(start_ps)) + event_stat(
            self._duration_stat + varint(duration_ps)
        )

    def _add_op(self, op: Op, start_ps: int, duration_ps: int, stats: bytes = b"") -> None:
        device = self._device_stats(start_ps, duration_ps)
        self._ops.add(self._heads[op.name], start_ps, duration_ps, device + stats)

    def _record_step(self, step: int, start_ps: int) -> None:
        plane, program = self._plane, self._program
        timing = self._pod.timeline.timing(step)
        waited = timing.input_ps[self._host]
        compute = timing.compute_ps[self._host][self._core]
        step_stats = self._device_stats(start_ps, timing.end_ps) + event_stat(
            plane.uint_stat("step_idle_time_ps", timing.end_ps - timing.update_end_ps)
        )
        self._steps.add(plane.event_head(str(step)), start_ps, timing.end_ps, step_stats)
        run_stats = b"".join(
            event_stat(stat)
            for stat in (
                plane.uint_stat("run_id", run_id(step)),
                plane.int_stat("replica_id", 0),
                plane.uint_stat("queue_id", 0),
                plane.uint_stat("core_type", 0),
            )
        )
        module = plane.event_head(program.module_name)
        self._modules.add(module, start_ps, timing.update_end_ps, run_stats)
        self._trace_me.add(plane.event_head("dependency-wait"), start_ps, _DISPATCH_PS)
        for op in program.prologue:
            if op.kind == "infeed":
                self._add_op(op, start_ps, waited)
        launch = timing.launch_ps(self._host)
        self._record_compute(step, start_ps + launch, compute)
        arrival = launch + compute
        barrier = plane.event_head("barrier-cores")
        wait_ps = max(0, timing.collective_end_ps[0] - arrival - program.collectives[0].weight_ps)
        self._trace_me.add(barrier, start_ps + arrival, wait_ps)
        executions = after_compute(program, arrival, timing.collective_end_ps)
        for execution in executions:
            stats = b""
            if execution.op.kind == "all-reduce":
                unique = run_id(step) << 16 | int(execution.op.name.partition(".")[2] or 0) + 1
                stats = event_stat(plane.uint_stat("all_reduce_unique_id", unique))
            self._add_op(execution.op, start_ps + execution.start_ps, execution.duration_ps, stats)

    def _record_compute(self, step: int, start_ps: int, compute_ps: int) -> None:
        program = self._program
        slots = program.compute_slots
        variant = step % self._pod.timeline.period + self._core
        bounds = compute_bounds(program, self._pod.seed, variant, compute_ps)
        first, last = program.loop_slots
        heads, extend = self._heads, self._ops.encoded_events.extend
        offset_stat, duration_stat = self._offset_stat, self._duration_stat
        self._ops.event_count += sum(1 for slot in slots if slot.op is not None)
        copy_start_ps = start_ps
        for i, slot in enumerate(slots):
            if i == first:
                begin = start_ps + bounds[first]
                self._add_op(program.loop, begin, bounds[last] - bounds[first])
            op = slot.op
            if op is None:
                continue
            begin = start_ps + bounds[i]
            # Inlined from `_device_stats` and `event_bytes`: this runs once per event.
            offset = varint(begin)
            duration = varint(bounds[i + 1] - bounds[i])
            body = b"".join(
                (
                    heads[op.name], offset, b"\x18", duration,
                    b"\x22", varint(len(offset_stat) + len(offset)), offset_stat, offset,
                    b"\x22", varint(len(duration_stat) + len(duration)), duration_stat, duration,
                )
            )  # fmt: skip
            extend(b"\x22" + varint(len(body)) + body)
            if op.kind == "copy-start":
                copy_start_ps = begin
            elif op.kind == "copy-done":
                self._record_async(step, copy_start_ps, start_ps + bounds[i + 1], op)

    def _record_async(self, step: int, start_ps: int, end_ps: int, op: Op) -> None:
        plane = self._plane
        start = next(o for o in self._program.prologue if o.kind == "copy-start")
        head = plane.event_head(f"{op_text(self._program, start)}, async", "async-copy")
        stats = b"".join(
            event_stat(stat)
            for stat in (
                plane.str_stat("hlo_op", op.name),
                plane.int_stat("_a", 1),
                plane.uint_stat("id", step % 4096),
            )
        )
        self._async.add(head, start_ps, end_ps - start_ps, stats)
