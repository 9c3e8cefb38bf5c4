"""Operations with their times, work and traffic, as columns; databases combine by key."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.op_metrics.grouping import first_nonzero, group_rows, running_minimum
from podscope_analyzers.op_metrics.texts import Codes, TextTable
from podscope_analyzers.spread import Spread
from podscope_analyzers.step_times import StepTimes

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

IDLE: Final = "IDLE"
"""Name and category of the operation that stands for the time without any."""


class CoreType(IntEnum):
    """The kind of core that an operation ran on."""

    UNKNOWN = 0
    TENSOR_CORE = 1
    SPARSE_CORE = 2


class CostSource(IntEnum):
    """Where an operation's own flops and bytes are from."""

    NONE = 0
    STATS = 1
    ANALYSIS = 2
    KERNEL = 3


class Access(IntEnum):
    """What a memory access does; the reference counts reads and writes, not the rest."""

    UNKNOWN = 0
    READ = 1
    WRITE = 2


class MemorySpace(IntEnum):
    """Memories of a device."""

    UNKNOWN = 0
    HBM = 1
    CMEM = 2
    VMEM = 3


TEXT_COLUMNS: Final = (
    "name",
    "long_name",
    "category",
    "provenance",
    "deduplicated_name",
    "source_file",
    "source_stack",
)
# Those taken from the first operation of a key that has them.
_TEXT_METADATA: Final = tuple(name for name in TEXT_COLUMNS if name != "name")
SUMS: Final = (
    "occurrences",
    "time_ps",
    "self_time_ps",
    "normalized_time_ps",
    "dma_stall_ps",
    "bytes_accessed",
    "own_bytes_accessed",
    "flops",
    "model_flops",
    "own_flops",
    "own_model_flops",
    "energy_j",
)
DTYPES: Final[Mapping[str, type[np.generic]]] = {
    **dict.fromkeys(TEXT_COLUMNS, np.int32),
    **dict.fromkeys(SUMS[:7], np.int64),
    **dict.fromkeys(SUMS[7:], np.float64),
    "module_id": np.int64,
    "min_time_ps": np.int64,
    "source_line": np.int32,
    "is_eager": np.bool_,
    "num_cores": np.int32,
    "core_type": np.uint8,
    "cost_source": np.uint8,
    "parent": np.int32,
}
COLUMNS: Final = tuple(DTYPES)


@dataclass(frozen=True)
class MemoryAccesses:
    """Bytes by operation, memory and kind of access, one row each.

    Attributes:
        op: Row of the operation, shape (k,), int32.
        space: Memory, shape (k,), int64; see :class:`MemorySpace`.
        access: Shape (k,), uint8; see :class:`Access`.
        size_bytes: Shape (k,), int64.
    """

    op: NDArray[np.int32]
    space: Int64s
    access: NDArray[np.uint8]
    size_bytes: Int64s

    @classmethod
    def empty(cls) -> "MemoryAccesses":
        """No accesses."""
        return cls(
            np.zeros(0, np.int32),
            np.zeros(0, np.int64),
            np.zeros(0, np.uint8),
            np.zeros(0, np.int64),
        )

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int]]) -> "MemoryAccesses":
        """Accesses from rows of operation, space, access and bytes."""
        table = np.asarray(rows, dtype=np.int64).reshape(-1, 4)
        return cls(
            table[:, 0].astype(np.int32),
            table[:, 1].copy(),
            table[:, 2].astype(np.uint8),
            table[:, 3].copy(),
        )

    def summed(self) -> "MemoryAccesses":
        """One row per operation, space and access, in order of appearance."""
        if len(self.op) == 0:
            return self
        keys = np.stack([self.op.astype(np.int64), self.space, self.access.astype(np.int64)])
        group, first = group_rows(keys)
        size = np.zeros(len(first), np.int64)
        np.add.at(size, group, self.size_bytes)
        return MemoryAccesses(self.op[first], self.space[first], self.access[first], size)


@dataclass(frozen=True)
class OpDatabase:
    """Operations of one or many devices, or of the hosts' threads.

    The key of a top-level operation is (module id, name). Rows below another one (fused
    instructions, SparseCore operations) follow after the top-level ones and name their parent.

    Attributes:
        columns: Arrays of shape (n,) by name. Texts are codes into ``texts``. ``time_ps`` holds
            an operation and what it called, ``self_time_ps`` the operation alone. ``flops``,
            ``model_flops`` and ``bytes_accessed`` follow the reference's rule, their ``own_``
            forms ours: the tracer's stats first, then the cost analysis, with ``cost_source``
            saying which. ``module_id`` holds a uint64's bits. ``parent`` is -1 at the top.
        texts: Distinct texts.
        accesses: Bytes by operation, memory and kind.
        step_times: Self times of top-level operations by step.
        total_time_ps: The time that was looked at, summed over devices or threads.
        total_op_time_ps: Sum of self times.
        normalized_total_op_time_ps: The same at nominal clock rate.
        busy_time_ps: Duty cycle of TPUs, active; idle_time_ps, the rest.
        busy_high_confidence_ps: The same without custom calls of unknown work.
        idle_high_confidence_ps: The rest of it.
        infeed_enqueue_ps: Durations of the infeed enqueues that another one followed.
        infeed_enqueue_start_difference_ps: From start to start of consecutive enqueues.
    """

    columns: Mapping[str, NDArray[Any]]
    texts: tuple[str, ...] = ("",)
    accesses: MemoryAccesses = field(default_factory=MemoryAccesses.empty)
    step_times: StepTimes = field(default_factory=StepTimes)
    total_time_ps: int = 0
    total_op_time_ps: int = 0
    normalized_total_op_time_ps: int = 0
    busy_time_ps: int = 0
    idle_time_ps: int = 0
    busy_high_confidence_ps: int = 0
    idle_high_confidence_ps: int = 0
    infeed_enqueue_ps: int = 0
    infeed_enqueue_start_difference_ps: int = 0

    @classmethod
    def empty(cls) -> "OpDatabase":
        """No operations, no time."""
        return cls(empty_columns(0))

    @classmethod
    def build(cls, columns: Mapping[str, Any], texts: TextTable, **scalars: Any) -> "OpDatabase":
        """A database from some columns; those not given are zero, parents -1.

        Args:
            columns: ``name`` at least; arrays or scalars of the row count of ``name``.
            texts: What the text columns are codes of.
            scalars: Other attributes by name.
        """
        count = len(columns["name"])
        full = empty_columns(count)
        for name, values in columns.items():
            full[name] = np.broadcast_to(np.asarray(values), (count,)).astype(DTYPES[name])
        return cls(full, texts.texts(), **scalars)

    def __len__(self) -> int:
        """How many rows, those below others included."""
        return len(self.columns["name"])

    @property
    def top_count(self) -> int:
        """How many operations stand at the top; they are the first rows."""
        return int(np.count_nonzero(self.columns["parent"] < 0))

    def column(self, name: str) -> NDArray[Any]:
        """A column of all rows."""
        return self.columns[name]

    def top(self, name: str) -> NDArray[Any]:
        """A column of the top-level rows."""
        values: NDArray[Any] = self.columns[name][: self.top_count]
        return values

    def text(self, name: str, row: int) -> str:
        """One text of one row."""
        return self.texts[int(self.columns[name][row])]

    def text_column(self, name: str) -> list[str]:
        """A text column of all rows, as texts."""
        texts = self.texts
        return [texts[code] for code in self.columns[name].tolist()]

    def module_id(self, row: int) -> int:
        """The program's id, an unsigned number."""
        return int(self.columns["module_id"][row]) & (2**64 - 1)

    def children(self, row: int) -> NDArray[np.intp]:
        """Rows directly below one."""
        return np.flatnonzero(self.columns["parent"] == row)

    @property
    def is_idle(self) -> NDArray[np.bool_]:
        """Which rows are the idle operation, shape (n,)."""
        code = self.texts.index(IDLE) if IDLE in self.texts else -1
        idle: NDArray[np.bool_] = self.columns["category"] == code
        return idle

    @property
    def idle_ratio(self) -> float:
        """Share of the time without any operation; 1 for an empty database."""
        return 1.0 - safe_divide(self.total_op_time_ps, self.total_time_ps)

    def spreads(self) -> list[Spread | None]:
        """How far the self time of every row varies from step to step; None where unknown."""
        return self.step_times.spreads(len(self))

    def order_by_self_time(self, *, last_name_first: bool = False) -> NDArray[np.intp]:
        """Top-level rows by self time, longest first, then by name."""
        return self.sorted_rows(np.arange(self.top_count), last_name_first=last_name_first)

    def sorted_rows(
        self, rows: NDArray[np.intp], *, last_name_first: bool = False
    ) -> NDArray[np.intp]:
        """Some rows by self time, longest first, then by name."""
        names = self.columns["name"][rows]
        used, place = np.unique(names, return_inverse=True)
        # By bytes, as the reference's strings compare; code points order the same in UTF-8.
        order = sorted(range(len(used)), key=lambda i: self.texts[int(used[i])])
        rank = np.empty(len(used), np.int64)
        rank[order[::-1] if last_name_first else order] = np.arange(len(used))
        self_time = self.columns["self_time_ps"][rows].view(np.uint64)
        return rows[np.lexsort((rank[place], ~self_time))]

    def with_total_time(self, total_time_ps: int) -> "OpDatabase":
        """The same with the time that was looked at, at least the operations' sum."""
        # Damaged times may lie further apart than a column can say.
        told_ps = min(total_time_ps, np.iinfo(np.int64).max)
        return replace(self, total_time_ps=max(self.total_op_time_ps, told_ps))

    def with_idle(self) -> "OpDatabase":
        """The same with an idle operation for the time without others."""
        idle_ps = self.total_time_ps - self.total_op_time_ps
        at = self.top_count
        texts = self.texts if IDLE in self.texts else (*self.texts, IDLE)
        code = texts.index(IDLE)
        filled = empty_columns(1)
        for name, value in (
            ("name", code),
            ("category", code),
            ("time_ps", idle_ps),
            ("self_time_ps", idle_ps),
        ):
            filled[name][0] = value
        columns = {
            name: np.concatenate([values[:at], filled[name], values[at:]])
            for name, values in self.columns.items()
        }
        parent = columns["parent"]
        columns["parent"] = np.where(parent >= at, parent + 1, parent).astype(np.int32)
        op = self.accesses.op
        accesses = replace(self.accesses, op=np.where(op >= at, op + 1, op).astype(np.int32))
        return replace(self, columns=columns, texts=texts, accesses=accesses)

    def to_state(self) -> dict[str, Any]:
        """The database as arrays, texts and numbers."""
        scalars = {name: int(getattr(self, name)) for name in SCALARS}
        accesses = {name: getattr(self.accesses, name) for name in ACCESS_COLUMNS}
        return {
            "columns": dict(self.columns),
            "texts": list(self.texts),
            "accesses": accesses,
            "step_times": self.step_times.to_state(),
            **scalars,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "OpDatabase":
        """The database that ``to_state`` wrote."""
        accesses = MemoryAccesses(**{name: state["accesses"][name] for name in ACCESS_COLUMNS})
        scalars = {name: int(state[name]) for name in SCALARS}
        columns = {name: state["columns"][name] for name in COLUMNS}
        step_times = StepTimes.from_state(state["step_times"])
        return cls(columns, tuple(state["texts"]), accesses, step_times, **scalars)

    @property
    def has_each_once(self) -> bool:
        """Whether no two of its operations are of one program and name."""
        keys = np.stack([self.top("module_id"), self.top("name").astype(np.int64)])
        return len(group_rows(keys)[1]) == self.top_count

    @classmethod
    def combine(cls, databases: Iterable["OpDatabase"], *, add_cores: bool = True) -> "OpDatabase":
        """One database of several: planes of a host, threads, or hosts.

        All totals add. Of a key's metadata the first that is not empty counts, of its children
        the first that has any.

        Args:
            databases: In the order that decides who is first.
            add_cores: Whether cores add; those of hosts do not.
        """
        parts = list(databases)
        if len(parts) == 1 and parts[0].has_each_once:
            return parts[0]
        if not parts:
            return cls.empty()
        return _combine(parts, add_cores)


SCALARS: Final = (
    "total_time_ps",
    "total_op_time_ps",
    "normalized_total_op_time_ps",
    "busy_time_ps",
    "idle_time_ps",
    "busy_high_confidence_ps",
    "idle_high_confidence_ps",
    "infeed_enqueue_ps",
    "infeed_enqueue_start_difference_ps",
)
ACCESS_COLUMNS: Final = ("op", "space", "access", "size_bytes")


def safe_divide(dividend: float, divisor: float) -> float:
    """0 for a divisor that is practically 0, else the quotient."""
    return 0.0 if abs(divisor) < 1e-10 else dividend / divisor


def empty_columns(count: int) -> dict[str, NDArray[Any]]:
    """Columns of zeros, with no row below another."""
    columns: dict[str, NDArray[Any]] = {
        name: np.zeros(count, dtype) for name, dtype in DTYPES.items()
    }
    columns["parent"] -= 1
    return columns


def _combine(parts: Sequence[OpDatabase], add_cores: bool) -> OpDatabase:
    texts = TextTable()
    # Hosts of one job mostly have the same texts.
    known: dict[tuple[str, ...], Codes] = {}
    for part in parts:
        if part.texts not in known:
            known[part.texts] = texts.codes(part.texts)
    recode = [known[part.texts] for part in parts]
    top_counts = [part.top_count for part in parts]

    def top(name: str) -> NDArray[Any]:
        arrays = [part.columns[name][:n] for part, n in zip(parts, top_counts, strict=True)]
        if name in TEXT_COLUMNS:
            arrays = [codes[array] for codes, array in zip(recode, arrays, strict=True)]
        return np.concatenate(arrays)

    names = top("name")
    modules = top("module_id")
    group, first = group_rows(np.stack([modules, names.astype(np.int64)]))
    count = len(first)
    columns = empty_columns(count)
    columns["name"] = names[first].astype(np.int32)
    columns["module_id"] = modules[first]
    for name in _TEXT_METADATA:
        columns[name] = first_nonzero(group, top(name), count)
    columns["core_type"] = first_nonzero(group, top("core_type"), count)
    columns["cost_source"] = first_nonzero(group, top("cost_source"), count)
    # A line belongs to the file that it is of: both are of the first that has a file.
    columns["source_line"] = _lines_of_files(group, top("source_file"), top("source_line"), first)
    for name in SUMS:
        total = columns[name]
        np.add.at(total, group, top(name))
    columns["is_eager"] = np.bincount(group, weights=top("is_eager"), minlength=count) > 0
    cores = top("num_cores")
    if add_cores:
        np.add.at(columns["num_cores"], group, cores)
    else:
        columns["num_cores"] = cores[first]
    columns["min_time_ps"] = running_minimum(group, top("min_time_ps"), top("occurrences"), count)
    return _with_accesses_and_children(parts, recode, group, columns, texts)


def _lines_of_files(
    group: NDArray[np.intp], files: Codes, lines: NDArray[np.int32], first: NDArray[np.intp]
) -> NDArray[np.int32]:
    chosen = lines[first].copy()
    with_file = np.flatnonzero(files)
    # Assigned from the last to the first, so that the first stays.
    chosen[group[with_file[::-1]]] = lines[with_file[::-1]]
    return chosen


def _with_accesses_and_children(
    parts: Sequence[OpDatabase],
    recode: Sequence[Codes],
    group: NDArray[np.intp],
    columns: dict[str, NDArray[Any]],
    texts: TextTable,
) -> OpDatabase:
    count = len(columns["name"])
    below: dict[str, list[NDArray[Any]]] = {name: [] for name in COLUMNS}
    accesses: list[MemoryAccesses] = []
    places: list[Int64s] = []
    has_children = np.zeros(count, np.bool_)
    next_row = count
    at = 0
    for part, codes in zip(parts, recode, strict=True):
        top_count = part.top_count
        place = np.full(len(part), -1, np.int64)
        place[:top_count] = group[at : at + top_count]
        at += top_count
        if len(part) > top_count:
            kept = _kept_descendants(part, place, has_children)
            place[kept] = next_row + np.arange(len(kept))
            next_row += len(kept)
            for name in COLUMNS:
                values = part.columns[name][kept]
                if name in TEXT_COLUMNS:
                    values = codes[values]
                elif name == "parent":
                    values = place[values].astype(np.int32)
                below[name].append(values)
        places.append(place)
        target = place[part.accesses.op]
        keep = target >= 0
        accesses.append(
            MemoryAccesses(
                target[keep].astype(np.int32),
                part.accesses.space[keep],
                part.accesses.access[keep],
                part.accesses.size_bytes[keep],
            )
        )
    for name in COLUMNS:
        columns[name] = np.concatenate([columns[name], *below[name]]).astype(DTYPES[name])
    joined = MemoryAccesses(
        *(np.concatenate([getattr(one, name) for one in accesses]) for name in ACCESS_COLUMNS)
    )
    scalars = {name: sum(getattr(part, name) for part in parts) for name in SCALARS}
    step_times = StepTimes.combine([part.step_times for part in parts], places)
    return OpDatabase(columns, texts.texts(), joined.summed(), step_times, **scalars)


def _kept_descendants(
    part: OpDatabase, place: Int64s, has_children: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Rows below top-level ones whose key got no children from an earlier database."""
    parent = part.columns["parent"]
    root = np.arange(len(part))
    pending = parent >= 0
    while pending.any():
        root = np.where(pending, parent[root], root)
        pending = parent[root] >= 0
    target = place[root]
    rows = np.flatnonzero(parent >= 0)
    kept = rows[~has_children[target[rows]]]
    has_children[target[rows]] = True
    return kept
