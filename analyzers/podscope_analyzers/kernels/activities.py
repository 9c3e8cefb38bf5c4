"""Matches begins and ends of overlapping activities on one thread."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels.compiled import kernel
from podscope_analyzers.kernels.spans import check_lengths, writable_int64s

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Activities:
    """What became of every activity, shape (n,).

    Attributes:
        ended_at: Place of its end among all begins and ends, -1 for one that was discarded
            because another one ended before.
        self_ps: Duration less that of the activities directly in it that were not discarded.
    """

    ended_at: Int64s
    self_ps: Int64s


@kernel("void(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])")
def _match(
    order: Int64s, duration: Int64s, stack: Int64s, ended_at: Int64s, self_time: Int64s
) -> None:
    depth = 0
    for at in range(order.size):
        activity = order[at] >> 1
        if order[at] & 1 == 0:
            stack[depth] = activity
            depth += 1
            continue
        found = depth - 1
        while found >= 0 and stack[found] != activity:
            found -= 1
        # An end whose begin was discarded discards all that is open.
        depth = max(found, 0)
        if found < 0:
            continue
        ended_at[activity] = at
        self_time[activity] += duration[activity]
        if depth > 0:
            self_time[stack[depth - 1]] -= duration[activity]


def match_activities(start_ps: Int64s, duration_ps: Int64s) -> Activities:
    """Ends matched with begins, all sorted by time and, at one time, in the order given.

    An end discards the activities that began after its own and have not ended, even those
    that end at the same time; the end of a discarded activity discards all that are open.

    Args:
        start_ps: Picoseconds, shape (n,); not sorted.
        duration_ps: Picoseconds, shape (n,).
    """
    start, duration = writable_int64s(start_ps), writable_int64s(duration_ps)
    check_lengths(start, duration)
    times = np.empty(2 * len(start), np.int64)
    times[0::2] = start
    times[1::2] = start + duration
    order = np.argsort(times, kind="stable").astype(np.int64, copy=False)
    ended_at = np.full(len(start), -1, np.int64)
    self_ps = np.zeros(len(start), np.int64)
    _match(order, duration, np.empty_like(duration), ended_at, self_ps)
    return Activities(ended_at, self_ps)
