"""Kernels on the steps of hosts."""

from dataclasses import dataclass

import numpy as np

from podscope_analyzers.kernels.compiled import kernel
from podscope_analyzers.kernels.spans import (
    Bools,
    Int32s,
    Int64s,
    check_lengths,
    writable_int32s,
    writable_int64s,
)


@kernel("void(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])")
def _overlap_by_offset(
    begin: Int64s, end: Int64s, other_begin: Int64s, other_end: Int64s, overlap: Int64s
) -> None:
    n, m = begin.size, other_begin.size
    i = 0
    j = 0
    while i < n and j < m:
        if end[i] <= begin[i]:
            i += 1
        elif other_end[j] <= other_begin[j]:
            j += 1
        else:
            shared = min(end[i], other_end[j]) - max(begin[i], other_begin[j])
            if shared > 0:
                overlap[n + j - i] += shared
            ends_first = end[i] <= other_end[j]
            ends_last = end[i] >= other_end[j]
            if ends_first:
                i += 1
            if ends_last:
                j += 1


def overlap_by_offset(begin: Int64s, end: Int64s, other_begin: Int64s, other_end: Int64s) -> Int64s:
    """How long two lists of spans overlap for every offset between their numberings.

    A sweep compares the current span of either list and leaves the one that ends first, both
    when they end together; spans without duration are passed over.

    Args:
        begin: Picoseconds, shape (n,).
        end: Shape (n,).
        other_begin: Shape (m,).
        other_end: Shape (m,).

    Returns:
        Shape (n + m,): at ``n + k``, the overlap of the spans i with the other spans i + k.
    """
    check_lengths(begin, end)
    check_lengths(other_begin, other_end)
    overlap = np.zeros(len(begin) + len(other_begin), np.int64)
    _overlap_by_offset(
        writable_int64s(begin),
        writable_int64s(end),
        writable_int64s(other_begin),
        writable_int64s(other_end),
        overlap,
    )
    return overlap


@kernel(
    "i8(i8[::1], i8[::1], i4[::1], b1[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1],"
    " i8[::1], i8[::1], i8[::1])"
)
def _sum_outermost(
    start: Int64s,
    end: Int64s,
    kind: Int32s,
    is_shown: Bools,
    first: Int64s,
    last: Int64s,
    limit: Int64s,
    latest_sum: Int64s,
    around: Int64s,
    sum_kind: Int64s,
    time_ps: Int64s,
    shown: Int64s,
    report: Int64s,
) -> int:
    sums = 0
    shows = 0
    for at in range(first.size):
        first_sum = sums
        is_first = True
        latest = 0
        for i in range(first[at], last[at]):
            if end[i] > limit[at]:
                continue
            if is_first or start[i] >= latest:
                of = latest_sum[kind[i]]
                if of < first_sum:
                    of = sums
                    latest_sum[kind[i]] = of
                    sums += 1
                if of < time_ps.size:
                    around[of] = at
                    sum_kind[of] = kind[i]
                    time_ps[of] += end[i] - start[i]
                if is_shown[kind[i]]:
                    if shows < shown.size:
                        shown[shows] = i
                    shows += 1
            # A long span may outlive later, shorter ones: compare with the latest end so far.
            latest = end[i] if is_first else max(latest, end[i])
            is_first = False
    report[0] = shows
    return sums


@dataclass(frozen=True)
class OutermostSums:
    """Times of the outermost spans of some ranges by kind.

    Attributes:
        around: The range of every sum, shape (k,).
        kind: Of its spans, shape (k,).
        time_ps: Their durations together, shape (k,).
        shown: The outermost spans of the kinds that are to be shown, shape (s,).
    """

    around: Int64s
    kind: Int64s
    time_ps: Int64s
    shown: Int64s


def sum_outermost(
    start_ps: Int64s,
    end_ps: Int64s,
    kind: Int32s,
    is_shown: Bools,
    ranges: tuple[Int64s, Int64s, Int64s],
) -> OutermostSums:
    """Sums the spans of some ranges that end in time and lie in none before them.

    Args:
        start_ps: Of every span, ascending, shape (n,).
        end_ps: Shape (n,).
        kind: Of every span, shape (n,).
        is_shown: Of every kind, whether its spans are wanted one by one, shape (m,).
        ranges: First span of each range, the one behind its last, at most n, and the latest end
            that counts; all of shape (r,).
    """
    check_lengths(start_ps, end_ps, kind)
    check_lengths(*ranges)
    spans = writable_int64s(start_ps), writable_int64s(end_ps), writable_int32s(kind)
    first, last, limit = (writable_int64s(each) for each in ranges)
    shows = np.require(is_shown, np.bool_, ["C", "W"])
    report = np.zeros(1, np.int64)
    sums, shown = (np.zeros((3, 0), np.int64), np.zeros(0, np.int64))
    # Once to count.
    for _ in range(2):
        seen = np.full(len(is_shown), -1, np.int64)
        count = _sum_outermost(
            *spans, shows, first, last, limit, seen, sums[0], sums[1], sums[2], shown, report
        )
        if count == len(sums[0]):
            break
        sums, shown = np.zeros((3, count), np.int64), np.empty(report[0], np.int64)
    return OutermostSums(sums[0], sums[1], sums[2], shown)


@kernel("void(i8[::1], i8[::1], i8, i8[::1], i8[::1], i8[:, ::1], b1[:, ::1], i8[::1], i8[::1])")
def sweep_steps(
    keys: Int64s,
    offsets: Int64s,
    base: int,
    begin: Int64s,
    end: Int64s,
    time_ps: Int64s,
    present: Bools,
    total_ps: Int64s,
    active: Int64s,
) -> None:
    """Gives every moment of each step to the highest type that is active.

    Args:
        keys: Boundaries of events, sorted within each step: the time from ``base`` times 64,
            plus 32 for a start, plus 31 less the type.
        offsets: Step s has the keys ``offsets[s]`` to ``offsets[s + 1]``.
        base: Picoseconds.
        begin: Of every step, shape (s,).
        end: Of every step, shape (s,).
        time_ps: Filled: time of each type within the step, shape (s, 32).
        present: Filled: types that were the highest at some moment, shape (s, 32).
        total_ps: Filled: time of each type over all steps, not cut to them, shape (32,).
        active: Room for the events that are active of each type, shape (32,).
    """
    for s in range(begin.size):
        for kind in range(active.size):
            active[kind] = 0
        highest = 0
        for i in range(offsets[s], offsets[s + 1] - 1):
            kind = 31 - (keys[i] & 31)
            if keys[i] & 32:
                active[kind] += 1
                if kind > highest:
                    highest = kind
            else:
                active[kind] -= 1
                # An event without duration ends before it starts, and stays the highest until
                # another of its type ends: so the reference counts.
                if kind == highest and active[kind] == 0:
                    while highest > 0 and active[highest] <= 0:
                        highest -= 1
            low = base + (keys[i] >> 6)
            high = base + (keys[i + 1] >> 6)
            total_ps[highest] += high - low
            present[s, highest] = True
            shared = min(high, end[s]) - max(low, begin[s])
            if shared > 0:
                time_ps[s, highest] += shared
