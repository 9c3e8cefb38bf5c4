"""What the host's threads did in each step: computing, waiting for other hosts, input, the rest.

The step database of a CPU host knows little more than "host compute". Who of many hosts is late
can only be told by the time that each spent on its own work, so waiting in a collective must be
told from work. XLA's CPU runtime records each operation with its ``hlo_op``, an all-reduce
included, and the annotations of the training loop say what the rest was for.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from podscope_analyzers.collectives import is_collective_name, is_runtime_collective
from podscope_analyzers.input_waits import input_waits_ps
from podscope_analyzers.intervals import Int64s, Union, join, union
from podscope_analyzers.kernels import natural_order
from podscope_analyzers.kernels.steps import sum_outermost
from podscope_analyzers.op_names import PYTHON_FRAME
from podscope_analyzers.planes import HOST_PLANE
from podscope_analyzers.prepared import PreparedSpace
from podscope_analyzers.step_annotations import names_input
from podscope_analyzers.xspace import Columns, Line, Plane, Sifted
from podscope_analyzers.xspace.columns import Int32s

MAX_PHASES = 32

# Operations that run others: their time is that of their bodies.
_CONTAINER = re.compile(r"(?:while|call|conditional|async)(?:-start|-done)?(?:\.\d+)*$")
# Names that mean input wherever they are nested.
_PIPELINE = re.compile(r"Iterator(?:GetNext|::)|InfeedEnqueue|MemcpyHToD")
_NO_SPANS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class StepActivity:
    """Time of each step by what the host did; the four parts add up to the step.

    Attributes:
        compute_ps: Operations of compiled programs, collectives not among them, shape (n,).
        waiting_ps: In a collective, and computing nothing meanwhile, shape (n,).
        input_ps: In an annotation that names input, and neither of the above, shape (n,).
        host_ps: The rest, shape (n,).
        phases: Names of the annotations right below the step's marker, the longest first.
        phase_ps: Their time, shape (len(phases), n).
        starved_ps: No GPU ran anything and a thread waited for input, shape (n,); a part of its
            own beside the four, 0 on hosts without GPUs.
    """

    compute_ps: Int64s
    waiting_ps: Int64s
    input_ps: Int64s
    host_ps: Int64s
    phases: tuple[str, ...]
    phase_ps: Int64s
    starved_ps: Int64s

    def to_state(self) -> dict[str, Any]:
        """Plain values for storing."""
        return {
            "compute_ps": self.compute_ps,
            "waiting_ps": self.waiting_ps,
            "input_ps": self.input_ps,
            "host_ps": self.host_ps,
            "phases": list(self.phases),
            "phase_ps": self.phase_ps,
            "starved_ps": self.starved_ps,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "StepActivity":
        """The activity that ``to_state`` described."""
        return cls(
            compute_ps=state["compute_ps"],
            waiting_ps=state["waiting_ps"],
            input_ps=state["input_ps"],
            host_ps=state["host_ps"],
            phases=tuple(state["phases"]),
            phase_ps=state["phase_ps"],
            starved_ps=state["starved_ps"],
        )


def step_activity(space: PreparedSpace, begin_ps: Int64s, end_ps: Int64s) -> StepActivity:
    """Split each step's time by what the host's threads did.

    Args:
        space: The host's.
        begin_ps: Start of each step, shape (n,), ascending.
        end_ps: End of each step, shape (n,).
    """
    lines = [
        _Thread(line.source, line.notable)
        for plane in space.planes
        if plane.name == HOST_PLANE
        for line in plane.lines
        if line.source is not None and line.source.event_count
    ]
    computing, collective = _operations(lines)
    phases, phase_ps, fed = _phases(lines, begin_ps, end_ps)
    waiting_too = join(computing, collective)
    input_too = join(waiting_too, fed)
    compute_ps = computing.covered_ps(begin_ps, end_ps)
    busy_ps = waiting_too.covered_ps(begin_ps, end_ps)
    known_ps = input_too.covered_ps(begin_ps, end_ps)
    return StepActivity(
        compute_ps=compute_ps,
        waiting_ps=busy_ps - compute_ps,
        input_ps=known_ps - busy_ps,
        host_ps=end_ps - begin_ps - known_ps,
        phases=phases,
        phase_ps=phase_ps,
        starved_ps=input_waits_ps(space.source, begin_ps, end_ps),
    )


@dataclass(frozen=True)
class _Thread:
    """A line of the host, and of its events those that say something, where they are known."""

    line: Line
    sifted: Sifted | None

    @property
    def plane(self) -> Plane:
        return self.line.plane

    def operations(self) -> Columns:
        """Columns of its events; those of Python's functions may be left out."""
        return self.sifted.columns if self.sifted else self.line.columns(stats=("hlo_op",))

    def in_order(self) -> tuple[Int64s, Int64s, Int32s]:
        """Start, end and metadata row of its events, outer ones before inner ones.

        Calls of Python's functions that lie within another one may be left out.
        """
        sifted = self.sifted
        if sifted is None or not sifted.is_nested or sifted.apart.any():
            columns = self.line.columns()
            start, duration, rows = columns.start_ps, columns.duration_ps, columns.metadata
        else:
            own, outer = sifted.columns, sifted.outer
            at = np.searchsorted(outer.events, sifted.events)
            start = np.insert(outer.start_ps, at, own.start_ps)
            duration = np.insert(outer.duration_ps, at, own.duration_ps)
            rows = np.insert(outer.metadata, at, own.metadata)
        by_time = natural_order(start, duration)
        if by_time is not None:
            start, duration, rows = start[by_time], duration[by_time], rows[by_time]
        return start, start + duration, rows


def _operations(threads: Iterable[_Thread]) -> tuple[Union, Union]:
    """Spans of computing operations and of collectives over all threads."""
    spans: dict[bool, list[tuple[Int64s, Int64s]]] = {True: [], False: []}
    for plane, own in groupby(threads, key=lambda thread: thread.plane):
        names = plane.event_metadata.names
        by_row = np.array([is_runtime_collective(name) for name in names], dtype=np.bool_)
        for thread in own:
            columns = thread.operations()
            codes, table = columns.stat("hlo_op").strings()
            talks = np.array([is_collective_name(name) for name in table] + [False])
            contains = np.array([bool(_CONTAINER.match(name)) for name in table] + [True])
            is_collective = talks[codes] | ((codes < 0) & by_row[columns.metadata])
            is_compute = (codes >= 0) & ~is_collective & ~contains[codes]
            start, end = columns.start_ps, columns.start_ps + columns.duration_ps
            spans[True].append((start[is_collective], end[is_collective]))
            is_compute &= ~_holds_any(start, end, *spans[True][-1])
            spans[False].append((start[is_compute], end[is_compute]))
    return _union(spans[False]), _union(spans[True])


def _holds_any(
    start: Int64s, end: Int64s, inner_start: Int64s, inner_end: Int64s
) -> npt.NDArray[np.bool_]:
    """Which spans hold one of the inner spans of the same thread."""
    if not len(inner_start):
        return np.zeros(len(start), dtype=np.bool_)
    order = np.argsort(inner_start, kind="stable")
    inner_start, inner_end = inner_start[order], inner_end[order]
    index = np.searchsorted(inner_start, start, side="left")
    is_found = index < len(inner_start)
    holds: npt.NDArray[np.bool_] = is_found & (
        inner_end[np.minimum(index, len(inner_end) - 1)] <= end
    )
    return holds


def _phases(
    threads: Iterable[_Thread], begin_ps: Int64s, end_ps: Int64s
) -> tuple[tuple[str, ...], Int64s, Union]:
    """Annotations right below the steps' markers, and the spans of those that name input."""
    codes: dict[str, int] = {}
    found: list[tuple[Int64s, Int64s, Int64s]] = []
    fed: list[tuple[Int64s, Int64s]] = []
    for plane, own in groupby(threads, key=lambda thread: thread.plane):
        names = plane.event_metadata.names
        is_named = np.array([not name.startswith(PYTHON_FRAME) for name in names], np.bool_)
        is_input = np.array([names_input(name) for name in names], dtype=np.bool_)
        is_pipe = np.array([bool(_PIPELINE.match(name)) for name in names], dtype=np.bool_)
        code_of_row = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)
        for thread in own:
            start, end, rows = thread.in_order()
            step, marker = _markers(start, end, rows, is_named, begin_ps, end_ps)
            first, limit = marker + 1, end_ps[step]
            last = np.searchsorted(start, limit, side="left")
            below = sum_outermost(start, end, rows, is_input, (first, last, limit))
            found.append((code_of_row[below.kind], step[below.around], below.time_ps))
            pipes = _within(np.flatnonzero(is_pipe[rows]), end, first, last, limit)
            feeding = np.concatenate([below.shown, pipes])
            fed.append((start[feeding], end[feeding]))
    table = list(codes)
    code, step_of, length = (
        np.concatenate([_NO_SPANS, *(part[field] for part in found)]) for field in range(3)
    )
    total = np.zeros(len(table), np.int64)
    np.add.at(total, code, length)
    met = np.flatnonzero(np.bincount(code, minlength=len(table))).tolist()
    longest = sorted(met, key=lambda at: (-int(total[at]), table[at]))[:MAX_PHASES]
    place = np.full(len(table), -1, np.int64)
    place[longest] = np.arange(len(longest))
    shown = np.flatnonzero(place[code] >= 0)
    phase_ps = np.zeros(len(longest) * len(begin_ps), np.int64)
    np.add.at(phase_ps, place[code[shown]] * len(begin_ps) + step_of[shown], length[shown])
    by_phase = phase_ps.reshape(len(longest), len(begin_ps))
    return tuple(table[at] for at in longest), by_phase, _union(fed)


def _within(events: Int64s, end: Int64s, first: Int64s, last: Int64s, limit: Int64s) -> Int64s:
    """Those of some events, ascending, that are within one of the steps' markers.

    Args:
        events: Shape (k,).
        end: Of all events of the thread, shape (n,).
        first: The first event that may lie within each marker, shape (m,).
        last: The first behind it, shape (m,).
        limit: End of each marker, shape (m,).
    """
    low, high = np.searchsorted(events, first), np.searchsorted(events, last)
    some = [_NO_SPANS]
    for marker in np.flatnonzero(low < high).tolist():
        inside = events[low[marker] : high[marker]]
        some.append(inside[end[inside] <= limit[marker]])
    return np.concatenate(some)


def _markers(
    start: Int64s,
    end: Int64s,
    rows: Int32s,
    is_named: npt.NDArray[np.bool_],
    begin_ps: Int64s,
    end_ps: Int64s,
) -> tuple[Int64s, Int64s]:
    """The steps whose markers are on this thread, and the index of each one's marker."""
    steps, markers = [], []
    index = np.searchsorted(start, begin_ps, side="left")
    known = np.append(start, np.iinfo(np.int64).max)[index] == begin_ps
    for step in np.flatnonzero(known).tolist():
        last = int(index[step])
        while last < len(start) and start[last] == begin_ps[step]:
            if end[last] == end_ps[step] and is_named[rows[last]]:
                steps.append(step)
                markers.append(last)
                break
            last += 1
    return np.array(steps, np.int64), np.array(markers, np.int64)


def _union(spans: list[tuple[Int64s, Int64s]]) -> Union:
    starts = [start for start, _ in spans] or [_NO_SPANS]
    ends = [end for _, end in spans] or [_NO_SPANS]
    return union(np.concatenate(starts), np.concatenate(ends))
