"""Events of a host's steps without those that lie within others and so add no time to a step.

Time that a thread computes counts once, however many calls are around it; of millions of nested
calls those within another one say nothing more. What an event without duration does to the
sweep over a step depends on how many others are open then (see ``kernels.steps``), so that around
these moments as many levels are kept as there are such events at one, and one more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from podscope_analyzers.kernels.sieve import find_levels, take_outer
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.steps.database import Int64s
from podscope_analyzers.steps.event_types import EventType
from podscope_analyzers.steps.events import HOST_MARKER, StepEvents, unite
from podscope_analyzers.steps.exclusive import REACH_PS
from podscope_analyzers.xspace import Line, Sifted
from podscope_analyzers.xspace.columns import Bools, Int32s, UInt8s

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
    threads = {id(line): _thread(line, kinds) for line in sifted}
    empty = [_empty(part) for part in whole.values()]
    most, moments = _most_at_once(empty + [thread.empty() for thread in threads.values()])
    return unite(
        [
            whole[id(line)] if id(line) in whole else threads[id(line)].outermost(most + 1, moments)
            for line in lines
        ]
    )


def _is_near(reach_ps: tuple[int, int] | None) -> bool:
    return reach_ps is None or (reach_ps[0] >= 0 and reach_ps[1] <= REACH_PS)


@dataclass(frozen=True)
class _Thread:
    """A line whose notable events are known.

    Attributes:
        groups: Of the notable events, -1 for none, shape (k,).
        kind: Of these, titled ones told as ``MARKER``, shape (k,).
        names: Of its steps.
    """

    source: Line
    sifted: Sifted
    groups: Int32s
    kind: UInt8s
    names: dict[int, str]

    def empty(self) -> tuple[Int64s, Int64s]:
        """Step and moment of every computation without duration."""
        columns, outer = self.sifted.columns, self.sifted.outer
        own = np.flatnonzero((self.kind == EventType.HOST_COMPUTE) & (columns.duration_ps == 0))
        other = np.flatnonzero(outer.duration_ps == 0)
        step = np.concatenate([self.groups[own], self.groups[outer.parent[other]]], dtype=np.int64)
        moment = np.concatenate([columns.start_ps[own], outer.start_ps[other]])
        return step[step >= 0], moment[step >= 0]

    def outermost(self, depth: int, moments: Int64s) -> StepEvents:
        """Markers and events, without those within ``depth`` others or around no moment."""
        columns, outer, groups, kind = (
            self.sifted.columns,
            self.sifted.outer,
            self.groups,
            self.kind,
        )
        start, end = columns.start_ps, columns.start_ps + columns.duration_ps
        level = np.zeros(len(groups), np.int32)
        is_inner = np.zeros(len(groups), np.bool_)
        find_levels(
            groups,
            self.sifted.parent,
            self.sifted.between,
            (kind == EventType.HOST_COMPUTE) & (end > start) & (groups >= 0),
            _is_around(moments, start, end),
            depth,
            level,
            is_inner,
        )
        marker = np.flatnonzero((groups >= 0) & (kind == MARKER))
        event = np.flatnonzero((groups >= 0) & (kind < MARKER) & ~is_inner)
        # The others are written behind them: most events are these.
        own, count = len(event), len(event) + len(outer.events)
        step, begin, finish = (np.empty(count, np.int64) for _ in range(3))
        step[:own], begin[:own], finish[:own] = groups[event], start[event], end[event]
        deep, deep_level = np.empty(count, np.int64), np.empty(count, np.int32)
        report = np.zeros(1, np.int64)
        count = own + take_outer(
            groups,
            level,
            outer.parent,
            outer.start_ps,
            outer.duration_ps,
            depth,
            moments,
            step[own:],
            begin[own:],
            finish[own:],
            deep,
            deep_level,
            report,
        )
        deep, deep_level = deep[: report[0]], deep_level[: report[0]]
        inner = self.source.inner_spans(self.sifted, deep, deep_level, depth, moments)
        types = np.full(count, EventType.HOST_COMPUTE, np.uint8)
        types[:own] = kind[event]
        found = StepEvents(
            marker_step=groups[marker].astype(np.int64),
            marker_core=np.full(len(marker), HOST_MARKER, np.int64),
            marker_begin_ps=start[marker],
            marker_duration_ps=end[marker] - start[marker],
            event_step=step[:count],
            event_type=types,
            event_begin_ps=begin[:count],
            event_end_ps=finish[:count],
            names=self.names,
        )
        if not len(inner.outer):
            return found
        return unite(
            [
                found,
                StepEvents(
                    event_step=groups[outer.parent[deep[inner.outer]]].astype(np.int64),
                    event_type=np.full(len(inner.outer), EventType.HOST_COMPUTE, np.uint8),
                    event_begin_ps=inner.start_ps,
                    event_end_ps=inner.end_ps,
                ),
            ]
        )


def _thread(line: PreparedLine, kinds: UInt8s) -> _Thread:
    sifted, groups, source = line.notable, line.notable_groups, line.source
    if sifted is None or groups is None or source is None:
        problem = "only lines with notable events are read so"
        raise ValueError(problem)
    at, steps, names = line.named_steps()
    kind = kinds[sifted.columns.metadata]
    titled = at[np.array([bool(name) for name in names], np.bool_)]
    kind[np.searchsorted(sifted.events, titled)] = MARKER
    # The last name that a line gives is the one that stays.
    named = {step: name for step, name in zip(steps.tolist(), names, strict=True) if name}
    return _Thread(source, sifted, np.ascontiguousarray(groups), kind, named)


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
    return int(np.diff(np.append(first, len(step))).max()), distinct(moment)
