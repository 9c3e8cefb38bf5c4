"""Kernels that sum events by a code."""

from dataclasses import dataclass

import numpy as np

from podscope_analyzers.kernels.compiled import inner, kernel
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


@dataclass(frozen=True)
class Cells:
    """A table of which each event has one cell, by two codes; cells are numbered row by row.

    Attributes:
        outer: One code of every event, -1 for none, shape (n,).
        row: The table's row of each outer code; -1 for none, which has no cell.
        inner: The other code of every event, shape (n,).
        column: The table's column of each inner code; of no other is there a cell.
        width: Columns of the table; it has fewer than 2**31 cells.
    """

    outer: Int32s
    row: Int32s
    inner: Int32s
    column: Int32s
    width: int

    def numbers(self) -> Int32s:
        """The number of every event's cell, -1 for none, shape (n,)."""
        check_lengths(self.outer, self.inner)
        found = np.empty(len(self.outer), np.int32)
        _number_cells(*self._arguments(), found)
        return found

    def _arguments(self) -> tuple[Int32s, Int32s, Int32s, Int32s, int]:
        arrays = (self.outer, self.row, self.inner, self.column)
        outer, row, inner, column = (writable_int32s(array) for array in arrays)
        return outer, row, inner, column, self.width


@inner
def _cell(i: int, outer: Int32s, row: Int32s, inner: Int32s, column: Int32s, width: int) -> int:
    """The cell of one event; its inner code itself where there is no outer one."""
    code: int = inner[i]
    if outer.size > 0:
        if outer[i] < 0 or outer[i] >= row.size or code < 0 or code >= column.size:
            return -1
        if row[outer[i]] < 0:
            return -1
        code = row[outer[i]] * width + column[code]
    return code


@kernel("void(i4[::1], i4[::1], i4[::1], i4[::1], i8, i4[::1])")
def _number_cells(
    outer: Int32s, row: Int32s, inner: Int32s, column: Int32s, width: int, found: Int32s
) -> None:
    for i in range(inner.size):
        found[i] = _cell(i, outer, row, inner, column, width)


@kernel(
    "void(i4[::1], i4[::1], i4[::1], i4[::1], i8, i8[::1], i8[::1], i4[::1],"
    " i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])",
)
def _sum_nested(
    outer: Int32s,
    row: Int32s,
    inner: Int32s,
    column: Int32s,
    width: int,
    start: Int64s,
    duration: Int64s,
    stack: Int32s,
    occurrences: Int64s,
    time_sum: Int64s,
    self_sum: Int64s,
    shortest: Int64s,
    first: Int64s,
) -> None:
    depth = 0
    for i in range(inner.size):
        code = _cell(i, outer, row, inner, column, width)
        if code < 0:
            continue
        begin = start[i]
        span = duration[i]
        end = begin + span
        while depth > 0:
            top = stack[depth - 1]
            if start[top] <= begin and start[top] + duration[top] >= end:
                break
            depth -= 1
        if depth > 0:
            around = _cell(stack[depth - 1], outer, row, inner, column, width)
            if around < occurrences.size:
                self_sum[around] -= span
        stack[depth] = i
        depth += 1
        if code >= occurrences.size:
            continue
        if occurrences[code] == 0:
            shortest[code] = span
            first[code] = i
        elif span < shortest[code]:
            shortest[code] = span
        occurrences[code] += 1
        time_sum[code] += span
        self_sum[code] += span


def sum_nested(
    codes: Int32s | Cells, count: int, start_ps: Int64s, duration_ps: Int64s
) -> GroupSums:
    """Sums by code of events that lie in each other, as ``nest`` and ``sum_groups`` make them.

    No array of the events' size is filled on the way.

    Args:
        codes: Of every event, shape (n,), or its cell. One below 0 takes no part; one of
            ``count`` or more is not summed, but those around it lose its time.
        count: Number of codes, k.
        start_ps: Picoseconds, shape (n,), in natural order (see ``spans.natural_order``).
        duration_ps: Picoseconds, shape (n,).
    """
    cells = codes
    if not isinstance(cells, Cells):
        nothing = np.empty(0, np.int32)
        cells = Cells(nothing, nothing, cells, nothing, 0)
    else:
        check_lengths(cells.outer, cells.inner)
    check_lengths(cells.inner, start_ps, duration_ps)
    sums = GroupSums(
        occurrences=np.zeros(count, np.int64),
        time_ps=np.zeros(count, np.int64),
        self_ps=np.zeros(count, np.int64),
        min_ps=np.zeros(count, np.int64),
        first=np.full(count, -1, np.int64),
    )
    _sum_nested(
        *cells._arguments(),
        writable_int64s(start_ps),
        writable_int64s(duration_ps),
        # As deep as the events lie in each other; the rest takes no memory.
        np.empty(len(cells.inner), np.int32),
        sums.occurrences,
        sums.time_ps,
        sums.self_ps,
        sums.min_ps,
        sums.first,
    )
    return sums


@kernel("void(i4[::1], i8[::1])")
def _count_codes(codes: Int32s, counts: Int64s) -> None:
    for i in range(codes.size):
        code = codes[i]
        if 0 <= code < counts.size:
            counts[code] += 1


def count_codes(codes: Int32s, count: int) -> Int64s:
    """How often each code below ``count`` occurs, shape (count,).

    As ``numpy.bincount``, which makes a copy of twice the size first.
    """
    counts = np.zeros(count, np.int64)
    _count_codes(writable_int32s(codes), counts)
    return counts
