"""Operations as a tree: by program, category or framework scope, equal ones together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import numpy as np

from podscope_analyzers.op_metrics.database import (
    IDLE,
    Access,
    CoreType,
    MemorySpace,
    OpDatabase,
)

Grouping = Literal["program", "category", "provenance"]
GROUPINGS: Final[tuple[str, ...]] = get_args(Grouping)
Kind = Literal["root", "program", "scope", "category", "duplicates", "op", "part", "idle"]

# Programs that the capture has no text of.
UNKNOWN_PROGRAM: Final = "main"
_REGION: Final = "region"


@dataclass(slots=True)
class Work:
    """What the operations of a node took and did together.

    Attributes:
        time_ps: Of operations and what they called; at programs, scopes and the root self times.
        flops: At the width of the operands; model_flops as the program says.
        hbm_bytes: Read and written; on chip, reads and writes are apart.
    """

    time_ps: int = 0
    self_time_ps: int = 0
    normalized_time_ps: int = 0
    occurrences: int = 0
    dma_stall_ps: int = 0
    energy_j: float = 0.0
    flops: float = 0.0
    model_flops: float = 0.0
    bytes_accessed: int = 0
    hbm_bytes: int = 0
    on_chip_read_bytes: int = 0
    on_chip_written_bytes: int = 0
    knows_cost: bool = False

    def add(self, other: "Work") -> None:
        """Adds all of another."""
        self.time_ps += other.time_ps
        self.occurrences += other.occurrences
        self.add_apart(other, with_costs=True)

    def add_self(self, other: "Work", *, with_costs: bool) -> None:
        """Adds self time alone as time, costs only ``with_costs``, and no occurrences."""
        self.time_ps += other.self_time_ps
        self.add_apart(other, with_costs=with_costs)

    def add_apart(self, other: "Work", *, with_costs: bool) -> None:
        """Adds all but time and occurrences."""
        self.self_time_ps += other.self_time_ps
        self.normalized_time_ps += other.normalized_time_ps
        if not with_costs:
            return
        self.dma_stall_ps += other.dma_stall_ps
        self.energy_j += other.energy_j
        self.flops += other.flops
        self.model_flops += other.model_flops
        self.bytes_accessed += other.bytes_accessed
        self.hbm_bytes += other.hbm_bytes
        self.on_chip_read_bytes += other.on_chip_read_bytes
        self.on_chip_written_bytes += other.on_chip_written_bytes
        self.knows_cost |= other.knows_cost


@dataclass(slots=True, eq=False)
class Node:
    """One node.

    Attributes:
        row: Of the database, for ``op``, ``part`` and ``idle``; else -1.
        children: By what makes them one node; in order of appearance.
    """

    kind: Kind
    name: str
    work: Work = field(default_factory=Work)
    row: int = -1
    children: dict[object, "Node"] = field(default_factory=dict)

    def child(self, key: object, kind: Kind, name: str) -> "Node":
        """The child of a key, made at its first use."""
        found = self.children.get(key)
        if found is None:
            found = self.children[key] = Node(kind, name)
        return found


class OpTree:
    """The tree of a database's operations.

    Operations that call others (loops, conditionals) count at programs and scopes with their
    self time, and are no nodes: what they call is.

    Args:
        database: Operations of devices, or of host threads.
        grouping: What stands below the root.
        program_titles: ``name(id)`` by program id.
        own: Whether our own flops and bytes are taken, or the reference's.
    """

    def __init__(
        self,
        database: OpDatabase,
        grouping: Grouping,
        program_titles: Mapping[int, str],
        *,
        own: bool,
    ) -> None:
        self.database = database
        self.grouping: Grouping = grouping
        self.root = Node("root", f"by_{grouping}")
        self.idle: Node | None = None
        self._titles = program_titles
        self._works = _works(database, own=own)
        self._below: dict[int, list[int]] = {}
        parents = database.column("parent")
        for row in np.flatnonzero(parents >= 0).tolist():
            self._below.setdefault(int(parents[row]), []).append(row)
        self._is_sparse = (database.column("core_type") == CoreType.SPARSE_CORE).tolist()
        self._build()

    def _build(self) -> None:
        database = self.database
        texts = {
            name: database.text_column(name)
            for name in ("name", "category", "provenance", "deduplicated_name")
        }
        for row in range(database.top_count):
            name, category = texts["name"][row], texts["category"][row]
            if name.startswith(_REGION):
                continue
            work = self._works[row]
            if category == IDLE:
                self.idle = Node("idle", name, work, row)
                continue
            calls = work.time_ps != work.self_time_ps
            self.root.work.add_self(work, with_costs=not calls)
            parent = self.root
            if self.grouping != "category":
                program = database.module_id(row)
                parent = parent.child(
                    program, "program", self._titles.get(program, UNKNOWN_PROGRAM)
                )
                parent.work.add_self(work, with_costs=not calls)
            below = self._below.get(row, [])
            if calls and not any(self._is_sparse[child] for child in below):
                continue
            if self.grouping == "provenance":
                for scope in scopes(texts["provenance"][row]):
                    parent = parent.child(("scope", scope), "scope", scope)
                    parent.work.add_self(work, with_costs=not calls)
            self._add_leaf(parent, row, name, category, texts["deduplicated_name"][row] or name)

    def _add_leaf(self, parent: Node, row: int, name: str, category: str, group: str) -> None:
        work = self._works[row]
        of_category = parent.child(("category", category), "category", category)
        of_group = of_category.child(group, "duplicates", group)
        # The key of an operation is its program and name: of two programs both are leaves.
        leaf = of_group.child(row, "op", name)
        leaf.row = row
        for node in (of_category, of_group, leaf):
            node.work.add(work)
        self._add_parts(leaf)

    def _add_parts(self, node: Node) -> None:
        """Fused instructions, and what a SparseCore did, below an operation."""
        pending = [node]
        while pending:
            at = pending.pop()
            for row in self._below.get(at.row, ()):
                part = Node("part", self.database.text("name", row), self._works[row], row)
                at.children[row] = part
                pending.append(part)

    def children(self, node: Node, *, with_idle: bool) -> Iterator[Node]:
        """A node's children in order of appearance, idle time among the root's."""
        yield from node.children.values()
        if with_idle and node is self.root and self.idle is not None:
            yield self.idle


def scopes(provenance: str) -> list[str]:
    """Parts of a framework name: between slashes, the last without its type."""
    parts = [part for part in provenance.split("/") if part]
    if parts:
        parts[-1] = parts[-1].partition(":")[0]
    return parts


def _works(database: OpDatabase, *, own: bool) -> list[Work]:
    count = len(database)
    accesses = database.accesses
    is_hbm = accesses.space == MemorySpace.HBM
    reads, writes = (accesses.access == kind for kind in (Access.READ, Access.WRITE))
    prefix = "own_" if own else ""

    def moved(
        which: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        total = np.zeros(count, np.int64)
        np.add.at(total, accesses.op[which], accesses.size_bytes[which])
        return total

    size = database.column(prefix + "bytes_accessed")
    hbm = moved(is_hbm & (reads | writes))
    if own:
        # Without a breakdown everything is from the main memory, as in the roofline.
        has_breakdown = np.zeros(count, np.bool_)
        has_breakdown[accesses.op] = True
        hbm = np.where(has_breakdown, hbm, size)
    columns = (
        database.column("time_ps"),
        database.column("self_time_ps"),
        database.column("normalized_time_ps"),
        database.column("occurrences"),
        database.column("dma_stall_ps"),
        database.column("energy_j"),
        database.column(prefix + "flops"),
        database.column(prefix + "model_flops"),
        size,
        hbm,
        moved(~is_hbm & reads),
        moved(~is_hbm & writes),
        database.column("cost_source") > 0,
    )
    return [Work(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
