"""Kernels on the steps of hosts."""

import numpy as np

from podscope_analyzers.kernels.compiled import kernel
from podscope_analyzers.kernels.spans import Bools, Int64s, check_lengths, writable_int64s


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


@kernel("i8(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])")
def _outermost_within(
    start: Int64s,
    end: Int64s,
    first: Int64s,
    last: Int64s,
    limit: Int64s,
    found: Int64s,
    around: Int64s,
) -> int:
    count = 0
    for at in range(first.size):
        is_first = True
        latest = 0
        for i in range(first[at], last[at]):
            if end[i] > limit[at]:
                continue
            if is_first or start[i] >= latest:
                if count < found.size:
                    found[count] = i
                    around[count] = at
                count += 1
            # A long span may outlive later, shorter ones: compare with the latest end so far.
            latest = end[i] if is_first else max(latest, end[i])
            is_first = False
    return count


def outermost_within(
    start_ps: Int64s, end_ps: Int64s, first: Int64s, last: Int64s, limit_ps: Int64s
) -> tuple[Int64s, Int64s]:
    """Of some ranges of spans, those that end in time and lie in none before them.

    Args:
        start_ps: Of every span, ascending, shape (n,).
        end_ps: Shape (n,).
        first: First span of each range, shape (m,).
        last: The one behind its last, at most n, shape (m,).
        limit_ps: Latest end that counts in each range, shape (m,).

    Returns:
        The spans, and the range that each was found in; both of shape (k,).
    """
    check_lengths(start_ps, end_ps)
    check_lengths(first, last, limit_ps)
    start, end = writable_int64s(start_ps), writable_int64s(end_ps)
    ranges = writable_int64s(first), writable_int64s(last), writable_int64s(limit_ps)
    nothing = np.zeros(0, np.int64)
    count = _outermost_within(start, end, *ranges, nothing, nothing)
    found, around = np.empty(count, np.int64), np.empty(count, np.int64)
    _outermost_within(start, end, *ranges, found, around)
    return found, around


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
