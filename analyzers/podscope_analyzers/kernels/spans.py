"""Kernels on time spans: order, nesting with self times, union."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels.compiled import inner, kernel

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
UInt8s = npt.NDArray[np.uint8]


def writable_int64s(values: npt.ArrayLike) -> Int64s:
    """The values as the kind of array that kernels take; copied only when they are not."""
    return np.require(values, np.int64, ["C", "W"])


def check_lengths(*arrays: npt.NDArray[Any]) -> None:
    """Kernels do not check bounds, so that columns of one length is checked here.

    Raises:
        ValueError: the lengths differ.
    """
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        problem = f"columns of one line differ in length: {sorted(lengths)}"
        raise ValueError(problem)


def writable_int32s(values: npt.ArrayLike) -> Int32s:
    """The values as the kind of array that kernels take; copied only when they are not."""
    return np.require(values, np.int32, ["C", "W"])


@kernel("b1(i8[::1], i8[::1])")
def _is_natural(start: Int64s, duration: Int64s) -> bool:
    for i in range(1, start.size):
        if start[i] < start[i - 1]:
            return False
        if start[i] == start[i - 1] and duration[i] > duration[i - 1]:
            return False
    return True


def natural_order(start_ps: Int64s, duration_ps: Int64s) -> Int64s | None:
    """The order of start ascending, then duration descending: outer spans before inner.

    Equal spans keep their order.

    Args:
        start_ps: Picoseconds, shape (n,).
        duration_ps: Picoseconds, shape (n,).

    Returns:
        Indices, shape (n,); None when the spans are in that order already, as most lines
        are.
    """
    start, duration = writable_int64s(start_ps), writable_int64s(duration_ps)
    check_lengths(start, duration)
    if _is_natural(start, duration):
        return None
    return np.lexsort((-duration, start))


def by_time(start_ps: Int64s, duration_ps: Int64s) -> Int64s:
    """The order of start ascending, then duration ascending; equal spans keep their order.

    Spans that are nearly in order, as several lines one after the other are, take a fifth of
    the time of a sort by both.

    Args:
        start_ps: Picoseconds, shape (n,).
        duration_ps: Picoseconds, shape (n,).
    """
    check_lengths(start_ps, duration_ps)
    order = np.argsort(start_ps, kind="stable")
    start, duration = start_ps[order], duration_ps[order]
    tied = start[1:] == start[:-1]
    if np.any(tied & (duration[1:] < duration[:-1])):
        among = np.append(tied, False) | np.append(False, tied)
        at = np.flatnonzero(among)
        order[at] = order[at][np.lexsort((duration[at], start[at]))]
    return order


@dataclass(frozen=True)
class Nesting:
    """Which span lies in which.

    Attributes:
        parent: Index of the innermost span around each, shape (n,), int32; -1 without one.
        self_ps: Duration less that of the direct children, shape (n,), int64. Below zero
            when children overlap each other, which only spans of equal ends can.
    """

    parent: Int32s
    self_ps: Int64s


@kernel("void(i8[::1], i8[::1], b1[::1], i4[::1], i8[::1])")
def _nest(start: Int64s, duration: Int64s, apart: Bools, parent: Int32s, self_time: Int64s) -> None:
    # The parents are the stack: popping is following them.
    top = -1
    for i in range(start.size):
        parent[i] = -1
        self_time[i] = duration[i]
        if apart.size and apart[i]:
            continue
        end = start[i] + duration[i]
        while top >= 0 and (start[top] > start[i] or start[top] + duration[top] < end):
            top = parent[top]
        parent[i] = top
        if top >= 0:
            self_time[top] -= duration[i]
        top = i


def nest(start_ps: Int64s, duration_ps: Int64s, apart: Bools | None = None) -> Nesting:
    """Nesting of spans in natural order, ends included: a span at another's end is in it.

    Each span pops those off a stack that do not include it; the top is then its parent, and
    it is pushed itself.

    Args:
        start_ps: Picoseconds, shape (n,), sorted (see ``natural_order``).
        duration_ps: Picoseconds, shape (n,).
        apart: Spans that are neither parent nor child (asynchronous ones), shape (n,).
    """
    start, duration = writable_int64s(start_ps), writable_int64s(duration_ps)
    check_lengths(start, duration)
    aside = np.empty(0, np.bool_)
    if apart is not None:
        aside = np.require(apart, np.bool_, ["C", "W"])
        check_lengths(start, aside)
    parent, self_ps = np.empty(start.shape, np.int32), np.empty(start.shape, np.int64)
    _nest(start, duration, aside, parent, self_ps)
    return Nesting(parent, self_ps)


@kernel("i8(i8[::1], i8[::1], i8[::1], i8[::1])")
def _union(start: Int64s, end: Int64s, union_start: Int64s, union_end: Int64s) -> int:
    count = 0
    for i in range(start.size):
        if count and start[i] <= union_end[count - 1]:
            union_end[count - 1] = max(union_end[count - 1], end[i])
        else:
            union_start[count] = start[i]
            union_end[count] = end[i]
            count += 1
    return count


def union(start_ps: Int64s, end_ps: Int64s) -> tuple[Int64s, Int64s]:
    """Spans merged where they overlap or touch.

    Args:
        start_ps: Picoseconds, shape (n,), in any order.
        end_ps: Picoseconds, shape (n,), none before its start.

    Returns:
        Starts and ends of the merged spans, ascending, shape (m,).
    """
    start, end = writable_int64s(start_ps), writable_int64s(end_ps)
    check_lengths(start, end)
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    union_start, union_end = np.empty_like(start), np.empty_like(end)
    count = _union(start, end, union_start, union_end)
    return union_start[:count].copy(), union_end[:count].copy()


@inner
def _note_span(begin: int, end: int, count: int, union_start: Int64s, union_end: Int64s) -> int:
    if begin >= end:
        return count
    if count and union_start[count - 1] <= begin <= union_end[count - 1]:
        union_end[count - 1] = max(union_end[count - 1], end)
        return count
    union_start[count] = begin
    union_end[count] = end
    return count + 1


@kernel("i8(i8[::1], i8[::1], i4[::1], u1[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])")
def _own_time_of_rows(
    start: Int64s,
    duration: Int64s,
    rows: Int32s,
    chosen: UInt8s,
    whole: Int64s,
    around: Int64s,
    told: Int64s,
    union_start: Int64s,
    union_end: Int64s,
) -> int:
    # ``around`` is the stack of spans that are not over, ``told`` up to where the own time of
    # each is noted.
    count = 0
    depth = 0
    first = start[0]
    last = start[0] + duration[0]
    for i in range(start.size + 1):
        is_over = i == start.size
        begin = last if is_over else start[i]
        end = last if is_over else begin + duration[i]
        while depth:
            top = around[depth - 1]
            top_end = start[top] + duration[top]
            if not is_over and start[top] <= begin and end <= top_end:
                break
            depth -= 1
            row = rows[top]
            if 0 <= row < chosen.size and chosen[row]:
                count = _note_span(told[depth], top_end, count, union_start, union_end)
            if depth:
                told[depth - 1] = max(told[depth - 1], top_end)
        if is_over:
            break
        first = min(first, begin)
        last = max(last, end)
        if depth:
            row = rows[around[depth - 1]]
            if 0 <= row < chosen.size and chosen[row]:
                count = _note_span(told[depth - 1], begin, count, union_start, union_end)
        around[depth] = i
        told[depth] = begin
        depth += 1
    whole[0] = first
    whole[1] = last
    return count


def own_time_of_rows(
    start_ps: Int64s, duration_ps: Int64s, rows: Int32s, chosen: Bools
) -> tuple[Int64s, Int64s, tuple[int, int]]:
    """The union of the own time of some rows' spans, and the extent of all spans.

    A span's own time is what is left of it without the spans in it, as ``nest`` finds them.

    Args:
        start_ps: Picoseconds, shape (n,), n above 0; outer spans before inner.
        duration_ps: Picoseconds, shape (n,), none below 0.
        rows: Of every span, shape (n,).
        chosen: Which rows, shape (m,).

    Returns:
        Starts and ends of the merged spans, as of ``union``; first start and last end of all.
    """
    start, duration = writable_int64s(start_ps), writable_int64s(duration_ps)
    check_lengths(start, duration, rows)
    if not len(start):
        problem = "no spans have no extent"
        raise ValueError(problem)
    whole = np.zeros(2, np.int64)
    # Merged spans and levels are few; what is not written to takes no memory.
    around, told = np.empty_like(start), np.empty_like(start)
    union_start, union_end = (np.empty(2 * len(start), np.int64) for _ in range(2))
    is_chosen = np.require(chosen, np.uint8, ["C", "W"])
    count = _own_time_of_rows(
        start,
        duration,
        writable_int32s(rows),
        is_chosen,
        whole,
        around,
        told,
        union_start,
        union_end,
    )
    first, last = whole.tolist()
    return *union(union_start[:count], union_end[:count]), (first, last)


@kernel("void(i8[::1], i8[::1], i8[::1])")
def _extent(start: Int64s, duration: Int64s, found: Int64s) -> None:
    first = start[0]
    last = start[0] + duration[0]
    for i in range(start.size):
        first = min(first, start[i])
        last = max(last, start[i] + duration[i])
    found[0] = first
    found[1] = last


def extent(start_ps: Int64s, duration_ps: Int64s) -> tuple[int, int]:
    """First start and last end of spans, picoseconds; both arrays (n,), n above 0."""
    start, duration = writable_int64s(start_ps), writable_int64s(duration_ps)
    check_lengths(start, duration)
    if not len(start):
        problem = "no spans have no extent"
        raise ValueError(problem)
    found = np.empty(2, np.int64)
    _extent(start, duration, found)
    first, last = found.tolist()
    return first, last


def union_length(start_ps: Int64s, end_ps: Int64s) -> int:
    """Time covered by at least one span, in the spans' unit."""
    start, end = union(start_ps, end_ps)
    return int(np.sum(end - start))
