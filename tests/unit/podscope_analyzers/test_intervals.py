import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.intervals import join, union

_SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


def _made(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, set[int]]:
    start = np.array([s for s, _ in spans], dtype=np.int64)
    end = np.array([s + d for s, d in spans], dtype=np.int64)
    return start, end, {t for s, d in spans for t in range(s, s + d)}


@given(_SPANS, _SPANS)
def test_a_window_is_covered_as_counted_tick_by_tick(
    spans: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    start, end, ticks = _made(spans)
    covered = union(start, end)
    assert covered.total_ps == len(ticks)
    begin, finish, _ = _made(windows)
    expected = [len(ticks & set(range(b, f))) for b, f in zip(begin, finish, strict=True)]
    assert covered.covered_ps(begin, finish).tolist() == expected


@given(_SPANS, _SPANS)
def test_joining_two_unions_is_the_union_of_all_their_spans(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    first, second, ticks = union(*_made(one)[:2]), union(*_made(other)[:2]), _made(one + other)[2]
    joined = join(first, second)
    assert joined.total_ps == len(ticks)
    assert (joined.start_ps[1:] > joined.end_ps[:-1]).all()
