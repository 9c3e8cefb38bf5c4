"""Events of a host's steps without those that lie within others and so add no time to a step.

Time that a thread computes counts once, however many calls are around it; of millions of nested
calls those within another one say nothing more. What an event without duration does to the
sweep over a step depends on how many others are open then (see ``kernels.steps``), so that around
these moments as many levels are kept as there are such events at one, and one more.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from podscope_analyzers.kernels.sieve import find_levels
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.steps.database import Int64s
from podscope_analyzers.steps.event_types import EventType
from podscope_analyzers.steps.events import HOST_MARKER, StepEvents, unite
from podscope_analyzers.steps.exclusive import REACH_PS
from podscope_analyzers.xspace.columns import Bools, UInt8s

MARKER: Final = 254
CONTAINER: Final = 255


def outermost_events(
    plane: PreparedPlane, kinds: UInt8s, read_all: Callable[[PreparedLine], StepEvents]
) -> StepEvents | None:
    """Markers and events of the steps on the host's threads; None where all must be read.

    Args:
        plane: The host's.
        kinds: Of every row of its metadata: an :class:`EventType`, ``MARKER``, or ``CONTAINER``
            for events that are left out but may lie around others.
        read_all: Gives those of one line, where its notable events are not known.
    """
    sieve = plane.sieve
    lines = [line for line in plane.lines if line.event_count]
    sifted = [line for line in lines if line.notable and line.notable_groups is not None]
    if sieve is None or not sifted or "group_id" in plane.stat_names:
        return None
    # Of events that were passed over, only those of this kind may be left out.
    if (kinds[: len(sieve.rows)][sieve.rows == 0] != EventType.HOST_COMPUTE).any():
        return None
    # Times that far out are cut, and may have no duration then.
    if any(line.notable and not _is_near(line.notable.reach_ps) for line in sifted):
        return None
    whole = {id(line): read_all(line) for line in lines if line not in sifted}
    found = {id(line): _events(line, kinds, 1, np.zeros(0, np.int64)) for line in sifted}
    most, moments = _most_at_once([_empty(part) for part in (*whole.values(), *found.values())])
    if most:
        found = {id(line): _events(line, kinds, most + 1, moments) for line in sifted}
    return unite([{**whole, **found}[id(line)] for line in lines])


def _is_near(reach_ps: tuple[int, int] | None) -> bool:
    return reach_ps is None or (reach_ps[0] >= 0 and reach_ps[1] <= REACH_PS)


def _events(line: PreparedLine, kinds: UInt8s, depth: int, moments: Int64s) -> StepEvents:
    sifted, groups, source = line.notable, line.notable_groups, line.source
    if sifted is None or groups is None or source is None:
        problem = "only lines with notable events are read so"
        raise ValueError(problem)
    columns, outer = sifted.columns, sifted.outer
    at, steps, names = line.named_steps()
    kind = kinds[columns.metadata]
    titled = at[np.array([bool(name) for name in names], np.bool_)]
    kind[np.searchsorted(sifted.events, titled)] = MARKER
    start, end = columns.start_ps, columns.start_ps + columns.duration_ps
    level = np.zeros(len(groups), np.int32)
    is_inner = np.zeros(len(groups), np.bool_)
    find_levels(
        np.ascontiguousarray(groups),
        sifted.parent,
        sifted.between,
        (kind == EventType.HOST_COMPUTE) & (end > start) & (groups >= 0),
        _is_around(moments, start, end),
        depth,
        level,
        is_inner,
    )
    marker = np.flatnonzero((groups >= 0) & (kind == MARKER))
    event = np.flatnonzero((groups >= 0) & (kind < MARKER) & ~is_inner)
    outer_end = outer.start_ps + outer.duration_ps
    outer_group, above = groups[outer.parent], level[outer.parent]
    around = _is_around(moments, outer.start_ps, outer_end)
    wanted = (above == 0) | (around & (above < depth)) | (outer.duration_ps == 0)
    wanted &= outer_group >= 0
    deep = np.flatnonzero(wanted & around & (above + 1 < depth))
    inner = source.inner_spans(sifted, deep, above[deep] + np.int32(1), depth, moments)
    shown = np.flatnonzero(wanted)
    passed = len(shown) + len(inner.outer)
    return StepEvents(
        marker_step=groups[marker].astype(np.int64),
        marker_core=np.full(len(marker), HOST_MARKER, np.int64),
        marker_begin_ps=start[marker],
        marker_duration_ps=end[marker] - start[marker],
        event_step=np.concatenate(
            [groups[event], outer_group[shown], outer_group[deep[inner.outer]]], dtype=np.int64
        ),
        event_type=np.concatenate([kind[event], np.full(passed, EventType.HOST_COMPUTE, np.uint8)]),
        event_begin_ps=np.concatenate([start[event], outer.start_ps[shown], inner.start_ps]),
        event_end_ps=np.concatenate([end[event], outer_end[shown], inner.end_ps]),
        # The last name that a line gives is the one that stays.
        names={step: name for step, name in zip(steps.tolist(), names, strict=True) if name},
    )


def _is_around(moments: Int64s, start_ps: Int64s, end_ps: Int64s) -> Bools:
    """Which spans one of the ascending moments lies in, its ends not included."""
    if not len(moments):
        return np.zeros(len(start_ps), np.bool_)
    following = np.searchsorted(moments, start_ps, side="right")
    is_found = following < len(moments)
    around: Bools = is_found & (moments[np.minimum(following, len(moments) - 1)] < end_ps)
    return around


def _empty(events: StepEvents) -> tuple[Int64s, Int64s]:
    """Step and moment of every computation without duration."""
    empty = (events.event_type == EventType.HOST_COMPUTE) & (
        events.event_begin_ps == events.event_end_ps
    )
    return events.event_step[empty], events.event_begin_ps[empty]


def _most_at_once(empty: Sequence[tuple[Int64s, Int64s]]) -> tuple[int, Int64s]:
    """How many of them one step has at one moment, at most; the moments, ascending."""
    step, moment = (np.concatenate([each[i] for each in empty]) for i in range(2))
    if not len(step):
        return 0, moment
    order = np.lexsort((moment, step))
    step, moment = step[order], moment[order]
    first = np.flatnonzero(np.append(True, (step[1:] != step[:-1]) | (moment[1:] != moment[:-1])))
    return int(np.diff(np.append(first, len(step))).max()), np.unique(moment)
