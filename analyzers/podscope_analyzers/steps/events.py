"""What is known of every step before it is counted: markers, events, cores' times."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.steps.database import Collectives, Int64s
from podscope_analyzers.steps.work import WIDTH

HOST_MARKER = -1
"""In place of a core's id: the marker is the host's."""


def _ints() -> Int64s:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class StepEvents:
    """Steps of a line, a plane or a host; every ``step`` is a group id.

    Attributes:
        marker_step: Step of every marker, shape (m,), as the next three.
        marker_core: Core that it marks, or ``HOST_MARKER``.
        marker_begin_ps: Picoseconds.
        marker_duration_ps: Picoseconds.
        event_step: Step of every event, shape (n,), as the next three.
        event_type: :class:`EventType`.
        event_begin_ps: Picoseconds.
        event_end_ps: Picoseconds.
        names: Names of the steps that have one.
        collectives: Their ``step`` is a group id too.
        transfer_step: Step of every copy, shape (c,), as the next three.
        transfer_kind: 0 host to device, 1 device to host, 2 device to device.
        transfer_duration_ps: Picoseconds.
        transfer_bytes: 0 where unknown.
        core_step: Step of every core's category, shape (k,), as the next three.
        core_id: The core.
        core_category: Index into ``categories``; -1 says only that the core took part.
        core_self_ps: Time of the category's operations without those within them.
        categories: HLO categories.
        work_step: Step of every core's work, shape (w,).
        work: Work of its operations, shape (w, 2, WIDTH); see ``work.StepWork``.
        work_feeds_ps: Time of infeeds and outfeeds among them, shape (w,).
    """

    marker_step: Int64s = field(default_factory=_ints)
    marker_core: Int64s = field(default_factory=_ints)
    marker_begin_ps: Int64s = field(default_factory=_ints)
    marker_duration_ps: Int64s = field(default_factory=_ints)
    event_step: Int64s = field(default_factory=_ints)
    event_type: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    event_begin_ps: Int64s = field(default_factory=_ints)
    event_end_ps: Int64s = field(default_factory=_ints)
    names: dict[int, str] = field(default_factory=dict)
    collectives: Collectives = field(default_factory=Collectives)
    transfer_step: Int64s = field(default_factory=_ints)
    transfer_kind: Int64s = field(default_factory=_ints)
    transfer_duration_ps: Int64s = field(default_factory=_ints)
    transfer_bytes: Int64s = field(default_factory=_ints)
    core_step: Int64s = field(default_factory=_ints)
    core_id: Int64s = field(default_factory=_ints)
    core_category: Int64s = field(default_factory=_ints)
    core_self_ps: Int64s = field(default_factory=_ints)
    categories: tuple[str, ...] = ()
    work_step: Int64s = field(default_factory=_ints)
    work: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 2, WIDTH)))
    work_feeds_ps: Int64s = field(default_factory=_ints)

    def is_filled(self) -> bool:
        """Whether anything is known."""
        columns = (getattr(self, f.name) for f in fields(self) if f.name != "collectives")
        return any(map(len, columns)) or len(self.collectives.step) > 0

    def steps(self) -> Int64s:
        """Ids of the steps, ascending."""
        found: Int64s = distinct(
            np.concatenate(
                [
                    _distinct(ids)
                    for ids in (
                        self.marker_step,
                        self.event_step,
                        self.core_step,
                        self.transfer_step,
                        self.collectives.step,
                    )
                ]
            )
        )
        return found

    def only(self, steps: Int64s) -> "StepEvents":
        """What concerns some steps."""
        markers = np.isin(self.marker_step, steps)
        events = np.isin(self.event_step, steps)
        transfers = np.isin(self.transfer_step, steps)
        cores = np.isin(self.core_step, steps)
        works = np.isin(self.work_step, steps)
        kept = set(steps.tolist())
        return replace(
            self,
            marker_step=self.marker_step[markers],
            marker_core=self.marker_core[markers],
            marker_begin_ps=self.marker_begin_ps[markers],
            marker_duration_ps=self.marker_duration_ps[markers],
            event_step=self.event_step[events],
            event_type=self.event_type[events],
            event_begin_ps=self.event_begin_ps[events],
            event_end_ps=self.event_end_ps[events],
            names={step: name for step, name in self.names.items() if step in kept},
            collectives=self.collectives.take(
                np.flatnonzero(np.isin(self.collectives.step, steps))
            ),
            transfer_step=self.transfer_step[transfers],
            transfer_kind=self.transfer_kind[transfers],
            transfer_duration_ps=self.transfer_duration_ps[transfers],
            transfer_bytes=self.transfer_bytes[transfers],
            core_step=self.core_step[cores],
            core_id=self.core_id[cores],
            core_category=self.core_category[cores],
            core_self_ps=self.core_self_ps[cores],
            work_step=self.work_step[works],
            work=self.work[works],
            work_feeds_ps=self.work_feeds_ps[works],
        )


def _distinct(ids: Int64s) -> Int64s:
    """Ids without repeats; those of events, which come in runs, in a fraction of a sort's time."""
    return distinct(ids[np.flatnonzero(np.append(True, ids[1:] != ids[:-1])[: len(ids)])])


_SPECIAL = frozenset({"names", "collectives", "core_category", "categories"})


def unite(parts: Sequence[StepEvents]) -> StepEvents:
    """All steps of all parts; a step's name is that of the first part that has one."""
    parts = [part for part in parts if part.is_filled()]
    if len(parts) == 1:
        return parts[0]
    names: dict[int, str] = {}
    for part in parts:
        for step, name in part.names.items():
            names.setdefault(step, name)
    categories = {c: i for i, c in enumerate(dict.fromkeys(c for p in parts for c in p.categories))}
    recoded = []
    for part in parts:
        # One more code at the end, for those without a category.
        codes = np.array([*(categories[c] for c in part.categories), -1], np.int64)
        recoded.append(codes[part.core_category])
    arrays = {
        f.name: np.concatenate(
            [getattr(StepEvents(), f.name), *(getattr(p, f.name) for p in parts)]
        )
        for f in fields(StepEvents)
        if f.name not in _SPECIAL
    }
    return StepEvents(
        **arrays,
        names=names,
        collectives=Collectives.concatenate([Collectives(), *(p.collectives for p in parts)]),
        core_category=np.concatenate([_ints(), *recoded]),
        categories=tuple(categories),
    )


def intersect(first: StepEvents, second: StepEvents) -> StepEvents:
    """The steps that both have; all of the second when the first has none."""
    steps = first.steps()
    if not len(steps):
        return second
    common = np.intersect1d(steps, second.steps(), assume_unique=True)
    return unite([first.only(common), second.only(common)])


def longest_markers(
    events: StepEvents, steps: Int64s, wanted: NDArray[np.bool_]
) -> tuple[Int64s, Int64s]:
    """The longest of some markers of every step, the first of equal ones.

    Args:
        events: Of a host.
        steps: Ascending, shape (s,).
        wanted: Which markers count, shape (m,).

    Returns:
        Begin and duration of each step's, both (s,); 0 and 0 for a step without.
    """
    begin, duration = np.zeros(len(steps), np.int64), np.zeros(len(steps), np.int64)
    rows = np.flatnonzero(wanted & (events.marker_duration_ps > 0))
    if len(rows) and len(steps):
        order = rows[np.lexsort((-events.marker_duration_ps[rows], events.marker_step[rows]))]
        found, first = np.unique(events.marker_step[order], return_index=True)
        at = np.minimum(np.searchsorted(steps, found), len(steps) - 1)
        known = steps[at] == found
        best = order[first[known]]
        begin[at[known]] = events.marker_begin_ps[best]
        duration[at[known]] = events.marker_duration_ps[best]
    return begin, duration


def step_times(events: StepEvents, steps: Int64s) -> tuple[Int64s, Int64s]:
    """Begin and duration of every step, both (s,): the device's, or the host's around it."""
    is_host = events.marker_core == HOST_MARKER
    host_begin, host_duration = longest_markers(events, steps, is_host)
    begin, duration = longest_markers(events, steps, ~is_host)
    around = (host_begin <= begin) & (begin + duration <= host_begin + host_duration)
    use_host = (duration == 0) | around
    return np.where(use_host, host_begin, begin), np.where(use_host, host_duration, duration)
