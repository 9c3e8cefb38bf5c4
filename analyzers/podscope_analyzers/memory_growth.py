"""Whether memory grows from step to step, and what was allocated and never freed.

The level of a step is the least that was in use in it: what the step allocates for itself is gone
there, what it leaves behind is not. A growth is told from noise by the Mann-Kendall trend test (any
monotone trend, no assumption on its form or on the noise; H. B. Mann 1945, M. G. Kendall 1975) with
Sen's slope as its size (P. K. Sen 1968), and by three thresholds, all of which it must pass.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from podscope_analyzers.allocator_profile import Active, AllocatorProfile, Int64s
from podscope_analyzers.sorted_values import distinct, median

MIN_STEPS: Final = 6
"""Of fewer no trend is significant."""
MAX_P_VALUE: Final = 0.01
MIN_GROWTH_RATIO: Final = 0.001
"""Of the peak, over all steps: smaller growth has time."""
MIN_NOISE_FACTOR: Final = 3.0
"""The growth over all steps by the usual distance of a step's level from the trend."""
_MAX_PAIRED: Final = 1000

Verdict = Literal["growing", "steady", "too_few_steps"]


@dataclass(frozen=True)
class Growth:
    """How an allocator's level changes over steps.

    Attributes:
        steps: Steps that were looked at, shape (s,); the first, in which much is made once, and the
            last, which the capture may cut, are not among them.
        level_bytes: The least in use in each, shape (s,).
        bytes_per_step: Sen's slope.
        p_value: Of so steady a rise by chance; 1 where it was not tested.
        noise_bytes: Median distance of a level from the trend.
    """

    verdict: Verdict
    steps: Int64s
    level_bytes: Int64s
    bytes_per_step: float
    p_value: float
    noise_bytes: float

    @property
    def total_bytes(self) -> float:
        """Over all steps."""
        return self.bytes_per_step * max(len(self.steps) - 1, 0)


@dataclass(frozen=True)
class Survivor:
    """Equal allocations that were made in steps and still live at the end.

    Attributes:
        steps: In how many steps one was left.
    """

    what: Active
    steps: int


def growth_of(profile: AllocatorProfile) -> Growth:
    """The trend of an allocator's level."""
    steps, levels = _levels(profile)
    if len(steps) < MIN_STEPS:
        return Growth("too_few_steps", steps, levels, 0.0, 1.0, 0.0)
    slope = _sen_slope(levels)
    p_value = rising_p_value(levels)
    at = np.arange(len(levels))
    residual = levels - slope * at
    noise = median(np.abs(residual - median(residual)))
    total = slope * (len(levels) - 1)
    # What levels off has grown once, and grows no more: the later half must rise too.
    later = levels[len(levels) // 2 :]
    is_growing = (
        p_value < MAX_P_VALUE
        and total >= MIN_GROWTH_RATIO * profile.peak_bytes
        and total > MIN_NOISE_FACTOR * noise
        and _sen_slope(later) >= slope / 4
    )
    return Growth(
        "growing" if is_growing and slope > 0 else "steady", steps, levels, slope, p_value, noise
    )


def _levels(profile: AllocatorProfile) -> tuple[Int64s, Int64s]:
    """Steps in time order and the least in use in each, the first and last left out."""
    recorded = profile.events.columns["step"][profile.rows]
    inside = np.flatnonzero(recorded >= 0)
    found, code = np.unique(recorded[inside], return_inverse=True)
    least = np.full(len(found), np.iinfo(np.int64).max)
    np.minimum.at(least, code, profile.used_bytes[inside])
    return found[1:-1], least[1:-1]


def rising_p_value(levels: Int64s) -> float:
    """The one-sided p-value of the Mann-Kendall test, with the correction for ties."""
    shown = _thinned(levels)
    count = len(shown)
    signs = np.sign(shown[None, :] - shown[:, None])
    score = int(signs[np.triu_indices(count, 1)].sum())
    _, ties = np.unique(shown, return_counts=True)
    variance = (
        count * (count - 1) * (2 * count + 5) - int((ties * (ties - 1) * (2 * ties + 5)).sum())
    ) / 18
    if score <= 0 or variance <= 0:
        return 1.0
    return 0.5 * math.erfc((score - 1) / math.sqrt(2 * variance))


def _sen_slope(levels: Int64s) -> float:
    shown = _thinned(levels)
    width = len(levels) / len(shown) if len(shown) else 1.0
    later, earlier = np.triu_indices(len(shown), 1)[::-1]
    if not len(later):
        return 0.0
    slopes = (shown[later] - shown[earlier]) / ((later - earlier) * width)
    return median(slopes)


def _thinned(levels: Int64s) -> Int64s:
    """At most so many levels that all pairs of them fit into memory: the least of neighbours."""
    if len(levels) <= _MAX_PAIRED:
        return levels
    bounds = np.linspace(0, len(levels), _MAX_PAIRED + 1).astype(np.int64)[:-1]
    return np.minimum.reduceat(levels, bounds)


def survivors(profile: AllocatorProfile) -> list[Survivor]:
    """What steps left behind, the most bytes first.

    What was allocated in the first step or in the last two is not counted: the one makes what is
    kept for good, the others may free theirs after the capture.
    """
    recorded = profile.events.columns["step"][profile.rows]
    known = distinct(recorded[recorded >= 0])
    if len(known) < MIN_STEPS:
        return []
    live = profile.live_at(len(profile.rows) - 1)
    live = live[(recorded[live] > known[0]) & (recorded[live] < known[-2])]
    groups, group = profile.grouped(live)
    # Each step of a group once, however many of its allocations are left in it.
    pairs = np.unique(np.stack([group, recorded[live]]), axis=1)
    steps = np.bincount(pairs[0], minlength=len(groups)).tolist()
    found = [Survivor(what, count) for what, count in zip(groups, steps, strict=True)]
    return sorted(found, key=lambda one: (-one.what.total_bytes, *one.what.key))
