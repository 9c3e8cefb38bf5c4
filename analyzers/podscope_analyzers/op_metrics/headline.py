"""Percentages that head the overview, from the databases."""

import numpy as np

from podscope_analyzers.op_metrics.database import OpDatabase, safe_divide
from podscope_analyzers.op_metrics.framework_view import framework_view
from podscope_analyzers.op_names import is_outside_compilation


def duty_cycle_ratio(device_ops: OpDatabase, *, high_confidence: bool = False) -> float:
    """Share of the time in which TPU chips were active, 0 without TPUs."""
    if high_confidence:
        busy, idle = device_ops.busy_high_confidence_ps, device_ops.idle_high_confidence_ps
    else:
        busy, idle = device_ops.busy_time_ps, device_ops.idle_time_ps
    return safe_divide(busy, busy + idle)


def eager_ratio(ops: OpDatabase) -> float:
    """Share of the operations' self time that was executed eagerly."""
    top = ops.top_count
    busy = ~ops.is_idle[:top]
    self_ps = ops.top("self_time_ps")
    eager = int(self_ps[busy & ops.top("is_eager")].sum())
    return safe_divide(eager, int(self_ps[busy].sum()))


def op_placement_ratios(host_ops: OpDatabase, device_ops: OpDatabase) -> tuple[float, float]:
    """Shares of operations executed on host and device; both 0 without operations."""
    host = int(host_ops.top("occurrences").sum())
    device = int(framework_view(device_ops, with_idle=False).top("occurrences").sum())
    return safe_divide(host, host + device), safe_divide(device, host + device)


def outside_compilation_ratio(device_ops: OpDatabase) -> float:
    """Share of the device's self time that waits for computation outside the program."""
    top = device_ops.top_count
    provenance, long_name = device_ops.top("provenance"), device_ops.top("long_name")
    outside = np.fromiter(
        (
            is_outside_compilation(device_ops.texts[one], device_ops.texts[other])
            for one, other in zip(provenance.tolist(), long_name.tolist(), strict=True)
        ),
        np.bool_,
        top,
    )
    self_ps = device_ops.top("self_time_ps")
    busy = int(self_ps[~device_ops.is_idle[:top]].sum())
    return safe_divide(int(self_ps[outside].sum()), busy)
