"""The figures of the overview, from which both its result and the reference's tables are made."""

from dataclasses import dataclass
from typing import Final

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.inference.latency import Latency, latency
from podscope_analyzers.input_pipeline import InputPipeline, analyze_input_pipeline
from podscope_analyzers.op_metrics.database import CostSource, OpDatabase
from podscope_analyzers.op_metrics.framework_view import framework_view
from podscope_analyzers.op_metrics.headline import (
    duty_cycle_ratio,
    eager_ratio,
    op_placement_ratios,
    outside_compilation_ratio,
)
from podscope_analyzers.op_metrics.rates import giga_per_second
from podscope_analyzers.steps import StepDatabase

TOP_OPS: Final = 10
FEW_16BIT_PERCENT: Final = 10.0

NO_DEVICE_TRACE: Final = (
    "No device was traced: the tables hold the host's side only. Check that the job runs on an "
    "accelerator and that device tracing is on."
)


@dataclass(frozen=True)
class TopOp:
    """One of the framework operations with the most self time on the devices.

    Attributes:
        self_time_ratio: Share of all operations' self time.
        cumulative_ratio: The same with the operations above it.
        giga_flops_per_second: None where the operation's work is not known.
        is_tensor_core_eligible: Only known on GPUs.
        uses_tensor_core: Whether any of its kernels does; likewise.
    """

    name: str
    category: str
    self_time_ratio: float
    cumulative_ratio: float
    self_time_ps: int
    occurrences: int
    giga_flops_per_second: float | None
    is_tensor_core_eligible: bool | None
    uses_tensor_core: bool | None


@dataclass(frozen=True)
class Overview:
    """The figures of the overview; ratios are 0 to 1."""

    pipeline: InputPipeline
    latency: Latency
    top_ops: tuple[TopOp, ...]
    compute_16bit_ratio: float
    compute_32bit_ratio: float
    has_precision: bool
    duty_cycle_ratio: float
    duty_cycle_high_confidence_ratio: float
    device_idle_ratio: float
    host_idle_ratio: float
    host_op_ratio: float
    device_op_ratio: float
    host_eager_ratio: float
    device_eager_ratio: float
    outside_compilation_ratio: float
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def precision_advice(self) -> str:
        """A sentence when next to no computation uses 16 bits."""
        percent = 100 * self.compute_16bit_ratio
        if not self.has_precision or percent >= FEW_16BIT_PERCENT:
            return ""
        return (
            f"Only {percent:.1f}% of the device's computation uses 16 bits. Mixed precision "
            "may be faster, where the model allows it."
        )


def overview(stats: CaptureStats, steps: StepDatabase, *, own: bool = True) -> Overview:
    """The figures of a capture.

    Args:
        stats: Of all hosts.
        steps: Which steps to look at: with or without the incomplete ones.
        own: Whether of operations is said what we know of them, or what the reference does.
    """
    environment = stats.run_environment
    is_tpu = environment.hardware_type == "TPU"
    host_ratio, device_ratio = op_placement_ratios(stats.host_ops, stats.device_ops)
    pipeline = analyze_input_pipeline(steps, stats.host_ops, stats.cores, environment.hardware_type)
    ps16, ps32 = steps.precision_16bit_ps, steps.precision_32bit_ps
    measured = ps16 + ps32
    errors = stats.diagnostics.errors
    if not errors and environment.device_type != "CPU" and environment.device_core_count <= 0:
        errors = (NO_DEVICE_TRACE,)
    return Overview(
        pipeline=pipeline,
        latency=Latency() if environment.is_training else latency(stats.inference),
        top_ops=top_ops(stats, stats.device_ops, own=own),
        compute_16bit_ratio=ps16 / measured if measured else 0.0,
        compute_32bit_ratio=ps32 / measured if measured else 0.0,
        has_precision=measured > 0,
        duty_cycle_ratio=duty_cycle_ratio(stats.device_ops) if is_tpu else 0.0,
        duty_cycle_high_confidence_ratio=duty_cycle_ratio(stats.device_ops, high_confidence=True)
        if is_tpu
        else 0.0,
        device_idle_ratio=stats.device_ops.idle_ratio if is_tpu else 0.0,
        host_idle_ratio=stats.host_ops.idle_ratio if is_tpu else 0.0,
        host_op_ratio=host_ratio,
        device_op_ratio=device_ratio,
        host_eager_ratio=eager_ratio(stats.host_ops),
        device_eager_ratio=eager_ratio(stats.device_ops),
        outside_compilation_ratio=outside_compilation_ratio(stats.device_ops),
        errors=errors,
        warnings=(*stats.diagnostics.warnings, *pipeline.warnings),
    )


def top_ops(stats: CaptureStats, ops: OpDatabase, *, own: bool) -> tuple[TopOp, ...]:
    """The framework operations with the most self time, the longest first.

    Of equal ones ours has the last name first, as XProf's own unit tests want it; what XProf
    releases has the first name first.

    Args:
        stats: Of the capture.
        ops: Those of its devices, or those that hosts without devices executed themselves.
        own: Whether flops and order are ours, or follow the reference's rule.
    """
    view = framework_view(ops, with_idle=False)
    kernels = (stats.kernels if own else stats.reference_kernels).by_op()
    flops = view.column("own_flops" if own else "flops")
    total = view.total_op_time_ps
    found: list[TopOp] = []
    cumulative = 0.0
    for row in view.order_by_self_time(last_name_first=own)[:TOP_OPS].tolist():
        self_ps = int(view.column("self_time_ps")[row])
        ratio = self_ps / total if total else 0.0
        cumulative += ratio
        name = view.text("name", row)
        used = kernels.get(name)
        time_ps = int(view.column("time_ps")[row])
        is_known = not own or int(view.column("cost_source")[row]) != CostSource.NONE
        found.append(
            TopOp(
                name=name,
                category=view.text("category", row),
                self_time_ratio=ratio,
                cumulative_ratio=cumulative,
                self_time_ps=self_ps,
                occurrences=int(view.column("occurrences")[row]),
                giga_flops_per_second=giga_per_second(float(flops[row]), time_ps)
                if is_known
                else None,
                is_tensor_core_eligible=used.is_eligible if used else None,
                uses_tensor_core=used.uses_tensor_core if used else None,
            )
        )
    return tuple(found)
