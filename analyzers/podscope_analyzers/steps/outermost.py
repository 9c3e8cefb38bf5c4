"""Events of a host's steps without those that lie within others and so add no time to a step.

Time that a thread computes counts once, however many calls are around it; of millions of nested
calls those within another one say nothing more. What an event without duration does to the
sweep over a step depends on how many others are open then (see ``kernels.steps``), so that around
these moments as many levels are kept as there are such events at one, and one more.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from podscope_analyzers.kernels.sieve import MARKER
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.steps.database import Int64s
from podscope_analyzers.steps.event_types import EventType
from podscope_analyzers.steps.events import HOST_MARKER, StepEvents, unite
from podscope_analyzers.steps.exclusive import REACH_PS
from podscope_analyzers.xspace.columns import UInt8s
from podscope_analyzers.xspace.wire import Spans


def outermost_events(
    plane: PreparedPlane, kinds: UInt8s, read_all: Callable[[PreparedLine], StepEvents]
) -> StepEvents | None:
    """Markers and events of the steps on the host's threads; None where all must be read.

    Args:
        plane: The host's.
        kinds: Of every row of its metadata: an :class:`EventType`, ``MARKER`` or ``CONTAINER``.
        read_all: Gives those of one line, where its notable events are not known.
    """
    lines = [line for line in plane.lines if line.event_count]
    sifted = [line for line in lines if line.notable and line.notable_groups is not None]
    if not sifted or "group_id" in plane.stat_names:
        return None
    whole = {id(line): read_all(line) for line in lines if line not in sifted}
    found = {id(line): _spans(line, kinds, 1, np.zeros(0, np.int64)) for line in sifted}
    empty = [_empty(part) for part in (*whole.values(), *(_events(s) for s in found.values()))]
    most, moments = _most_at_once(empty)
    if most:
        found = {id(line): _spans(line, kinds, most + 1, moments) for line in sifted}
    # Times that far out are cut, and may have no duration then.
    if any(part.left_out and not _is_near(*part.left_out) for part in found.values()):
        return None
    return unite(
        [
            whole[id(line)]
            if id(line) in whole
            else replace(_events(found[id(line)]), names=_names(line))
            for line in lines
        ]
    )


def _is_near(start_ps: int, end_ps: int) -> bool:
    return start_ps >= 0 and end_ps <= REACH_PS


def _names(line: PreparedLine) -> dict[int, str]:
    _, steps, names = line.named_steps()
    # The last name that a line gives is the one that stays.
    return {step: name for step, name in zip(steps.tolist(), names, strict=True) if name}


def _spans(line: PreparedLine, kinds: UInt8s, depth: int, moments: Int64s) -> Spans:
    sifted, groups, source = line.notable, line.notable_groups, line.source
    if sifted is None or groups is None or source is None:
        problem = "only lines with notable events are read so"
        raise ValueError(problem)
    events, _, names = line.named_steps()
    titled = np.zeros(len(groups), np.bool_)
    has_name = np.array([bool(name) for name in names], np.bool_)
    titled[np.searchsorted(sifted.events, events[has_name])] = True
    return source.outermost(
        sifted,
        kinds,
        np.ascontiguousarray(groups),
        titled,
        merged=EventType.HOST_COMPUTE,
        depth=depth,
        moments=moments,
    )


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


def _events(part: Spans) -> StepEvents:
    marker = part.kind == MARKER
    event = ~marker
    return StepEvents(
        marker_step=part.group[marker].astype(np.int64),
        marker_core=np.full(int(marker.sum()), HOST_MARKER, np.int64),
        marker_begin_ps=part.start_ps[marker],
        marker_duration_ps=part.end_ps[marker] - part.start_ps[marker],
        event_step=part.group[event].astype(np.int64),
        event_type=part.kind[event],
        event_begin_ps=part.start_ps[event],
        event_end_ps=part.end_ps[event],
    )
