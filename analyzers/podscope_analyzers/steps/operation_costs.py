"""Costs of the operations that a TPU's events name, for the sums of steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.memory_breakdown import read_memory_breakdown
from podscope_analyzers.steps.database import Int64s
from podscope_analyzers.steps.work import (
    CALLERS,
    COSTS,
    FEEDS,
    NOT_FEEDS,
    WIDTH,
    is_feed,
    memory_column,
)
from podscope_analyzers.xspace.metadata import StatValue

_METADATA_COSTS: Final = COSTS[:3]


class MetadataStats(Protocol):
    """What a plane's events are called."""

    def stat_pairs(self, row: int) -> list[tuple[str, StatValue]]:
        """The row's stats in the file's order, repeats included."""


@dataclass(frozen=True)
class OperationCosts:
    """Operations by row; all arrays have shape (n,) or (n, …).

    Attributes:
        category: Index into ``categories``; -1 for what is no operation.
        size: Bytes of one execution.
        costs: Of one execution: flops, model flops, bytes, then bytes by memory, (n, WIDTH - 3).
        kind: ``NOT_FEEDS`` or ``FEEDS``.
        is_caller: Whether it only calls others.
    """

    category: Int64s
    categories: tuple[str, ...]
    size: Int64s
    costs: NDArray[np.float64]
    kind: Int64s
    is_caller: NDArray[np.bool_]

    def work_by_step(
        self,
        step: Int64s,
        step_count: int,
        row: Int64s,
        occurrences: Int64s,
        time_ps: Int64s,
        event_costs: Sequence[Int64s],
    ) -> tuple[NDArray[np.float64], Int64s]:
        """Work and time of feeds by step, shapes (s, 2, WIDTH) and (s,).

        Args:
            step: Index of the step of every cell of a step and an operation, shape (c,).
            step_count: How many steps, s.
            row: The cell's operation, shape (c,).
            occurrences: Executions, shape (c,).
            time_ps: Of these, shape (c,).
            event_costs: Flops, model flops and bytes that the events themselves carry, (c,) each.
        """
        total = self.costs[row] * occurrences[:, None]
        flops, model, size = (total[:, at] for at in range(3))
        on_events = [one.astype(np.float64) for one in event_costs]
        own_flops = np.where(flops > 0, flops, on_events[0])
        own_model = np.where(model > 0, model, on_events[1])
        by_column = np.column_stack(
            [
                flops,
                np.where(model > 0, model, flops),
                size,
                own_flops,
                np.where(own_model > 0, own_model, own_flops),
                np.where(size > 0, size, on_events[2]),
                total[:, 3:],
            ]
        )
        work = np.zeros((step_count, 2, WIDTH))
        own = ~self.is_caller[row]
        np.add.at(work, (step[own], self.kind[row[own]]), by_column[own])
        feeds_ps = np.zeros(step_count, np.int64)
        feeds = self.kind[row] == FEEDS
        np.add.at(feeds_ps, step[feeds], time_ps[feeds])
        return work, feeds_ps


def operation_costs(table: MetadataStats, rows: Int64s) -> OperationCosts:
    """What some rows of a plane's event metadata say of operations.

    Operations without an identity, and the program's root, are none.
    """
    count = len(rows)
    categories: dict[str, int] = {}
    code, size = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    costs, kind = np.zeros((count, WIDTH - 3)), np.full(count, NOT_FEEDS, np.int64)
    is_caller = np.zeros(count, np.bool_)
    for at, row in enumerate(rows.tolist()):
        about = dict(table.stat_pairs(row))
        size[at] = min(_integer(about, "bytes_accessed"), 1 << 62)
        if not isinstance(about.get("program_id"), int) or not _integer(about, "symbol_id"):
            continue
        text = about.get("hlo_category", "")
        category = text if isinstance(text, str) else ""
        code[at] = categories.setdefault(category, len(categories))
        is_caller[at] = category in CALLERS
        kind[at] = FEEDS if is_feed(category) else NOT_FEEDS
        costs[at, :3] = [_integer(about, name) for name in _METADATA_COSTS]
        raw = about.get("memory_access_breakdown")
        for space, access, moved in read_memory_breakdown(raw) if isinstance(raw, bytes) else ():
            costs[at, memory_column(space, access) - 3] += moved
    return OperationCosts(code, tuple(categories), size, costs, kind, is_caller)


def _integer(stats: Mapping[str, StatValue], name: str) -> int:
    value = stats.get(name)
    return value if isinstance(value, int) else 0
