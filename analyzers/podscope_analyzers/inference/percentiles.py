"""Percentiles of weighted rows, by the rules of the reference."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from podscope_analyzers.inference.stats import Int64s

# From each percentile on, so much further, up to so many rows are shown.
_WINDOWS: Final = ((50.0, 1.0), (75.0, 1.0), (90.0, 1.0), (99.0, 0.5), (99.9, 0.05), (99.99, 0.005))
_PER_WINDOW: Final = 10
SHOWN: Final = len(_WINDOWS) * _PER_WINDOW
"""Up to so many rows, all are shown."""


def at_percentiles(weight: Int64s, percentiles: Sequence[float]) -> Int64s:
    """Places of percentiles among sorted rows: the element at ``p / 100 * n``, rounded down.

    Args:
        weight: How many elements each row stands for, shape (n,), not all 0.
        percentiles: From 0 to below 100.
    """
    ends = np.cumsum(weight)
    elements = [int(percentile / 100.0 * int(ends[-1])) for percentile in percentiles]
    return np.searchsorted(ends, elements, side="right")


def shown_rows(weight: Int64s) -> list[tuple[int, float]]:
    """Which of sorted rows a table shows: all of few, the first at some percentiles of many.

    Returns:
        Places and percentiles.
    """
    ends = np.cumsum(weight)
    total = int(ends[-1]) if len(ends) else 0
    rows = np.flatnonzero(weight)
    percentile = 100.0 * (ends[rows] - weight[rows]) / max(total, 1)
    if total <= SHOWN:
        return list(zip(rows.tolist(), percentile.tolist(), strict=True))
    found = []
    for low, width in _WINDOWS:
        # A row that stands for several covers their percentiles too.
        last = 100.0 * (ends[rows] - 1) / total
        inside = np.flatnonzero((last >= low) & (percentile < low + width))[:_PER_WINDOW]
        found += [(int(rows[at]), max(float(percentile[at]), low)) for at in inside]
    return found
