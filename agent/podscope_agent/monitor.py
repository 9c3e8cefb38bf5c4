"""The answer to ``Monitor``: live figures as text that existing scrapers read, and as a message."""

import time
from collections.abc import Sequence

from podscope_agent.live.model import DeviceSample
from podscope_protos.v1 import profiler_service_pb2 as wire

_DETAILED_LEVEL = 2


def monitor_response(
    samples: Sequence[DeviceSample], *, level: int, with_timestamp: bool
) -> wire.MonitorResponse | None:
    """Return what `Monitor` says of the host's devices; None when it has none.

    Lines and labels are those of a TPU worker's answer.
    """
    if not samples:
        return None
    lines = []
    if with_timestamp:
        lines.append(f"Timestamp: {time.strftime('%H:%M:%S', time.gmtime())}")
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
    used = [s.memory_used_bytes for s in samples if s.memory_used_bytes is not None]
    limit = [s.memory_limit_bytes for s in samples if s.memory_limit_bytes is not None]
    if level >= _DETAILED_LEVEL and used and limit:
        lines.append(f"HBM used: {sum(used) / 2**30:.1f} of {sum(limit) / 2**30:.1f} GiB")
    response.data = "\n".join(lines) + "\n"
    return response


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
