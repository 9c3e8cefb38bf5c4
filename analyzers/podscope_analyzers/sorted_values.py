"""What sorting an array tells: its distinct values and its median.

``np.unique`` and ``np.median`` ask first whether the array is a masked one, which loads numpy's
masked arrays: as long as a tenth of a short analysis, and 1.3 MB in every process.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.generic)


def distinct(values: npt.NDArray[T]) -> npt.NDArray[T]:
    """Every value once, ascending, shape (k,); of numbers that are no NaN, or of rows of them."""
    ordered = np.sort(values, axis=None)
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def median(values: npt.NDArray[Any] | Sequence[float]) -> float:
    """The median of all values of an array; NaN without any, and if any is NaN."""
    ordered = np.sort(np.asarray(values, np.float64), axis=None)
    if not len(ordered) or np.isnan(ordered[-1]):
        return float("nan")
    return float(ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1].mean())
