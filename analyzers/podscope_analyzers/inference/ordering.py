"""What requests and batches may be ordered by, and which rows of so many are shown."""

from typing import Final

import numpy as np

from podscope_analyzers.inference.percentiles import shown_rows
from podscope_analyzers.inference.stats import Rows

LATENCY: Final = "Latency"
REQUEST_ORDERS: Final = {
    LATENCY: "duration_ps",
    "Request delay for batching": "delay_ps",
    "Request size": "size",
    "Host preprocess": "preprocess_ps",
    "Host batch formation": "formation_ps",
    "Host runtime": "runtime_ps",
    "Data transfer H2D": "write_ps",
    "Data transfer D2H": "read_ps",
    "Device compute": "device_ps",
    "Host postprocess": "postprocess_ps",
    "Idle time": "idle_ps",
}
BATCH_ORDERS: Final = {
    LATENCY: "duration_ps",
    "Batching delay": "delay_ps",
    "Padding amount": "padding",
    "Batch size after padding": "padded_size",
    "Batching efficiency": "efficiency",
}


def shown(rows: Rows, order: str) -> list[tuple[int, float]]:
    """Rows to show and their percentiles, when ordered by a column."""
    if order == "duration_ps":
        return shown_rows(rows["weight"])
    if order == "efficiency":
        padded = rows["padded_size"]
        efficiency = (padded - rows["padding"]) / np.where(padded == 0, 1, padded)
        place = np.argsort(np.where(padded == 0, 0.0, efficiency), kind="stable")
    else:
        place = np.argsort(rows[order], kind="stable")
    shown = shown_rows(rows["weight"][place])
    return [(int(place[at]), percentile) for at, percentile in shown]
