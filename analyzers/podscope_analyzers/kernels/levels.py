"""Merges events that name a path of nested levels into the events of a derived line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from podscope_analyzers.kernels.compiled import inner, kernel
from podscope_analyzers.kernels.spans import Bools, Int32s, Int64s, check_lengths

# Viewers draw in nanoseconds: the least by which an inner event must be the shorter.
_SHRINK_PS: Final = 1000

MAX_LEVELS: Final = 1000
"""Deeper levels of a path are left out."""

# A hostile file can name so many levels that their events are many times the file: then only
# so many are kept. Real lines have about as many events as they are made from.
_EVENTS_PER_EVENT: Final = 8
_SMALL: Final = 1 << 20


@dataclass(frozen=True)
class Paths:
    """The paths that events name, outermost level first.

    Attributes:
        offsets: Path p has the levels ``offsets[p]`` to ``offsets[p + 1]``, shape (p + 1,).
        levels: What stands at each level.
    """

    offsets: Int64s
    levels: Int64s

    @classmethod
    def of(cls, paths: Iterable[Sequence[int]]) -> Self:
        """The table of some paths."""
        listed = [path[:MAX_LEVELS] for path in paths]
        lengths = np.array([0, *map(len, listed)], np.int64)
        return cls(np.cumsum(lengths), np.array([at for path in listed for at in path], np.int64))

    def cut(self, depth: int) -> Self:
        """The outer levels of each path."""
        lengths = np.minimum(np.diff(self.offsets), depth)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        inner = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return type(self)(offsets, self.levels[np.repeat(self.offsets[:-1], lengths) + inner])

    @property
    def depth(self) -> int:
        """Levels of the deepest path."""
        return int(np.diff(self.offsets).max(initial=0))


@dataclass(frozen=True)
class Merged:
    """Events of a derived line in the order in which they began, shape (m,).

    Attributes:
        code: What the event is: an entry of ``Paths.levels``.
        level: 0 for the outermost.
        start_ps: Picoseconds.
        end_ps: Picoseconds.
        first: Index of the event that began it.
        into: Of every event of the input, which event its deepest level became, -1 for none,
            shape (n,).
        renewed: Which events of the input began another at the outermost level, shape (n,).
    """

    code: Int32s
    level: Int32s
    start_ps: Int64s
    end_ps: Int64s
    first: Int64s
    into: Int64s
    renewed: Bools


# What is kept of the open event of each level.
_CODE: Final = 0
_GROUP: Final = 1
_SCOPE: Final = 2
_IS_SCOPED: Final = 3
_START: Final = 4
_END: Final = 5
_AT: Final = 6
_KEPT: Final = 7


@inner
def _close(level: int, depth: int, opened: Int64s, shrinks: bool, end_ps: Int64s) -> None:
    shrink = 0
    most = 0
    if shrinks:
        most = (opened[_END, depth - 1] - opened[_START, depth - 1]) // 1000 - 1
    for i in range(level, depth):
        if (
            i > level
            and shrink < most
            and opened[_START, i] == opened[_START, i - 1]
            and opened[_END, i] == opened[_END, i - 1]
        ):
            shrink += 1
        at = opened[_AT, i]
        if at < end_ps.size:
            end_ps[at] = opened[_END, i] - _SHRINK_PS * shrink


@kernel(
    "i8(i4[::1], i8[::1], i8[::1], i4[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], "
    "b1, b1, b1, i8[:, ::1], i4[::1], i4[::1], i8[::1], i8[::1], i8[::1], i8[::1], b1[::1])"
)
def merge(
    path: Int32s,
    offsets: Int64s,
    levels: Int64s,
    scope: Int32s,
    scope_offsets: Int64s,
    scope_ids: Int64s,
    group: Int64s,
    epoch: Int64s,
    start: Int64s,
    end: Int64s,
    limits_gaps: bool,
    shrinks: bool,
    shrinks_last: bool,
    opened: Int64s,
    code: Int32s,
    level_of: Int32s,
    start_ps: Int64s,
    end_ps: Int64s,
    first: Int64s,
    into: Int64s,
    renewed: Bools,
) -> int:
    """See ``merge_levels``; counts the events, and writes as many as there is room for."""
    depth = 0
    count = 0
    seen = 0
    for i in range(path.size):
        renewed[i] = False
        into[i] = -1
        if depth > 0 and epoch[i] != seen:
            _close(0, depth, opened, shrinks, end_ps)
            depth = 0
        seen = epoch[i]
        if path[i] < 0:
            continue
        begin = offsets[path[i]]
        nested = offsets[path[i] + 1] - begin
        if nested == 0:
            continue
        scope_begin = 0
        has_scope = False
        if scope[i] >= 0:
            scope_begin = scope_offsets[scope[i]]
            has_scope = scope_offsets[scope[i] + 1] - scope_begin == nested
        for level in range(nested):
            what = levels[begin + level]
            joins = (
                level < depth and opened[_CODE, level] == what and opened[_GROUP, level] == group[i]
            )
            if joins and has_scope and opened[_IS_SCOPED, level] != 0:
                joins = opened[_SCOPE, level] == scope_ids[scope_begin + level]
            if joins and limits_gaps and group[i] < 0:
                lasted = opened[_END, level] - opened[_START, level]
                joins = opened[_END, level] + 2 * lasted >= start[i]
            if joins:
                opened[_END, level] = max(opened[_END, level], end[i])
            else:
                if level < depth:
                    _close(level, depth, opened, shrinks, end_ps)
                if level == 0:
                    renewed[i] = True
                depth = level + 1
                opened[_CODE, level] = what
                opened[_GROUP, level] = group[i]
                opened[_IS_SCOPED, level] = 1 if has_scope else 0
                if has_scope:
                    opened[_SCOPE, level] = scope_ids[scope_begin + level]
                opened[_START, level] = start[i]
                opened[_END, level] = end[i]
                opened[_AT, level] = count
                if count < code.size:
                    code[count] = what
                    level_of[count] = level
                    start_ps[count] = start[i]
                    first[count] = i
                count += 1
        into[i] = opened[_AT, nested - 1]
        if nested < depth:
            _close(nested, depth, opened, shrinks, end_ps)
            depth = nested
    if depth > 0:
        _close(0, depth, opened, shrinks and shrinks_last, end_ps)
    return count


def merge_levels(
    path: Int32s,
    paths: Paths,
    start_ps: Int64s,
    end_ps: Int64s,
    group: Int64s,
    *,
    limits_gaps: bool,
    shrinks: bool = False,
    shrinks_last: bool = True,
    scope: Int32s | None = None,
    scopes: Paths | None = None,
    epoch: Int64s | None = None,
) -> Merged:
    """The events of a derived line, from the events that it is derived from.

    At each level of its path an event extends the open event of that level, when what stands
    there and the group are the same, and the scope where both tell one; else it closes that
    one with all deeper ones and begins another.

    Args:
        path: Of every event, -1 for one that this line leaves alone, shape (n,).
        paths: What the paths are.
        start_ps: Picoseconds, ascending, shape (n,).
        end_ps: Picoseconds, shape (n,).
        group: -1 for none, shape (n,).
        limits_gaps: Whether events without a group extend one only when they begin at most
            twice its length after it.
        shrinks: Whether of stacked events of equal span each is 1 ns shorter than the one
            around it, as far as the innermost lasts that long: viewers then nest them.
        shrinks_last: Whether that is so for events still open at the end of the input too.
        scope: Of every event, -1 where it tells none, shape (n,).
        scopes: What the scopes are at each level; one of another depth than the event's path
            tells nothing.
        epoch: All is closed where it changes: another line began anew, shape (n,).
    """
    count = len(path)
    of_scope = np.full(count, -1, np.int32) if scope is None else scope
    known = Paths.of(()) if scopes is None else scopes
    epochs = np.zeros(count, np.int64) if epoch is None else epoch
    check_lengths(path, start_ps, end_ps, group, of_scope, epochs)
    into, renewed = np.empty(count, np.int64), np.empty(count, np.bool_)
    opened = np.empty((_KEPT, paths.depth), np.int64)

    arrays = [
        np.require(values, np.int64, ["C", "W"]) for values in (group, epochs, start_ps, end_ps)
    ]

    def run(paths: Paths, size: int) -> tuple[int, list[Int32s], list[Int64s]]:
        narrow = [np.empty(size, np.int32) for _ in range(2)]
        wide = [np.empty(size, np.int64) for _ in range(3)]
        found = merge(
            np.require(path, np.int32, ["C", "W"]),
            np.require(paths.offsets, np.int64, ["C", "W"]),
            np.require(paths.levels, np.int64, ["C", "W"]),
            np.require(of_scope, np.int32, ["C", "W"]),
            np.require(known.offsets, np.int64, ["C", "W"]),
            np.require(known.levels, np.int64, ["C", "W"]),
            arrays[0],
            arrays[1],
            arrays[2],
            arrays[3],
            limits_gaps,
            shrinks,
            shrinks_last,
            opened,
            narrow[0],
            narrow[1],
            wide[0],
            wide[1],
            wide[2],
            into,
            renewed,
        )
        return found, narrow, wide

    # Counted first: room for every level of every event would be many times the result.
    found = run(paths, 0)[0]
    if found > max(_SMALL, _EVENTS_PER_EVENT * count):
        paths = paths.cut(_EVENTS_PER_EVENT)
        found = run(paths, 0)[0]
    _, (code, level), (start, end, first) = run(paths, found)
    return Merged(code, level, start, end, first, into, renewed)
