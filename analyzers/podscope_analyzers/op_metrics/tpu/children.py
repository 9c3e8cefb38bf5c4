"""Operations below those that a TPU core's lines show: what a fusion or an offload is made of."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.hlo import Instruction, Programs
from podscope_analyzers.op_metrics.database import (
    DTYPES,
    TEXT_COLUMNS,
    MemoryAccesses,
    OpDatabase,
)
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.op_metrics.tpu.metadata import costs, read_op_metadata
from podscope_analyzers.plane_views import MetadataTable

Int64s = NDArray[np.int64]

_MAX_CHILD_DEPTH: Final = 64
# A file whose metadata are each other's children would have no end of them.
_MAX_CHILDREN: Final = 20_000
_MAX_FUSED: Final = 1_000_000


def child_ops(
    database: OpDatabase,
    table: MetadataTable,
    rows: NDArray[np.intp],
    links: Int64s,
    linked: list[OpDatabase],
    programs: Programs,
) -> "ChildOps":
    """SparseCore operations, metadata's children and fused instructions."""
    below = ChildOps(database)
    for op in range(len(database)):
        if links[op] >= 0:
            below.add_database(op, linked[links[op]])
        else:
            below.add_metadata(op, table, int(rows[op]))
        instruction = programs.instruction(database.module_id(op), database.text("name", op))
        if instruction is not None:
            below.add_fused(op, instruction)
    return below


class ChildOps:
    """Collects rows below top-level ones."""

    def __init__(self, database: OpDatabase) -> None:
        self._top_count = len(database)
        self._texts = TextTable(database.texts)
        self._rows: list[dict[str, Any]] = []
        self._accesses: list[tuple[int, int, int, int]] = []
        self._children = 0
        self._fused_left = _MAX_FUSED

    def _add(self, **values: Any) -> int:
        self._rows.append(values)
        return self._top_count + len(self._rows) - 1

    def add_metadata(self, parent: int, table: MetadataTable, row: int, depth: int = 0) -> None:
        """Operations that the event metadata names as children, each executed once."""
        child_ids = table.child_ids(row)[: _MAX_CHILDREN - self._children]
        if not child_ids or depth == _MAX_CHILD_DEPTH:
            return
        self._children += len(child_ids)
        children = np.array([table.row(child) for child in child_ids], np.intp)
        metadata = read_op_metadata(table, children, self._texts)
        once, none = np.ones(len(children), np.int64), np.zeros(len(children), np.int64)
        # Only what stands at the top takes flops for missing model flops in the reference.
        columns = costs(metadata.columns, once, none, none, none) | dict(metadata.columns)
        at = []
        for index in range(len(children)):
            values = {name: column[index] for name, column in columns.items()}
            at.append(self._add(parent=parent, occurrences=1, num_cores=1, **values))
        for op, space, access, size in zip(
            metadata.accesses.op.tolist(),
            metadata.accesses.space.tolist(),
            metadata.accesses.access.tolist(),
            metadata.accesses.size_bytes.tolist(),
            strict=True,
        ):
            self._accesses.append((at[op], space, access, size))
        for index, child in enumerate(children.tolist()):
            self.add_metadata(at[index], table, child, depth + 1)

    def add_fused(self, parent: int, fusion: Instruction) -> None:
        """Instructions of a fusion, and of fusions in it; their costs are not told.

        They are at most as many as the program has, since each is in one fusion: there is no end
        of damaged ones that are in themselves.
        """
        count = min(len(fusion.program.by_id), self._fused_left)
        self._fused_left -= count - self._add_fused(parent, fusion, count)

    def _add_fused(self, parent: int, fusion: Instruction, left: int, depth: int = 0) -> int:
        """Adds what is in a fusion; returns how many more may be added."""
        if depth == _MAX_CHILD_DEPTH:
            return left
        for instruction in fusion.fused():
            if not left:
                break
            at = self._add(
                parent=parent,
                occurrences=1,
                num_cores=1,
                name=self._texts.code(instruction.name),
                long_name=self._texts.code(instruction.expression),
                category=self._texts.code(instruction.category),
                provenance=self._texts.code(instruction.full_name),
                deduplicated_name=self._texts.code(instruction.deduplicated_name),
            )
            left = self._add_fused(at, instruction, left - 1, depth + 1)
        return left

    def add_database(self, parent: int, database: OpDatabase) -> None:
        """All operations of a SparseCore module."""
        first = self._top_count + len(self._rows)
        recode = self._texts.codes(database.texts)
        for row in range(len(database)):
            values = {name: column[row] for name, column in database.columns.items()}
            for name in TEXT_COLUMNS:
                values[name] = recode[values[name]]
            above = int(values["parent"])
            values["parent"] = parent if above < 0 else first + above
            self._add(**values)

    @cached_property
    def _columns(self) -> Mapping[str, NDArray[Any]]:
        return {
            name: np.array([row.get(name, 0) for row in self._rows]).astype(kind)
            for name, kind in DTYPES.items()
        }

    def under(self, top: OpDatabase) -> OpDatabase:
        """Top-level rows, equal to the first ones in number and texts, with those collected."""
        if not self._rows:
            return top
        columns = {
            name: np.concatenate([values, self._columns[name]])
            for name, values in top.columns.items()
        }
        accesses = top.accesses
        more = MemoryAccesses.of(self._accesses)
        joined = MemoryAccesses(
            np.concatenate([accesses.op, more.op]),
            np.concatenate([accesses.space, more.space]),
            np.concatenate([accesses.access, more.access]),
            np.concatenate([accesses.size_bytes, more.size_bytes]),
        )
        return replace(top, columns=columns, texts=self._texts.texts(), accesses=joined)
