"""What a host ran on, and the peaks of its devices."""

from podscope_analyzers.hlo import Programs
from podscope_analyzers.op_metrics.tpu import TENSOR_CORE_PLANE
from podscope_analyzers.peaks import GpuCapabilities, PerfEnv, gpu_peaks, tpu_peaks
from podscope_analyzers.plane_views import (
    GPU_PREFIX,
    HOST_PLANE,
    TPU_PREFIX,
    OpSpace,
    device_planes,
)
from podscope_analyzers.run_environment import (
    CPU,
    LOCALHOST,
    HardwareType,
    RunEnvironment,
    hardware_type,
)


def host_run_environment(space: OpSpace, programs: Programs) -> RunEnvironment:
    """What one host ran on."""
    devices = device_planes(space)
    device_type, cores = CPU, 0
    hardware: HardwareType | None = None
    if devices and devices[0].name.startswith(TPU_PREFIX):
        # Also where the tracer does not say which.
        hardware = "TPU"
        cores = sum(TENSOR_CORE_PLANE.fullmatch(plane.name) is not None for plane in devices)
        told = devices[0].stats.get("device_type_string")
        device_type = told if isinstance(told, str) else ""
    elif devices:
        cores = len(devices)
        device_type = GpuCapabilities.of(devices[0].stats).model
    host = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    measured = host.stats if host else {}
    mxu, hbm = (
        float(value) if isinstance(value, int | float) else 0.0
        for value in map(measured.get, _COUNTERS)
    )
    return RunEnvironment(
        device_type=device_type,
        hardware_type=hardware or hardware_type(device_type),
        hostnames=(space.hostnames[0] if space.hostnames else LOCALHOST,),
        task_count=1,
        device_core_count=cores,
        is_training=programs.is_training,
        mxu_utilization_percent=mxu,
        hbm_utilization_percent=hbm,
        mxu_counters=int(_COUNTERS[0] in measured),
        hbm_counters=int(_COUNTERS[1] in measured),
    )


_COUNTERS = ("matrix_unit_utilization_percent", "hbm_utilization_percent")


def host_perf_env(space: OpSpace) -> PerfEnv:
    """Peaks of a host's first device; none without devices."""
    devices = device_planes(space)
    if not devices:
        return PerfEnv()
    peaks = gpu_peaks if devices[0].name.startswith(GPU_PREFIX) else tpu_peaks
    return peaks(devices[0].stats)
