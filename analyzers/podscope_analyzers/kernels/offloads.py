"""Pairs starts of transfers with their ends, and places them on rows."""

import numpy as np

from podscope_analyzers.kernels.compiled import kernel
from podscope_analyzers.kernels.spans import Bools, Int32s, Int64s, check_lengths


@kernel(
    "void(i4[::1], b1[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i4[::1])"
)
def pair(
    key: Int32s,
    is_start: Bools,
    begin: Int64s,
    end: Int64s,
    head: Int64s,
    tail: Int64s,
    following: Int64s,
    busy_until: Int64s,
    started: Int64s,
    row: Int32s,
) -> None:
    """See ``pair_transfers``.

    Open starts of a key are a list in order of time: ``head`` is the oldest, ``following`` the
    next of each; all begin as -1.
    """
    rows = 0
    most_rows = busy_until.size
    for i in range(key.size):
        started[i] = -1
        row[i] = -1
        k = key[i]
        if is_start[i]:
            if head[k] < 0:
                head[k] = i
            else:
                following[tail[k]] = i
            tail[k] = i
            continue
        if head[k] < 0:
            continue
        opened = head[k]
        head[k] = following[opened]
        free = -1
        for r in range(rows):
            if busy_until[r] <= begin[opened] and (free < 0 or busy_until[r] < busy_until[free]):
                free = r
        if free < 0 and rows < most_rows:
            free = rows
            rows += 1
        if free < 0:
            continue
        busy_until[free] = end[i]
        started[i] = opened
        row[i] = free


def pair_transfers(
    key: Int32s, is_start: Bools, begin_ps: Int64s, end_ps: Int64s, *, most_rows: int
) -> tuple[Int64s, Int32s]:
    """The start that each end belongs to, and the row that the transfer is shown on.

    An end takes the oldest open start of its key. Its row is the one that has been free for
    the longest, or a new one; without a free row the transfer is left out.

    Args:
        key: Which transfer it is, from 0, in order of time, shape (n,).
        is_start: Starts are True, ends False, shape (n,).
        begin_ps: Picoseconds, shape (n,).
        end_ps: Shape (n,).
        most_rows: How many rows there may be.

    Returns:
        Of every end the index of its start and its row, -1 for all else, both (n,).
    """
    check_lengths(key, is_start, begin_ps, end_ps)
    started, row = np.empty(len(key), np.int64), np.empty(len(key), np.int32)
    keys = int(key.max(initial=-1)) + 1
    pair(
        np.require(key, np.int32, ["C", "W"]),
        np.require(is_start, np.bool_, ["C", "W"]),
        np.require(begin_ps, np.int64, ["C", "W"]),
        np.require(end_ps, np.int64, ["C", "W"]),
        np.full(keys, -1, np.int64),
        np.full(keys, -1, np.int64),
        np.full(len(key), -1, np.int64),
        np.empty(most_rows, np.int64),
        started,
        row,
    )
    return started, row
