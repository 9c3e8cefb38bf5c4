"""Mean, deviation and extremes of a series of steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

_SMALLEST_DOUBLE = 2.2250738585072014e-308


@dataclass(frozen=True)
class StepSummary:
    """A series over the steps; all zero for an empty one.

    Attributes:
        standard_deviation: Root of the sample variance; 0 for one sample.
    """

    count: int = 0
    average: float = 0.0
    standard_deviation: float = 0.0
    minimum: float = 0.0
    maximum: float = 0.0

    @property
    def reference_deviation(self) -> float:
        """The deviation as the reference has it.

        Its running maximum starts at the smallest positive double, so that a series of zeros is
        not "all equal" to it, and a single zero is divided by no degree of freedom.
        """
        return -math.nan if self.count == 1 and self.maximum == 0 else self.standard_deviation

    @property
    def reference_maximum(self) -> float:
        """The maximum as the reference has it, never below the smallest positive double."""
        return max(self.maximum, _SMALLEST_DOUBLE) if self.count else 0.0

    def to_json(self) -> dict[str, float]:
        """The numbers by name."""
        return {
            "average": self.average,
            "standard_deviation": self.standard_deviation,
            "minimum": self.minimum,
            "maximum": self.maximum,
        }


def summarize(series: Sequence[float] | Float64s) -> StepSummary:
    """The summary of one number per step."""
    values = [float(value) for value in series]
    count = len(values)
    if not count:
        return StepSummary()
    total = math.fsum(values)
    average = total / count
    if count == 1 or min(values) == max(values):
        deviation = 0.0
    else:
        deviation = math.sqrt(math.fsum((v - average) ** 2 for v in values) / (count - 1))
    return StepSummary(count, average, deviation, min(values), max(values))


def safe_divide(dividend: float, divisor: float) -> float:
    """0 for a divisor that is practically 0, else the quotient."""
    return 0.0 if abs(divisor) < 1e-10 else dividend / divisor
