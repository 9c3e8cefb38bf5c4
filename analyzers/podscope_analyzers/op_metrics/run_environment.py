"""What a host ran on, and the peaks of its devices."""

from typing import Final

import numpy as np

from podscope_analyzers.hlo import Programs
from podscope_analyzers.peaks import GpuCapabilities, PerfEnv, gpu_peaks, tpu_peaks
from podscope_analyzers.plane_views import (
    OpLine,
    OpPlane,
    OpSpace,
    device_planes,
)
from podscope_analyzers.planes import (
    GPU_PREFIX,
    HOST_PLANE,
    TPU_PREFIX,
    XLA_MODULES,
    is_tensor_core,
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
        cores = sum(is_tensor_core(plane.name) for plane in devices)
        told = devices[0].stats.get("device_type_string")
        device_type = told if isinstance(told, str) else ""
    elif devices:
        cores = len(devices)
        device_type = GpuCapabilities.of(devices[0].stats).model
    host = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    tensor_cores = [plane for plane in devices if is_tensor_core(plane.name)]
    steps, time_ps = _decode_steps(host, tensor_cores)
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
        profile_duration_ps=_profile_duration_ps(space),
        decode_step_count=steps,
        decode_time_ps=time_ps,
    )


def _profile_duration_ps(space: OpSpace) -> int:
    """How long the session was by its own words; 0 where it does not say so."""
    told = next((plane.stats for plane in space.planes if plane.name == _ENVIRONMENT), {})
    start, stop = (told.get(f"profile_{name}_time") for name in ("start", "stop"))
    if not isinstance(start, int) or not isinstance(stop, int):
        return 0
    return min(max(stop - start, 0), _LONGEST_NS) * 1000


def _decode_steps(host: OpPlane | None, cores: list[OpPlane]) -> tuple[int, int]:
    """Number and time of the decode steps of a server; of one core, for all run each step.

    As the reference's combination has them: executions of ``jit_generate`` on a host whose
    threads served.
    """
    if host is None or _SERVES not in host.event_metadata.names:
        return 0, 0
    if not any(_times(host, line, {_SERVES})[0] for line in host.lines if not line.is_derived):
        return 0, 0
    for core in cores:
        names = {name for name in core.event_metadata.names if name.partition("(")[0] == _DECODES}
        for line in core.lines:
            if line.name == XLA_MODULES and names:
                count, time_ps = _times(core, line, names)
                if count:
                    return count, time_ps
    return 0, 0


def _times(plane: OpPlane, line: OpLine, names: set[str]) -> tuple[int, int]:
    """Events of these names on a line, and how long they are together."""
    columns = line.columns()
    is_meant = np.array([name in names for name in plane.event_metadata.names], np.bool_)
    found = columns.duration_ps[is_meant[columns.metadata]]
    return len(found), int(found.sum())


_ENVIRONMENT: Final = "Task Environment"
_SERVES: Final = "WizServable"
_DECODES: Final = "jit_generate"
_LONGEST_NS: Final = 1 << 52
_COUNTERS = ("matrix_unit_utilization_percent", "hbm_utilization_percent")


def host_perf_env(space: OpSpace) -> PerfEnv:
    """Peaks of a host's first device; none without devices."""
    devices = device_planes(space)
    if not devices:
        return PerfEnv()
    peaks = gpu_peaks if devices[0].name.startswith(GPU_PREFIX) else tpu_peaks
    return peaks(devices[0].stats)
