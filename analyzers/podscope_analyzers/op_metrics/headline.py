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


def outside_compilation_ratio(device_ops: OpDatabase, *, between_slices_ps: int = 0) -> float:
    """Share of the device's self time that waits for computation outside the program.

    Args:
        device_ops: Operations of the devices.
        between_slices_ps: Time of the ends of sends that are known to go to other slices, which
            look like those to the host; they are left out.
    """
    top = device_ops.top_count
    texts = device_ops.texts
    named, sent = np.zeros(top, np.bool_), np.zeros(top, np.bool_)
    names = device_ops.top("provenance").tolist(), device_ops.top("long_name").tolist()
    for row, (provenance, long_name) in enumerate(zip(*names, strict=True)):
        named[row] = is_outside_compilation(texts[provenance], "")
        sent[row] = not named[row] and is_outside_compilation("", texts[long_name])
    self_ps = device_ops.top("self_time_ps")
    busy = int(self_ps[~device_ops.is_idle[:top]].sum())
    outside = int(self_ps[named].sum()) + max(int(self_ps[sent].sum()) - between_slices_ps, 0)
    return safe_divide(outside, busy)
