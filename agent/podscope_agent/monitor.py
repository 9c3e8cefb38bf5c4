"""The answer to ``Monitor``: live figures as text that existing scrapers read, and as a message."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from podscope_agent.live.model import DeviceSample
from podscope_agent.live.reported import ALL_CHIPS
from podscope_protos.v1 import profiler_service_pb2 as wire

_DETAILED_LEVEL = 2


@dataclass(frozen=True)
class HostUse:
    """What the host itself is used for, CPU time as a share of all its cores'; None: unknown."""

    cpu_ratio: float | None
    memory_used_bytes: int
    memory_limit_bytes: int


def host_use(cpu_ratio: float | None) -> HostUse:
    """The host now, with what is known of its CPU time."""
    memory = psutil.virtual_memory()
    used = memory.total - memory.available
    return HostUse(cpu_ratio, used, memory.total)


def monitor_response(
    samples: Sequence[DeviceSample],
    *,
    level: int,
    with_timestamp: bool,
    host: HostUse,
    step_time_s: float | None = None,
) -> wire.MonitorResponse:
    """Return what `Monitor` says of the host and its devices.

    Lines and labels are those of a TPU worker's answer. The message has no field for the host: of
    a host without devices it says EMPTY_RESULT, and the text tells CPU and memory at both levels.
    What the processes say of their steps now goes before what the last profile said.
    """
    # Figures of the last profile stand for all devices; live ones of the devices go first.
    profiled = [sample for sample in samples if sample.chip == ALL_CHIPS]
    samples = [sample for sample in samples if sample.chip != ALL_CHIPS] or profiled
    lines = []
    if with_timestamp:
        lines.append(f"Timestamp: {time.strftime('%H:%M:%S', time.gmtime())}")
    if not samples:
        response = wire.MonitorResponse()
        response.monitor_result.response_type = wire.ProfilerServiceMonitorResult.EMPTY_RESULT
        lines.append("Device type: CPU")
        if step_time_s is not None:
            response.monitor_result.step_time_ms_avg = 1000 * step_time_s
            lines.append(_step_line(step_time_s))
        response.data = "\n".join([*lines, *_host_lines(host)]) + "\n"
        return response
    kinds = sorted({sample.model or sample.accelerator.upper() for sample in samples})
    is_tpu = any(sample.accelerator == "tpu" for sample in samples)
    lines.append(f"{'TPU' if is_tpu else 'Device'} type: {', '.join(kinds)}")
    response = wire.MonitorResponse()
    result = response.monitor_result
    duty = _mean([sample.duty_cycle_ratio for sample in samples])
    matrix = _mean([sample.matrix_unit_active_ratio for sample in samples])
    if level >= _DETAILED_LEVEL:
        lines.append(
            f"Number of TPU cores: {len(samples)}" if is_tpu else f"Devices: {len(samples)}"
        )
        if duty is not None:
            result.response_type = wire.ProfilerServiceMonitorResult.UTIL_IDLE
            result.device_idle_time_percent = 100 * (1 - duty)
            lines.append(f"TPU idle time (lower is better): {100 * (1 - duty):.1f}%")
    if matrix is not None:
        if result.response_type == wire.ProfilerServiceMonitorResult.EMPTY_RESULT:
            result.response_type = wire.ProfilerServiceMonitorResult.UTIL_ONLY
        result.matrix_unit_utilization_percent = 100 * matrix
        lines.append(f"Utilization of TPU Matrix Units (higher is better): {100 * matrix:.1f}%")
    step = step_time_s or _mean([sample.step_time_seconds for sample in profiled])
    if level >= _DETAILED_LEVEL and step is not None:
        result.response_type = wire.ProfilerServiceMonitorResult.UTIL_IDLE_STEP
        result.step_time_ms_avg = 1000 * step
        lines.append(_step_line(step))
    used = [s.memory_used_bytes for s in samples if s.memory_used_bytes is not None]
    limit = [s.memory_limit_bytes for s in samples if s.memory_limit_bytes is not None]
    if level >= _DETAILED_LEVEL and used and limit:
        lines.append(f"HBM used: {sum(used) / 2**30:.1f} of {sum(limit) / 2**30:.1f} GiB")
    if level >= _DETAILED_LEVEL:
        lines += _host_lines(host)
    response.data = "\n".join(lines) + "\n"
    return response


def _step_line(seconds: float) -> str:
    return f"Step time: {1000 * seconds:.1f}ms (avg)"


def _host_lines(host: HostUse) -> list[str]:
    used, limit = host.memory_used_bytes / 2**30, host.memory_limit_bytes / 2**30
    lines = [f"Host memory used: {used:.1f} of {limit:.1f} GiB"]
    if host.cpu_ratio is not None:
        lines.insert(0, f"Host CPU utilization: {100 * host.cpu_ratio:.1f}%")
    return lines


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
