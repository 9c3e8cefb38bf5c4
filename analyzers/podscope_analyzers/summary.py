"""The few figures of one host that lists, metrics and alerts show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.headline import duty_cycle_ratio
from podscope_analyzers.overview_steps import complete_steps, longest_rows, step_shares


@dataclass(frozen=True)
class HostSummary:
    """One host, or all of them, in a few figures; None for what the capture does not tell.

    Attributes:
        step_count: Steps, incomplete ones too.
        step_time_ms: Mean of the complete ones.
        duty_cycle_ratio: Share of the time in which the accelerators were active.
        flops_per_second: Achieved by one device on average.
        breakdown: Share of the step time by category.
    """

    device_type: str
    device_core_count: int
    is_training: bool
    step_count: int
    step_time_ms: float | None
    duty_cycle_ratio: float | None
    flops_per_second: float | None
    peak_flops_per_second: float | None
    breakdown: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON-ready values."""
        shares = [{"category": name, "ratio": ratio} for name, ratio in self.breakdown.items()]
        return {**vars(self), "breakdown": shares}

    to_state = to_json

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "HostSummary":
        """The summary that ``to_state`` described."""
        shares = {item["category"]: item["ratio"] for item in state["breakdown"]}
        return cls(**{**state, "breakdown": shares})


def summarize_hosts(stats: CaptureStats) -> HostSummary:
    """The summary of the hosts that the stats are of."""
    environment = stats.run_environment
    steps = complete_steps(stats)
    rows = longest_rows(steps)
    durations = steps.duration_ps[rows[rows >= 0]]
    peak = stats.perf_env.peak_tera_flops_per_second * 1e12
    return HostSummary(
        device_type=environment.device_type,
        device_core_count=environment.device_core_count,
        is_training=environment.is_training,
        step_count=len(stats.all_steps),
        step_time_ms=float(durations.mean()) / 1e9 if len(durations) else None,
        duty_cycle_ratio=device_busy_ratio(stats),
        flops_per_second=flops_per_second(stats.device_ops),
        peak_flops_per_second=peak or None,
        breakdown={item["category"]: item["ratio"] for item in step_shares(stats)},
    )


def device_busy_ratio(stats: CaptureStats) -> float | None:
    """Share of the time in which the accelerators were active; None without any.

    TPUs say which operations wait. Of GPUs the time in which no kernel ran is idle; streams that
    overlap count once more each, so that the share of several streams is at most 1.
    """
    ops = stats.device_ops
    hardware = stats.run_environment.hardware_type
    # Programs that ran without an operation recorded say nothing of it either.
    is_recorded = ops.total_op_time_ps > 0
    if hardware == "TPU" and is_recorded and ops.busy_time_ps + ops.idle_time_ps > 0:
        return duty_cycle_ratio(ops)
    # Kernels that tell no operation say nothing of idle time.
    if hardware == "GPU" and is_recorded:
        return min(1.0, 1.0 - ops.idle_ratio)
    return None


def flops_per_second(device_ops: OpDatabase) -> float | None:
    """Achieved by one device on average; None without devices or without known work."""
    flops = float(device_ops.top("own_flops").sum())
    if flops <= 0 or device_ops.total_time_ps <= 0:
        return None
    # The databases add up over devices: both sums are of all of them.
    return flops / (device_ops.total_time_ps / 1e12)
