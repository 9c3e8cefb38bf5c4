import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podscope_analyzers.kernels import (
    Cells,
    count_codes,
    extent,
    factorise,
    natural_order,
    nest,
    own_time_of_rows,
    sum_groups,
    sum_nested,
    union,
    union_length,
)
from podscope_analyzers.kernels.steps import overlap_by_offset, sum_outermost
from podscope_analyzers.step_annotations import outermost

Span = tuple[int, int]
Int64s = npt.NDArray[np.int64]
_rows = st.tuples(st.integers(-1, 4), st.integers(0, 9), st.integers(-9, 9))
_span = st.tuples(st.integers(0, 30), st.integers(0, 12))
_spans = st.lists(_span, max_size=30)


def _natural(spans: list[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span[0], -span[1]))


def _arrays(spans: list[Span]) -> tuple[Int64s, Int64s]:
    table = np.array(spans, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _nest_slowly(spans: list[Span], apart: list[bool]) -> tuple[list[int], list[int]]:
    """The rule as it is written: a stack, popped while its top does not include the span."""
    parents, own, stack = [], [duration for _, duration in spans], list[int]()
    for i, (start, duration) in enumerate(spans):
        if apart[i]:
            parents.append(-1)
            continue
        while stack:
            top_start, top_duration = spans[stack[-1]]
            if top_start <= start and start + duration <= top_start + top_duration:
                break
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        if stack:
            own[stack[-1]] -= duration
        stack.append(i)
    return parents, own


def test_nesting_gives_the_innermost_span_around_each() -> None:
    # outer 0-10, in it 0-4 (in that 2-4) and 5-10 (in that the instant 5).
    nesting = nest(*_arrays([(0, 10), (0, 4), (2, 2), (5, 5), (5, 0)]))
    assert nesting.parent.tolist() == [-1, 0, 1, 0, 3]
    assert nesting.self_ps.tolist() == [1, 2, 2, 5, 0]


@pytest.mark.case("A4", "A8")
@pytest.mark.parametrize(
    ("outer", "inner", "includes"),
    [
        ((10, 5), (10, 6), False),
        ((10, 0), (10, 1), False),
        ((12, 0), (9, 100), False),
        ((10, 2), (12, 0), True),
        ((12, 1), (12, 0), True),
    ],
)
def test_what_includes_what(outer: Span, inner: Span, includes: bool) -> None:
    assert nest(*_arrays([outer, inner])).parent.tolist() == [-1, 0 if includes else -1]


@pytest.mark.case("A7")
def test_of_spans_that_begin_together_the_longer_is_first() -> None:
    order = natural_order(*_arrays([(12, 0), (12, 1)]))
    assert order is not None
    assert order.tolist() == [1, 0]


@pytest.mark.case("A1", "A2", "A9")
@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ((12, 2), (9, 3), 0),
        ((12, 2), (9, 4), 1),
        ((12, 2), (9, 5), 2),
        ((12, 2), (9, 6), 2),
        ((12, 2), (13, 1), 1),
        ((12, 2), (13, 2), 1),
        ((12, 2), (14, 1), 0),
        ((12, 5), (13, 2), 2),
        ((12, 2), (8, 0), 0),
        ((12, 2), (13, 0), 0),
        ((12, 2), (14, 0), 0),
        ((12, 0), (8, 16), 0),
    ],
)
def test_two_spans_overlap_for(one: Span, other: Span, overlap: int) -> None:
    begin, duration = _arrays([one])
    other_begin, other_duration = _arrays([other])
    found = overlap_by_offset(begin, begin + duration, other_begin, other_begin + other_duration)
    assert found.sum() == overlap


@pytest.mark.case("A3")
def test_an_instant_at_the_end_of_a_span_lies_in_it() -> None:
    assert nest(*_arrays([(10, 2), (12, 0)])).parent.tolist() == [-1, 0]
    assert nest(*_arrays([(10, 2), (12, 1)])).parent.tolist() == [-1, -1]


def test_spans_set_apart_are_neither_parent_nor_child() -> None:
    nesting = nest(*_arrays([(0, 10), (1, 8), (2, 3)]), np.array([False, True, False]))
    assert nesting.parent.tolist() == [-1, -1, 0]
    assert nesting.self_ps.tolist() == [7, 8, 3]


@settings(deadline=None)
@given(_spans, st.data())
def test_nesting_equals_the_stack_of_its_definition(spans: list[Span], data: st.DataObject) -> None:
    ordered = _natural(spans)
    n = len(ordered)
    apart = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    nesting = nest(*_arrays(ordered), np.array(apart, np.bool_))
    assert (nesting.parent.tolist(), nesting.self_ps.tolist()) == _nest_slowly(ordered, apart)


@settings(deadline=None)
@given(_spans, st.integers(-1000, 1000))
def test_moving_all_spans_in_time_changes_no_nesting(spans: list[Span], shift: int) -> None:
    start, duration = _arrays(_natural(spans))
    here, there = nest(start, duration), nest(start + shift, duration)
    assert here.parent.tolist() == there.parent.tolist()
    assert here.self_ps.tolist() == there.self_ps.tolist()


@settings(deadline=None)
@given(_spans)
def test_natural_order_is_start_then_longest_first_and_stable(spans: list[Span]) -> None:
    order = natural_order(*_arrays(spans))
    expected = sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][1]))
    assert (list(range(len(spans))) if order is None else order.tolist()) == expected
    assert natural_order(*_arrays(_natural(spans))) is None


@settings(deadline=None)
@given(_spans)
def test_the_union_covers_what_the_spans_cover(spans: list[Span]) -> None:
    start, duration = _arrays(spans)
    covered = {t for s, d in spans for t in range(s, s + d)}
    assert union_length(start, start + duration) == len(covered)
    starts, ends = union(start, start + duration)
    assert {t for s, e in zip(starts, ends, strict=True) for t in range(s, e)} == covered
    # Apart by more than nothing, or they would have been merged.
    assert np.all(starts[1:] > ends[:-1])


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-1, 4), st.integers(0, 9), st.integers(-9, 9)),
        min_size=1,
        max_size=40,
    )
)
def test_group_sums_equal_a_loop_over_events(rows: list[tuple[int, int, int]]) -> None:
    codes, durations, own = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    sums = sum_groups(codes.astype(np.int32), 4, durations, own)
    for code in range(4):
        mine = [(i, row) for i, row in enumerate(rows) if row[0] == code]
        assert sums.occurrences[code] == len(mine)
        assert sums.time_ps[code] == sum(row[1] for _, row in mine)
        assert sums.self_ps[code] == sum(row[2] for _, row in mine)
        assert sums.min_ps[code] == min((row[1] for _, row in mine), default=0)
        assert sums.first[code] == (mine[0][0] if mine else -1)


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)), max_size=60),
    st.sampled_from([1, 60]),
)
def test_factorising_numbers_ids_by_appearance(values: list[int], repeats: int) -> None:
    ids = np.array(values * repeats, np.int64)
    codes, distinct = factorise(ids)
    assert distinct.tolist() == list(dict.fromkeys(values))
    assert distinct[codes].tolist() == ids.tolist()


def test_factorising_grows_with_the_number_of_distinct_ids() -> None:
    ids = np.arange(100_000, dtype=np.int64)[::-1] << 20
    codes, distinct = factorise(ids)
    assert codes.tolist() == list(range(100_000))
    assert np.array_equal(distinct, ids)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        nest(np.zeros(3, np.int64), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="differ in length"):
        sum_groups(np.zeros(3, np.int32), 1, np.zeros(3, np.int64), np.zeros(2, np.int64))


_ranges = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40)), max_size=5
)


@given(spans=_spans, ranges=_ranges)
def test_sums_of_ranges_are_of_the_outermost_spans_of_each(
    spans: list[Span], ranges: list[tuple[int, int, int]]
) -> None:
    start, duration = _arrays(_natural(spans))
    end = start + duration
    first, last, limit = np.array(ranges, np.int64).reshape(-1, 3).T
    last = np.minimum(last, len(spans))
    kind = np.arange(len(spans), dtype=np.int32) % 3
    is_shown = np.array([False, True, False])
    expected: dict[tuple[int, int], int] = {}
    shown: list[int] = []
    for at, (low, high, latest) in enumerate(zip(first, last, limit, strict=True)):
        inside = np.arange(low, high)
        inside = inside[end[inside] <= latest]
        for i in inside[outermost(start[inside], end[inside])].tolist():
            expected[at, int(kind[i])] = expected.get((at, int(kind[i])), 0) + int(duration[i])
            shown += [i] * bool(is_shown[kind[i]])

    sums = sum_outermost(start, end, kind, is_shown, (first, last, limit))

    keys = zip(sums.around.tolist(), sums.kind.tolist(), strict=True)
    assert dict(zip(keys, sums.time_ps.tolist(), strict=True)) == expected
    assert len(sums.around) == len(expected)
    assert sums.shown.tolist() == shown


@settings(deadline=None)
@given(_spans, st.data())
def test_sums_of_nested_events_equal_nesting_and_then_summing(
    spans: list[Span], data: st.DataObject
) -> None:
    start, duration = (column.copy() for column in _arrays(_natural(spans)))
    n = len(start)
    drawn = st.lists(st.integers(-1, 4), min_size=n, max_size=n)
    codes = np.array(data.draw(drawn), np.int32)
    found = sum_nested(codes, 3, start, duration)
    taking_part = np.flatnonzero(codes >= 0)
    start, duration = start[taking_part], duration[taking_part]
    self_ps = nest(start, duration).self_ps
    expected = sum_groups(codes[taking_part], 3, duration, self_ps)
    for name in ("occurrences", "time_ps", "self_ps", "min_ps"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    assert found.first.tolist() == [
        int(taking_part[at]) if at >= 0 else -1 for at in expected.first.tolist()
    ]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 4)), max_size=12),
    st.lists(st.integers(-1, 2), max_size=4),
    st.lists(st.integers(0, 4), max_size=4),
)
def test_cells_of_a_table_are_those_of_their_codes(
    pairs: list[tuple[int, int]], row: list[int], column: list[int]
) -> None:
    outer, inner = (column.astype(np.int32) for column in _arrays(pairs))
    cells = Cells(outer, np.array(row, np.int32), inner, np.array(column, np.int32), 5)

    def number(a: int, b: int) -> int:
        if not (0 <= a < len(row) and 0 <= b < len(column)) or row[a] < 0:
            return -1
        return row[a] * 5 + column[b]

    numbers = [number(a, b) for a, b in pairs]
    assert cells.numbers().tolist() == numbers
    # Sums by cell are those by its number.
    start, duration = np.arange(len(pairs)), np.full(len(pairs), 2)
    by_number = sum_nested(np.array(numbers, np.int32), 20, start, duration)
    by_cell = sum_nested(cells, 20, start, duration)
    assert by_cell.self_ps.tolist() == by_number.self_ps.tolist()
    assert by_cell.first.tolist() == by_number.first.tolist()


@settings(deadline=None)
@given(st.lists(st.tuples(_span, st.integers(-1, 3)), min_size=1, max_size=30))
def test_own_time_is_what_the_spans_within_leave_of_a_span(
    drawn: list[tuple[Span, int]],
) -> None:
    drawn = sorted(drawn, key=lambda one: (one[0][0], -one[0][1]))
    start, duration = (column.copy() for column in _arrays([span for span, _ in drawn]))
    rows = np.array([row for _, row in drawn], np.int32)
    begin, end, extents = own_time_of_rows(start, duration, rows, np.array([True, False, True]))
    own, around = [], list[int]()
    spans = [(b, b + d) for (b, d), _ in drawn]
    for at, (b, e) in enumerate(spans):
        while around and not (spans[around[-1]][0] <= b and e <= spans[around[-1]][1]):
            around.pop()
        own.append(set(range(b, e)))
        if around:
            own[around[-1]] -= set(range(b, e))
        around.append(at)
    expected = set[int]().union(*(own[at] for at in np.flatnonzero(np.isin(rows, (0, 2)))))
    covered = [set(range(b, e)) for b, e in zip(begin.tolist(), end.tolist(), strict=True)]
    assert set[int]().union(*covered) == expected
    # Ascending, apart from each other, none empty.
    assert (begin < end).all()
    assert (end[:-1] < begin[1:]).all()
    assert extents == extent(start, duration)
    assert extents == (int(start.min()), int((start + duration).max()))


@given(st.lists(st.integers(-2, 6), max_size=30), st.integers(0, 5))
def test_codes_are_counted_and_others_left_out(codes: list[int], count: int) -> None:
    found = count_codes(np.array(codes, np.int32), count)
    assert found.tolist() == [codes.count(code) for code in range(count)]
