"""Kernels of derived lines against their rules as they are written."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from podscope_analyzers.kernels.levels import Paths, merge_levels
from podscope_analyzers.kernels.offloads import pair_transfers

# Path, scope, group, epoch step, gap before, duration.
_event = st.tuples(
    st.integers(-1, 4),
    st.integers(-1, 3),
    st.integers(-1, 1),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([0, 1, 400, 3000]),
    st.sampled_from([0, 1, 999, 1000, 2500, 9000]),
)
_levels = st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=5, max_size=5)
_scopes = st.lists(st.lists(st.integers(0, 1), max_size=4), min_size=4, max_size=4)


@dataclass
class _Open:
    code: int
    group: int
    scope: int | None
    start: int
    end: int
    at: int


def _merge_slowly(
    events: list[tuple[int, int, int, int, int, int]],
    paths: list[list[int]],
    scopes: list[list[int]],
    limits_gaps: bool,
    shrinks: bool,
    shrinks_last: bool,
) -> tuple[list[list[int]], list[int], list[bool]]:
    """Rows of (code, level, start, end, first); what became of each event; which began anew."""
    rows: list[list[int]] = []
    into, renewed = [-1] * len(events), [False] * len(events)
    opened: list[_Open] = []

    def close(level: int, shrink: bool) -> None:
        closing = opened[level:]
        if closing:
            most = (closing[-1].end - closing[-1].start) // 1000 - 1
            shorter = 0
            for number, one in enumerate(closing):
                around = closing[number - 1] if number else None
                if around and (around.start, around.end) == (one.start, one.end):
                    shorter = min(shorter + 1, most) if shrink and shorter < most else shorter
                rows[one.at][3] = one.end - 1000 * shorter
        del opened[level:]

    start = epoch = 0
    for i, (path, scope, group, step, gap, duration) in enumerate(events):
        start += gap
        epoch += step
        if step:
            close(0, shrinks)
        if path < 0 or not paths[path]:
            continue
        told = scopes[scope] if scope >= 0 else []
        stack = told if len(told) == len(paths[path]) else None
        for level, code in enumerate(paths[path]):
            own = stack[level] if stack else None
            now = opened[level] if level < len(opened) else None
            joins = now is not None and (now.code, now.group) == (code, group)
            if now is not None and None not in (own, now.scope):
                joins = joins and own == now.scope
            if now is not None and limits_gaps and group < 0:
                joins = joins and now.end + 2 * (now.end - now.start) >= start
            if joins and now is not None:
                now.end = max(now.end, start + duration)
                continue
            close(level, shrinks)
            renewed[i] |= level == 0
            opened.append(_Open(code, group, own, start, start + duration, len(rows)))
            rows.append([code, level, start, 0, i])
        into[i] = opened[len(paths[path]) - 1].at
        close(len(paths[path]), shrinks)
    close(0, shrinks and shrinks_last)
    return rows, into, renewed


@settings(deadline=None)
@given(st.lists(_event, max_size=14), _levels, _scopes, st.booleans(), st.booleans(), st.booleans())
def test_levels_merge_as_the_rule_says(
    events: list[tuple[int, int, int, int, int, int]],
    paths: list[list[int]],
    scopes: list[list[int]],
    limits_gaps: bool,
    shrinks: bool,
    shrinks_last: bool,
) -> None:
    table = np.array(events, np.int64).reshape(-1, 6)
    start = np.cumsum(table[:, 4])
    merged = merge_levels(
        table[:, 0].astype(np.int32),
        Paths.of(paths),
        start,
        start + table[:, 5],
        table[:, 2],
        limits_gaps=limits_gaps,
        shrinks=shrinks,
        shrinks_last=shrinks_last,
        scope=table[:, 1].astype(np.int32),
        scopes=Paths.of(scopes),
        epoch=np.cumsum(table[:, 3]),
    )
    rows, into, renewed = _merge_slowly(events, paths, scopes, limits_gaps, shrinks, shrinks_last)
    columns = (merged.code, merged.level, merged.start_ps, merged.end_ps, merged.first)
    assert [list(row) for row in zip(*(c.tolist() for c in columns), strict=True)] == rows
    assert merged.into.tolist() == into
    assert merged.renewed.tolist() == renewed


def test_levels_that_outgrow_their_file_are_cut() -> None:
    # Two paths of 1000 levels that take turns: every event would begin a thousand others.
    count = 4000
    paths = Paths.of([list(range(2000)), list(range(2000, 4000))])
    assert paths.depth == 1000
    start = np.arange(count, dtype=np.int64)
    merged = merge_levels(
        (np.arange(count) % 2).astype(np.int32),
        paths,
        start,
        start + 1,
        np.zeros(count, np.int64),
        limits_gaps=False,
    )
    assert len(merged.code) == 8 * count
    assert merged.code[:16].tolist() == [*range(8), *range(2000, 2008)]


def _pair_slowly(events: list[tuple[int, bool, int, int]], most_rows: int) -> list[tuple[int, int]]:
    waiting: dict[int, list[int]] = {}
    busy: list[int] = []
    found = []
    for i, (key, is_start, _, end) in enumerate(events):
        if is_start:
            waiting.setdefault(key, []).append(i)
        elif waiting.get(key):
            started = waiting[key].pop(0)
            free = [row for row, until in enumerate(busy) if until <= events[started][2]]
            if free:
                row = min(free, key=lambda one: (busy[one], one))
            elif len(busy) < most_rows:
                row = len(busy)
                busy.append(0)
            else:
                found.append((-1, -1))
                continue
            busy[row] = end
            found.append((started, row))
            continue
        found.append((-1, -1))
    return found


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 5), st.integers(0, 4)),
        max_size=30,
    ),
    st.integers(1, 4),
)
def test_ends_take_the_oldest_start_and_the_row_free_for_longest(
    drawn: list[tuple[int, bool, int, int]], most_rows: int
) -> None:
    now = 0
    events = []
    for key, is_start, gap, duration in drawn:
        now += gap
        events.append((key, is_start, now, now + duration))
    started, row = pair_transfers(
        np.array([event[0] for event in events], np.int32),
        np.array([event[1] for event in events], np.bool_),
        np.array([event[2] for event in events], np.int64),
        np.array([event[3] for event in events], np.int64),
        most_rows=most_rows,
    )
    expected = _pair_slowly(events, most_rows)
    assert list(zip(started.tolist(), row.tolist(), strict=True)) == expected
