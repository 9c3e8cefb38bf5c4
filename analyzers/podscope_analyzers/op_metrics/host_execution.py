"""Operations of compiled programs that ran on a host's own threads, where there is no device.

XLA's CPU runtime records every operation that a thread runs (``hlo_op``, ``program_id``). An
operation may hand parts of its work to a thread pool; the pool records where a part was handed
over and where it ran, without saying what it was. Both together give an operation's time on all
threads; the calling thread alone would make a parallel convolution look like nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.hlo import Instruction, Programs
from podscope_analyzers.kernels import natural_order, nest
from podscope_analyzers.op_metrics.database import CostSource, OpDatabase
from podscope_analyzers.op_metrics.framework_view import UNKNOWN_TYPE
from podscope_analyzers.op_metrics.grouping import group_rows
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.plane_views import OpLine, OpPlane, OpSpace, notable_columns
from podscope_analyzers.planes import HOST_PLANE
from podscope_analyzers.step_times import StepTimes

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

_DEVICE_PREFIX: Final = "/device:"
# Marks where an asynchronous operation ended; the operation's own event says the rest.
_END_MARK: Final = "end: "
_OTHER, _ENDED, _HANDED_OVER, _REGION_START, _REGION_STOP = range(5)
_KINDS: Final = {
    "ThreadpoolListener::Record": _HANDED_OVER,
    "ThreadpoolListener::StartRegion": _REGION_START,
    "ThreadpoolListener::StopRegion": _REGION_STOP,
}
_STATS: Final = ("hlo_op", "program_id", "_p", "_c")


@dataclass(frozen=True)
class _Spans:
    """Operations, and parts of operations that a thread pool ran, of one line or of all.

    Attributes:
        op: Number of the operation's name, shape (n,); -1 for a part.
        program: Shape (n,).
        start_ps: Shape (n,).
        part: Id by which a part was handed over, shape (n,); -1 for an operation.
        parent: Index of the innermost span around each, shape (n,); -1 without one.
        duration_ps: Shape (n,).
        self_ps: Without the spans inside, shape (n,).
        handed_over: Ids of the parts that were handed over, shape (m,).
        handed_over_in: Span in which each was, shape (m,); -1 for none.
    """

    op: Int64s
    program: Int64s
    start_ps: Int64s
    part: Int64s
    parent: Int64s
    duration_ps: Int64s
    self_ps: Int64s
    handed_over: Int64s
    handed_over_in: Int64s


def host_execution_database(space: OpSpace, programs: Programs) -> OpDatabase:
    """Operations of compiled programs on a host's threads; empty where there are devices.

    ``time_ps`` is the time of the threads that worked on an operation, with the operations that
    it called on its thread; ``self_time_ps`` is without these. Both add over threads. There is
    no idle operation, since no thread is only there to execute operations.

    Args:
        space: One host's.
        programs: What the capture knows of its programs, for names, categories and costs.
    """
    if any(plane.name.startswith(_DEVICE_PREFIX) for plane in space.planes):
        return OpDatabase.empty()
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    if plane is None or "hlo_op" not in plane.stat_names:
        return OpDatabase.empty()
    names: dict[str, int] = {}
    kinds = np.array([_kind(name) for name in plane.event_metadata.names], np.int8)
    spans = _join([_line_spans(line, kinds, names) for line in plane.lines if not line.is_derived])
    return _database(spans, list(names), programs, _step_markers(plane))


def _step_markers(plane: OpPlane) -> tuple[Int64s, Int64s, Int64s]:
    """Begin, end and step of the events that mark steps, by begin; all of shape (m,)."""
    found = [(np.zeros(0, np.int64),) * 3]
    for line in plane.lines:
        events, steps, _ = line.named_steps()
        if len(events):
            columns = notable_columns(line, ())
            at = events
            if (sifted := line.notable) is not None:
                at = np.minimum(np.searchsorted(sifted.events, events), len(columns) - 1)
                kept = sifted.events[at] == events
                at, steps = at[kept], steps[kept]
            begin = columns.start_ps[at]
            found.append((begin, begin + columns.duration_ps[at], steps))
    begin, end, step = (np.concatenate(one) for one in zip(*found, strict=True))
    order = np.argsort(begin, kind="stable")
    return begin[order], end[order], step[order]


def _steps_at(start_ps: Int64s, markers: tuple[Int64s, Int64s, Int64s]) -> Int64s:
    """The step in whose time each span begins, -1 for none, shape (n,).

    Threads that run programs are not told which step called them.
    """
    begin, end, step = markers
    if not len(begin):
        return np.full(len(start_ps), -1, np.int64)
    at = np.searchsorted(begin, start_ps, side="right") - 1
    return np.where((at >= 0) & (start_ps < end[at]), step[at], -1)


def _kind(name: str) -> int:
    """What an event of this name says beside its stats."""
    return _ENDED if name.startswith(_END_MARK) else _KINDS.get(name, _OTHER)


def _line_spans(line: OpLine, kinds: NDArray[np.int8], names: dict[str, int]) -> _Spans:
    """The operations of a line, and the parts that it ran.

    Args:
        line: A thread.
        kinds: Of every row of the plane's event metadata, shape (m,).
        names: Numbers of the operations' names; gets those that are new.
    """
    columns = notable_columns(line, _STATS)
    codes, table = columns.stat("hlo_op").strings()
    kind = kinds[columns.metadata]
    numbers = [names.setdefault(name, len(names)) if name else -1 for name in table]
    op = np.where(kind == _ENDED, -1, np.array([*numbers, -1], np.int64)[codes])
    events = np.flatnonzero(op >= 0)
    start, duration = columns.start_ps, columns.duration_ps
    record, first, last = (
        np.flatnonzero(kind == one) for one in (_HANDED_OVER, _REGION_START, _REGION_STOP)
    )
    begun, ended = _pairs(start[first], start[last])
    first, last = first[begun], last[ended]
    consumed = columns.stat("_c").ints_or_uints()
    produced = columns.stat("_p").ints_or_uints()
    # Records take no time here: they only say in which span they are.
    at = np.concatenate([start[events], start[first], start[record]])
    length = np.concatenate(
        [duration[events], start[last] - start[first], np.zeros(len(record), np.int64)]
    )
    order = natural_order(at, length)
    if order is None:
        order = np.arange(len(at))
    nesting = nest(at[order], length[order])
    place = np.empty(len(at), np.int64)
    place[order] = np.arange(len(at))
    ordered_parent = nesting.parent.astype(np.int64)
    count = len(events) + len(first)
    # A record may be found to be another's parent only where both are at one instant.
    around = ordered_parent
    while (inside := (around >= 0) & (order[around] >= count)).any():
        around = np.where(inside, ordered_parent[around], around)
    parent = np.where(around >= 0, order[around], -1)[place]
    self_ps = nesting.self_ps[place]
    return _Spans(
        op=np.concatenate([op[events], np.full(len(first), -1, np.int64)]),
        program=np.concatenate(
            [
                columns.stat("program_id").ints_or_uints()[events],
                np.zeros(len(first), np.int64),
            ]
        ),
        start_ps=at[:count],
        part=np.concatenate([np.full(len(events), -1, np.int64), consumed[first]]),
        parent=parent[:count],
        duration_ps=length[:count],
        self_ps=self_ps[:count],
        handed_over=produced[record],
        handed_over_in=parent[count:],
    )


def _pairs(begin_ps: Int64s, end_ps: Int64s) -> tuple[Int64s, Int64s]:
    """Which begins and ends belong together, as brackets do; those without a mate are left out."""
    at = np.concatenate([begin_ps, end_ps])
    is_end = np.arange(len(at)) >= len(begin_ps)
    # Of one instant the end is first: an empty region has no time anyway.
    order = np.lexsort((~is_end, at))
    step = np.where(is_end[order], -1, 1)
    level = np.cumsum(step) - np.where(step > 0, step, 0)
    by_level = np.argsort(level, kind="stable")
    ordered = order[by_level]
    level, opens = level[by_level], step[by_level] > 0
    found = np.flatnonzero((level[1:] == level[:-1]) & opens[:-1] & ~opens[1:])
    return ordered[found], ordered[found + 1] - len(begin_ps)


def _join(lines: Sequence[_Spans]) -> _Spans:
    offsets = np.cumsum([0, *(len(line.op) for line in lines)])

    def joined(name: str, *, shifted: bool = False) -> Int64s:
        arrays = [getattr(line, name) for line in lines]
        if shifted:
            arrays = [
                np.where(array >= 0, array + offset, -1)
                for array, offset in zip(arrays, offsets, strict=False)
            ]
        return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)

    return _Spans(
        op=joined("op"),
        program=joined("program"),
        start_ps=joined("start_ps"),
        part=joined("part"),
        parent=joined("parent", shifted=True),
        duration_ps=joined("duration_ps"),
        self_ps=joined("self_ps"),
        handed_over=joined("handed_over"),
        handed_over_in=joined("handed_over_in", shifted=True),
    )


def _followed(start: Int64s, links: Int64s, is_op: Bools) -> Int64s:
    """The first operation on the way from each span along the links; -1 where there is none."""
    # An extra last entry, where ways end; a way that runs in a circle never gets anywhere.
    nowhere = len(links)
    target = np.append(np.where(links >= 0, links, nowhere), nowhere)
    target[:-1] = np.where(is_op, np.arange(nowhere), target[:-1])
    for _ in range(nowhere.bit_length() + 1):
        target = target[target]
    reached = target[np.where(start >= 0, start, nowhere)]
    return np.where((reached < nowhere) & np.append(is_op, False)[reached], reached, -1)


def _owners(spans: _Spans) -> tuple[Int64s, Bools]:
    """The operation that every span's time is of, and whether that runs around the span."""
    is_op = spans.op >= 0
    handed_over_in = np.full(len(is_op), -1, np.int64)
    if len(spans.handed_over):
        order = np.argsort(spans.handed_over, kind="stable")
        known = spans.handed_over[order]
        at = np.minimum(np.searchsorted(known, spans.part), len(known) - 1)
        found = ~is_op & (known[at] == spans.part)
        handed_over_in[found] = spans.handed_over_in[order[at[found]]]
    each = np.arange(len(is_op))
    owner = _followed(each, handed_over_in, is_op)
    around = _followed(spans.parent, spans.parent, is_op)
    return owner, ~is_op & (owner >= 0) & (owner == around)


def _database(
    spans: _Spans,
    names: list[str],
    programs: Programs,
    markers: tuple[Int64s, Int64s, Int64s],
) -> OpDatabase:
    runs = np.flatnonzero(spans.op >= 0)
    if not len(runs):
        return OpDatabase.empty()
    owner, runs_inside = _owners(spans)
    owned = np.flatnonzero(owner >= 0)
    self_ps = np.zeros(len(spans.op), np.int64)
    np.add.at(self_ps, owner[owned], spans.self_ps[owned])
    time_ps = spans.duration_ps.copy()
    elsewhere = owned[(spans.op[owned] < 0) & ~runs_inside[owned]]
    np.add.at(time_ps, owner[elsewhere], spans.self_ps[elsewhere])
    group, first = group_rows(np.stack([spans.program[runs], spans.op[runs]]))
    count = len(first)
    shortest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest, group, time_ps[runs])
    sums = {"time_ps": np.zeros(count, np.int64), "self_time_ps": np.zeros(count, np.int64)}
    for column, values in (("time_ps", time_ps), ("self_time_ps", self_ps)):
        np.add.at(sums[column], group, values[runs])
    occurrences = np.bincount(group, minlength=count)
    program = spans.program[runs[first]]
    called = [names[number] for number in spans.op[runs[first]].tolist()]
    known = [
        programs.instruction(int(one), name) for one, name in zip(program, called, strict=True)
    ]
    texts = TextTable()
    total_ps = int(sums["self_time_ps"].sum())
    steps = _steps_at(spans.start_ps[runs], markers)
    return OpDatabase.build(
        {
            "name": texts.codes(called),
            "module_id": program,
            "occurrences": occurrences,
            "min_time_ps": shortest,
            "num_cores": 1,
            **_described(known, texts),
            **_costs(known, occurrences),
            **sums,
        },
        texts,
        step_times=StepTimes.of(group, steps, self_ps[runs]).bounded(),
        total_op_time_ps=total_ps,
        total_time_ps=total_ps,
    )


def _described(known: Sequence[Instruction | None], texts: TextTable) -> dict[str, object]:
    sources = [one.source if one else None for one in known]
    return {
        "category": texts.codes([one.category if one else UNKNOWN_TYPE for one in known]),
        "provenance": texts.codes([one.framework_name if one else "" for one in known]),
        "deduplicated_name": texts.codes([one.deduplicated_name if one else "" for one in known]),
        "long_name": texts.codes([one.expression if one else "" for one in known]),
        "source_file": texts.codes([one.file if one else "" for one in sources]),
        "source_stack": texts.codes([one.stack if one else "" for one in sources]),
        "source_line": [one.line if one else -1 for one in sources],
    }


def _costs(
    known: Sequence[Instruction | None], occurrences: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Work by the same estimate as for GPUs: arithmetic on shapes, per run."""
    # Much code, which hosts with devices do without.
    from podscope_analyzers.hlo.cost import UNKNOWN_COST, instruction_cost

    costs = [instruction_cost(one) if one else UNKNOWN_COST for one in known]

    def total(name: str) -> NDArray[np.float64]:
        return np.array([getattr(cost, name) for cost in costs], np.float64) * occurrences

    flops, model_flops, size = total("flops"), total("model_flops"), total("bytes_accessed")
    return {
        "flops": flops,
        "own_flops": flops,
        "model_flops": model_flops,
        "own_model_flops": model_flops,
        "bytes_accessed": size,
        "own_bytes_accessed": size,
        "cost_source": np.where((flops > 0) | (size > 0), CostSource.ANALYSIS, CostSource.NONE),
    }
