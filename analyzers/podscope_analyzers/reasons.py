"""Why a result, or a part of it, is absent: a closed list, each with the advice that helps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from podscope_analyzers.result import Reason
from podscope_analyzers.steps import StepDatabase

_MOST_NAMES: Final = 5

NO_STEPS: Final = Reason(
    "no_steps",
    "No step was found in the capture.",
    "Annotate the steps (jax.profiler.StepTraceAnnotation, tf.profiler.experimental.Trace), or "
    "capture for longer than one step.",
)
NO_COMMON_STEPS: Final = Reason(
    "no_common_steps",
    "The hosts have no step in common.",
    "Capture all hosts at once, for longer than a step and the hosts' clocks differ.",
)
HOSTS_NOT_COMPARED: Final = Reason(
    "hosts_not_compared",
    "Some hosts are not compared with the others: they recorded hardly any of the steps.",
    "See what those hosts recorded: their profiler may have started late, dropped events or not "
    "traced the devices. One of them may be what the others wait for.",
)
NO_DEVICE_PLANE: Final = Reason(
    "no_device_plane",
    "No host recorded an accelerator.",
    "Check that the job runs on one and that device tracing is on (device_tracer_level 1).",
)
NO_HOST_OPS: Final = Reason(
    "no_host_ops",
    "No framework operation was recorded on the hosts.",
    "Raise host_tracer_level to 2; a job in plain JAX has none, which is no fault.",
)
NO_KERNELS: Final = Reason(
    "no_gpu_kernels",
    "No GPU kernel with launch parameters was recorded.",
    "Check that the job runs on GPUs and that the profiler may use CUPTI or ROCtracer.",
)
NO_LAUNCH_PARAMETERS: Final = Reason(
    "no_launch_parameters",
    "GPU kernels were recorded without their launch parameters, by which they are told apart.",
    "See framework_op_stats and hlo_stats for their times; profilers that use CUPTI or ROCtracer "
    "record kernel_details.",
)
GENERATED_KERNELS: Final = Reason(
    "generated_kernels",
    "Names of matrix products that a compiler generated (gemm_fusion, triton) do not tell whether "
    "they use tensor cores.",
    "Those of 16-bit types usually do: compare their FLOP rate in hlo_stats with the peak.",
)
UNKNOWN_GPU_VENDOR: Final = Reason(
    "unknown_gpu_vendor",
    "The capture does not say who made the GPUs, so their kernels' names do not tell which use "
    "tensor cores.",
    "Capture with a newer TensorFlow or JAX, whose profilers record device_vendor.",
)
NO_TF_DATA: Final = Reason(
    "no_tf_data",
    "No call of a tf.data pipeline, of Grain or of PyTorch's DataLoader was recorded.",
    "If the program uses one of them, capture for longer, with host_tracer_level 2; other loaders "
    "are not seen here.",
)
NO_PROGRAMS: Final = Reason(
    "no_hlo",
    "The capture carries no HLO program.",
    "Capture while an XLA program runs, with HLO protos on (enable_hlo_proto, the default).",
)
NO_PEAK_RATES: Final = Reason(
    "no_peak_rates",
    "The capture does not say how fast the device can compute.",
    "Compare rates and intensities; utilizations and efficiencies count only known peaks.",
)
NO_HLO_OPS: Final = Reason(
    "no_hlo_ops",
    "No HLO instruction ran in the capture.",
    "Capture while compiled programs run.",
)
NO_COUNTERS: Final = Reason(
    "no_counters",
    "No hardware counter was recorded.",
    "Ask the tracer for counters: tpu_perf_counters or tpu_perf_counter_sets on TPUs, "
    "gpu_pm_sample_counters on GPUs.",
)
NO_SLICE_TRANSFERS: Final = Reason(
    "no_slice_transfers",
    "No transfer between slices was recorded.",
    "A job on one slice has none. With several, capture while a step runs, with device tracing and "
    "HLO protos on.",
)
NO_ALLOCATIONS: Final = Reason(
    "no_allocations",
    "No allocator recorded anything.",
    "Raise host_tracer_level to 2 and capture while the job allocates. JAX on CPUs records none; "
    "PyTorch only captures that begin in the training thread (podscope.profiler.start).",
)


def hosts_not_compared(names: Sequence[str], hosts: int, least: int, steps: int) -> Reason:
    """The reason why some hosts are in no comparison.

    Args:
        names: Of these.
        hosts: How many hosts there are.
        least: Steps that a host must have.
        steps: How many steps there are.
    """
    shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    are = "is" if len(names) == 1 else "are"
    return replace(
        HOSTS_NOT_COMPARED,
        message=f"{len(names)} of {hosts} hosts {are} not compared with the others, with fewer "
        f"than {least} of the {steps} steps recorded: {shown}.",
    )


def reasons_for_steps(steps: StepDatabase) -> tuple[Reason, ...]:
    """The reason why there are no steps, if there are none."""
    if len(steps):
        return ()
    return (NO_COMMON_STEPS if steps.is_intersection_empty else NO_STEPS,)
