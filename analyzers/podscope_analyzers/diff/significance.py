"""Whether two series of steps differ by more than their own spread explains.

Welch's two-sided t-test (B. L. Welch, Biometrika 34, 1947), on as many independent steps as the
series' lag-one autocorrelation leaves, with Holm's correction over all that is judged together
(S. Holm, Scand. J. Statist. 6, 1979).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.spread import MIN_STEPS, independent_count

SIGNIFICANT: Final = "significant"
WITHIN_NOISE: Final = "within_noise"
UNKNOWN: Final = "unknown"
"""Nobody recorded a spread over steps, or there are too few of them."""

ALPHA: Final = 0.01
"""Chance that anything of a comparison is called significant while nothing has changed."""


@dataclass(frozen=True)
class Difference:
    """The means of two series and how sure their difference is.

    Attributes:
        p_value: Of the test, not corrected; None where a side has too few steps.
        low: Of the 95 % interval of the difference; None likewise.
        high: The same.
    """

    base_mean: float
    other_mean: float
    base_deviation: float | None
    other_deviation: float | None
    base_count: int
    other_count: int
    p_value: float | None
    low: float | None
    high: float | None


def difference(base: NDArray[np.float64], other: NDArray[np.float64]) -> Difference:
    """Compares two series of at least one value each, in the order of the steps."""
    means = float(base.mean()), float(other.mean())
    deviations = [float(one.std(ddof=1)) if len(one) > 1 else None for one in (base, other)]
    p_value = low = high = None
    if min(len(base), len(other)) >= MIN_STEPS:
        p_value, half = _welch(base, other)
        low, high = means[1] - means[0] - half, means[1] - means[0] + half
    return Difference(
        *means, deviations[0], deviations[1], len(base), len(other), p_value, low, high
    )


def _welch(base: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float]:
    """The p-value, and half the 95 % interval."""
    return welch(
        *(
            Sample(float(one.mean()), float(one.std(ddof=1)), independent_count(one))
            for one in (base, other)
        )
    )


@dataclass(frozen=True)
class Sample:
    """What the test needs of one side.

    Attributes:
        steps: Independent ones.
    """

    mean: float
    deviation: float
    steps: float


def welch(base: Sample, other: Sample) -> tuple[float, float]:
    """The p-value of the means' difference, and half of its 95 % interval."""
    change = other.mean - base.mean
    parts = [one.deviation**2 / one.steps for one in (base, other)]
    squared_error = sum(parts)
    scale = max(abs(base.mean), abs(other.mean))
    # What rounding leaves is no spread.
    if squared_error <= (1e-12 * scale) ** 2:
        return (1.0 if abs(change) <= 1e-9 * scale else 0.0), 0.0
    freedom = squared_error**2 / sum(
        part**2 / max(one.steps - 1, 1.0) for part, one in zip(parts, (base, other), strict=True)
    )
    error = math.sqrt(squared_error)
    return two_sided_p_value(change / error, freedom), t_quantile(freedom) * error


def holm(p_values: Sequence[float | None], alpha: float = ALPHA) -> list[bool | None]:
    """Which of them are significant together; None where there is no p-value."""
    judged = sorted((p, at) for at, p in enumerate(p_values) if p is not None)
    found: list[bool | None] = [None if p is None else False for p in p_values]
    for rank, (p_value, at) in enumerate(judged):
        if p_value > alpha / (len(judged) - rank):
            break
        found[at] = True
    return found


def verdict(*, is_significant: bool | None) -> str:
    """The word for what ``holm`` found."""
    if is_significant is None:
        return UNKNOWN
    return SIGNIFICANT if is_significant else WITHIN_NOISE


def two_sided_p_value(statistic: float, freedom: float) -> float:
    """Of Student's t with so many degrees of freedom, which need not be whole."""
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + statistic**2))


def t_quantile(freedom: float, p_value: float = 0.05) -> float:
    """The statistic whose two-sided p-value this is, by Newton's method.

    The p-value falls ever more slowly with the statistic, so that from zero on each step is too
    short and none goes too far.
    """
    peak = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(
        freedom * math.pi
    )
    found = 0.0
    for _ in range(200):
        density = peak * (1 + found * found / freedom) ** (-(freedom + 1) / 2)
        step = (two_sided_p_value(found, freedom) - p_value) / (2 * density)
        found += step
        if step <= 1e-12 * found:
            break
    return found


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction.

    See NIST's Digital Library of Mathematical Functions, 8.17.22.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    fraction = 1.0
    # It converges in about the root of the larger argument.
    for number in range(50 + 4 * math.isqrt(int(max(a, b))), 0, -1):
        half = number // 2
        if number % 2:
            factor = -(a + half) * (a + b + half) / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            factor = half * (b - half) / ((a + 2 * half - 1) * (a + 2 * half))
        fraction = 1 + factor * x / fraction
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(log_front) / (a * fraction)
