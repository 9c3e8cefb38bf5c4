"""Rows of equal keys: numbering, sums and choices per group, without a loop over rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels.factorise import factorise


def group_rows(keys: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Numbers the distinct keys from 0 in order of appearance.

    Args:
        keys: Shape (k, n): the parts of every row's key.

    Returns:
        The group of every row, shape (n,), and the first row of every group.
    """
    count = keys.shape[1]
    if count == 0:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    packed = _packed(keys)
    if packed is not None:
        codes, distinct = factorise(packed)
        first = np.empty(len(distinct), np.intp)
        # Assigned from the last to the first, so that the first stays.
        first[codes[::-1]] = np.arange(count - 1, -1, -1)
        return codes.astype(np.intp), first
    order = np.lexsort(keys[::-1])
    ordered = keys[:, order]
    starts = np.ones(count, np.bool_)
    starts[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    sorted_group = np.cumsum(starts) - 1
    # The sort is stable: the first of a sorted group is the first of all its rows.
    first = order[starts]
    rank = np.empty(len(first), np.intp)
    by_appearance = np.argsort(first, kind="stable")
    rank[by_appearance] = np.arange(len(first))
    group = np.empty(count, np.intp)
    group[order] = rank[sorted_group]
    return group, first[by_appearance]


def _packed(keys: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The parts of every key as one number; None if that has more than 63 bits."""
    packed = np.zeros(keys.shape[1], np.int64)
    size = 1
    for part in keys:
        low = int(part.min())
        extent = int(part.max()) - low + 1
        size *= extent
        if size >= 1 << 62:
            return None
        packed = packed * extent + (part - low)
    return packed


def first_nonzero(group: NDArray[np.intp], values: NDArray[Any], count: int) -> NDArray[Any]:
    """Per group the first value that is not 0, or 0; shape (count,)."""
    chosen = np.zeros(count, values.dtype)
    present = np.flatnonzero(values)[::-1]
    # Assigned from the last to the first, so that the first stays.
    chosen[group[present]] = values[present]
    return chosen


def running_minimum(
    group: NDArray[np.intp],
    minimum: NDArray[np.int64],
    occurrences: NDArray[np.int64],
    count: int,
) -> NDArray[np.int64]:
    """Per group the smallest time, as merging row after row gives it; shape (count,).

    A row replaces what was merged while that has no occurrences, else the smaller one stays.
    """
    happened = np.flatnonzero(occurrences > 0)
    never = len(minimum)
    start = np.full(count, never, np.int64)
    np.minimum.at(start, group[happened], happened)
    # Groups that never happened keep their last row.
    result = np.zeros(count, np.int64)
    result[group] = minimum
    counted = np.arange(never) >= start[group]
    has_start = start < never
    result[has_start] = np.iinfo(np.int64).max
    np.minimum.at(result, group[counted], minimum[counted])
    return result
