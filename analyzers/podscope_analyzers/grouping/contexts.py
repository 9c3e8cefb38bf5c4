"""What the events of one line say about causes: roots, producers, consumers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.grouping.event_types import NodeType
from podscope_analyzers.xspace import Columns
from podscope_analyzers.xspace.columns import Bools, Int64s

CONTEXT_STATS: Final = frozenset(
    {
        "_r", "_pt", "_p", "_ct", "_c", "_pid", "_a", "id", "iter_num", "step_num", "graph_type",
        "correlation_id", "is_func", "request_id", "queue_addr", "device_ordinal", "queue_id",
        "run_id", "core_type",
    }
)  # fmt: skip
"""Stats that grouping reads."""

TF_EXECUTOR: Final = 1
TPU_STREAM: Final = 11
TPU_LAUNCH: Final = 12
_RUN_ID_MASK: Final = (1 << 27) - 1
_RUN_ID_HOLDERS: Final = (
    NodeType.ENQUEUE_PROGRAM,
    NodeType.COMPLETE_CALLBACKS,
    NodeType.ENQUEUE_CONTINUATION,
)


@dataclass(frozen=True)
class Marks:
    """Some events of a line and a value of each: indices and values, both (k,)."""

    events: Int64s
    values: Int64s


@dataclass(frozen=True)
class LineContexts:
    """What the events of a line say about causes.

    Attributes:
        roots: Root levels.
        producer_types: Types of the contexts that events produce.
        producer_ids: Their ids, of the same events.
        consumer_types: Types of the contexts that events consume.
        consumer_ids: Their ids, of the same events.
        consumer_pids: The process whose contexts an event consumes, where it says so.
        run_ids: Run ids as they are compared.
    """

    roots: Marks
    producer_types: Marks
    producer_ids: Marks
    consumer_types: Marks
    consumer_ids: Marks
    consumer_pids: Marks
    run_ids: Marks


class StatReads:
    """Integer stats of a line's events, read where the plane has them."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def present(self, name: str) -> Bools:
        """Which events carry the stat, shape (n,)."""
        if name not in self.columns.stat_names:
            return np.zeros(len(self.columns), np.bool_)
        return self.columns.stat(name).present()

    def marks(self, name: str, *, unsigned: bool = False) -> Marks:
        """The events that carry a stat, and its values.

        Args:
            name: Of the stat.
            unsigned: Read a uint64 member too.
        """
        if name not in self.columns.stat_names:
            return Marks(np.zeros(0, np.int64), np.zeros(0, np.int64))
        stat = self.columns.stat(name)
        events = np.flatnonzero(stat.kind)
        values = stat.ints_or_uints() if unsigned else stat.ints()
        return Marks(events, values[events])

    def values(self, name: str) -> Int64s:
        """The stat as an integer of either sign, 0 where absent, shape (n,)."""
        if name not in self.columns.stat_names:
            return np.zeros(len(self.columns), np.int64)
        return self.columns.stat(name).ints_or_uints()


def mix(parts: list[Int64s]) -> Int64s:
    """One 64-bit number for each row of several columns: equal rows, equal numbers."""
    mixed = np.zeros(parts[0].shape, np.uint64)
    for part in parts:
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + part.view(np.uint64)
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed.view(np.int64)


def line_contexts(
    types: NDArray[np.uint8], columns: Columns, *, device_of_modules: int | None = None
) -> LineContexts:
    """What a line's events say about causes, completed by what their stats imply.

    Args:
        types: :class:`NodeType` of every event, shape (n,).
        columns: Decoded with those of ``CONTEXT_STATS`` that the plane has.
        device_of_modules: The device's number, for the line of a TensorCore's modules.
    """
    stats = StatReads(columns)
    roots = _levels(stats, types)
    run_ids = _run_ids(stats, types)
    produced = _Contexts(stats, "_pt", "_p")
    consumed = _Contexts(stats, "_ct", "_c")

    def has(*names: str) -> Bools:
        present = np.ones(len(columns), np.bool_)
        for name in names:
            present &= stats.present(name)
        return present

    def of_type(*wanted: NodeType) -> Bools:
        return np.isin(types, wanted)

    if {"id", "iter_num"} <= columns.stat_names:
        both = has("id", "iter_num")
        ids: Callable[[Bools], Int64s] = lambda where: mix(  # noqa: E731 -- read in one place
            [stats.values("id")[where], stats.values("iter_num")[where]]
        )
        produced.put(TF_EXECUTOR, both & of_type(NodeType.EXECUTOR_PROCESS), ids)
        consumed.put(TF_EXECUTOR, both & of_type(NodeType.TPU_EXECUTE), ids)
    if {"request_id", "queue_addr"} <= columns.stat_names:
        both = has("request_id", "queue_addr")
        ids = lambda where: mix(  # noqa: E731 -- read in one place
            [stats.values("request_id")[where], stats.values("queue_addr")[where]]
        )
        produced.put(TPU_STREAM, both & of_type(NodeType.ENQUEUE_REQUEST), ids)
        consumed.put(TPU_STREAM, both & of_type(NodeType.QUEUE_REQUEST), ids)

    def launch(ordinal: Int64s) -> Callable[[Bools], Int64s]:
        return lambda where: mix(
            [
                ordinal[where],
                stats.values("queue_id")[where],
                run_ids.values[np.searchsorted(run_ids.events, np.flatnonzero(where))],
                stats.values("core_type")[where],
            ]
        )

    if {"queue_id", "run_id"} <= columns.stat_names:
        if device_of_modules is not None:
            ordinal = np.full(len(columns), device_of_modules, np.int64)
            consumed.put(TPU_LAUNCH, has("queue_id", "run_id"), launch(ordinal))
        elif "device_ordinal" in columns.stat_names:
            all_three = has("device_ordinal", "queue_id", "run_id")
            ids = launch(stats.values("device_ordinal"))
            produced.put(TPU_LAUNCH, all_three & of_type(NodeType.ENQUEUE_PROGRAM), ids)
            consumed.put(TPU_LAUNCH, all_three & of_type(NodeType.COMPLETE_CALLBACKS), ids)
    return LineContexts(
        roots=roots,
        producer_types=Marks(produced.events, produced.types),
        producer_ids=Marks(produced.events, produced.ids),
        consumer_types=Marks(consumed.events, consumed.types),
        consumer_ids=Marks(consumed.events, consumed.ids),
        consumer_pids=stats.marks("_pid"),
        run_ids=run_ids,
    )


class _Contexts:
    """Contexts on one side, stored or implied; what is implied replaces what is stored."""

    def __init__(self, stats: StatReads, type_name: str, id_name: str) -> None:
        both = stats.present(type_name) & stats.present(id_name)
        self.events = np.flatnonzero(both)
        self.types = stats.values(type_name)[both]
        self.ids = stats.values(id_name)[both]

    def put(self, context: int, where: Bools, ids: Callable[[Bools], Int64s]) -> None:
        """Events that have a context by their type and stats."""
        events = np.flatnonzero(where)
        if not len(events):
            return
        kept = ~np.isin(self.events, events)
        joined = np.concatenate([self.events[kept], events])
        order = np.argsort(joined, kind="stable")
        self.types = np.concatenate([self.types[kept], np.full(len(events), context, np.int64)])[
            order
        ]
        self.ids = np.concatenate([self.ids[kept], ids(where)])[order]
        self.events = joined[order]


def _levels(stats: StatReads, types: NDArray[np.uint8]) -> Marks:
    """Root levels: stored, or known by the event's type."""
    stored = stats.marks("_r")
    special = np.flatnonzero(
        np.isin(
            types,
            (NodeType.TRACE_CONTEXT, NodeType.PROCESS_BATCH, NodeType.BATCHING_SESSION_RUN),
        )
    )
    # Any level counts, also 0 and those below, which programs give to what they mark themselves.
    if not len(special):
        return stored
    level = np.zeros(len(types), np.int64)
    is_root = np.zeros(len(types), np.bool_)
    is_root[special] = is_root[stored.events] = True
    level[types == NodeType.TRACE_CONTEXT] = 1
    level[stored.events] = stored.values
    level[types == NodeType.PROCESS_BATCH] = 2
    level[types == NodeType.BATCHING_SESSION_RUN] = 1
    events = np.flatnonzero(is_root)
    return Marks(events, level[events])


def _run_ids(stats: StatReads, types: NDArray[np.uint8]) -> Marks:
    """Run ids; the host's own events hold more bits than the device's."""
    run_ids = stats.marks("run_id", unsigned=True)
    masked = np.isin(types[run_ids.events], _RUN_ID_HOLDERS)
    return Marks(run_ids.events, np.where(masked, run_ids.values & _RUN_ID_MASK, run_ids.values))
