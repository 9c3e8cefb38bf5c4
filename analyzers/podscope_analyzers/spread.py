"""How far a series of steps varies, and as how many independent ones it counts."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]

MIN_STEPS: Final = 3
"""Fewer steps have no spread to judge by."""
_MIN_FOR_CORRELATION: Final = 8


@dataclass(frozen=True)
class Spread:
    """Of something that every step has a value of.

    Attributes:
        ratio: Standard deviation over the mean.
        steps: How many independent steps tell as much of the mean.
    """

    ratio: float
    steps: float


def spreads_of(series: Float64s) -> list[Spread | None]:
    """The spread of every row.

    Args:
        series: Values in the order of the steps, shape (k, s).

    Returns:
        One per row; None for all of too few steps, and for those without any value.
    """
    if series.shape[1] < MIN_STEPS:
        return [None] * len(series)
    mean = series.mean(axis=1)
    deviation = series.std(axis=1, ddof=1)
    counts = independent_counts(series)
    return [
        Spread(one_deviation / one_mean, count) if one_mean > 0 else None
        for one_mean, one_deviation, count in zip(
            mean.tolist(), deviation.tolist(), counts.tolist(), strict=True
        )
    ]


def independent_counts(series: Float64s) -> Float64s:
    """How many independent values tell as much of each row's mean, at least two; shape (k,).

    Args:
        series: Values in the order of the steps, shape (k, s).
    """
    steps = series.shape[1]
    if steps < _MIN_FOR_CORRELATION:
        return np.full(len(series), float(steps))
    centred = series - series.mean(axis=1, keepdims=True)
    power = (centred**2).sum(axis=1)
    alike = (centred[:, 1:] * centred[:, :-1]).sum(axis=1)
    correlation = np.divide(alike, power, out=np.zeros(len(series)), where=power > 0)
    correlation = np.maximum(correlation, 0.0)
    counts: Float64s = np.maximum(2.0, steps * (1 - correlation) / (1 + correlation))
    return counts


def independent_count(series: Float64s) -> float:
    """The same of one series, shape (s,)."""
    return float(independent_counts(series[None])[0])
