"""A kernel that sums events by a code."""

from dataclasses import dataclass

import numpy as np

from podscope_analyzers.kernels.compiled import kernel
from podscope_analyzers.kernels.spans import (
    Int32s,
    Int64s,
    check_lengths,
    writable_int32s,
    writable_int64s,
)


@dataclass(frozen=True)
class GroupSums:
    """Sums of the events of each code, all of shape (k,), int64.

    Attributes:
        occurrences: Events.
        time_ps: Sum of durations.
        self_ps: Sum of self times.
        min_ps: Shortest duration; 0 for a code without events.
        first: Index of the first event; -1 for a code without events.
    """

    occurrences: Int64s
    time_ps: Int64s
    self_ps: Int64s
    min_ps: Int64s
    first: Int64s


@kernel("void(i4[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])")
def _sum_groups(
    codes: Int32s,
    duration: Int64s,
    self_time: Int64s,
    occurrences: Int64s,
    time_sum: Int64s,
    self_sum: Int64s,
    shortest: Int64s,
    first: Int64s,
) -> None:
    for i in range(codes.size):
        code = codes[i]
        if code < 0 or code >= occurrences.size:
            continue
        if occurrences[code] == 0:
            shortest[code] = duration[i]
            first[code] = i
        elif duration[i] < shortest[code]:
            shortest[code] = duration[i]
        occurrences[code] += 1
        time_sum[code] += duration[i]
        self_sum[code] += self_time[i]


def sum_groups(codes: Int32s, count: int, duration_ps: Int64s, self_ps: Int64s) -> GroupSums:
    """Sums of events by code.

    Args:
        codes: Of every event, shape (n,); events of a code outside 0..count-1 are left out.
        count: Number of codes, k.
        duration_ps: Picoseconds, shape (n,).
        self_ps: Picoseconds, shape (n,).
    """
    check_lengths(codes, duration_ps, self_ps)
    sums = GroupSums(
        occurrences=np.zeros(count, np.int64),
        time_ps=np.zeros(count, np.int64),
        self_ps=np.zeros(count, np.int64),
        min_ps=np.zeros(count, np.int64),
        first=np.full(count, -1, np.int64),
    )
    _sum_groups(
        writable_int32s(codes),
        writable_int64s(duration_ps),
        writable_int64s(self_ps),
        sums.occurrences,
        sums.time_ps,
        sums.self_ps,
        sums.min_ps,
        sums.first,
    )
    return sums
