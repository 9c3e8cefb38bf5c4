"""What the time of requests went into, each moment counted once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from podscope_analyzers.steps.event_types import EventType
from podscope_analyzers.steps.events import StepEvents
from podscope_analyzers.steps.exclusive import exclusive_times as exclusive_of_steps

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """Typed spans of groups, shape (n,) each; ``kind`` is an :class:`EventType`."""

    kind: Int64s
    group: Int64s
    start_ps: Int64s
    end_ps: Int64s

    @classmethod
    def of(cls, kind: EventType, group: Int64s, start_ps: Int64s, end_ps: Int64s) -> "Spans":
        """Spans of one kind."""
        return cls(np.full(len(group), int(kind), np.int64), group, start_ps, end_ps)

    @classmethod
    def between(cls, kind: EventType, group: Int64s, start_ps: Int64s, end_ps: Int64s) -> "Spans":
        """Spans of one kind; one that would end before it starts has no length."""
        return cls.of(kind, group, start_ps, np.maximum(start_ps, end_ps))

    @classmethod
    def join(cls, parts: Sequence["Spans"]) -> "Spans":
        """Spans of several kinds, one after the other."""
        names = ("kind", "group", "start_ps", "end_ps")
        nothing = np.zeros(0, np.int64)
        return cls(
            *(np.concatenate([nothing, *(getattr(p, name) for p in parts)]) for name in names)
        )

    def take(self, rows: npt.NDArray[np.intp]) -> "Spans":
        """Some of them."""
        return Spans(self.kind[rows], self.group[rows], self.start_ps[rows], self.end_ps[rows])

    def with_group(self, group: Int64s) -> "Spans":
        """The same spans of other groups."""
        return replace(self, group=group)


def exclusive_times(spans: Spans, count: int) -> Int64s:
    """Time of each kind in every group: of kinds at one time, the one with the largest value.

    What none of a group's spans covers between its first and its last one is unknown time.

    Args:
        spans: Their groups are 0 to ``count - 1``.
        count: Of groups.

    Returns:
        Picoseconds, shape (count, kinds).
    """
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, spans.group, spans.start_ps)
    np.maximum.at(last, spans.group, spans.end_ps)
    groups = np.flatnonzero(last >= first)
    times = np.zeros((count, len(EventType)), np.int64)
    events = StepEvents(
        event_step=spans.group,
        event_type=spans.kind.astype(np.uint8),
        event_begin_ps=spans.start_ps,
        event_end_ps=spans.end_ps,
    )
    times[groups] = exclusive_of_steps(
        events, groups, first[groups], (last - first)[groups]
    ).time_ps
    return times
