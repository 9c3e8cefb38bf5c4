"""Operations of TPU cores: nested events of the tracer, with costs from their metadata."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.hlo import Instruction, Programs
from podscope_analyzers.kernels import extent, sum_groups, sum_nested
from podscope_analyzers.memory_breakdown import read_memory_breakdown
from podscope_analyzers.op_metrics.database import (
    DTYPES,
    TEXT_COLUMNS,
    CoreType,
    CostSource,
    MemoryAccesses,
    OpDatabase,
)
from podscope_analyzers.op_metrics.grouping import group_rows
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.plane_views import MetadataTable, OpLine, OpPlane
from podscope_analyzers.xspace import Columns, StatColumn, StatValue

Int64s = NDArray[np.int64]

TENSOR_CORE_PLANE: Final = re.compile(r"/device:TPU:([0-9]*)")
OP_LINES: Final = frozenset({"XLA Ops", "Framework Ops", "Sparse Core Ops"})
STEP_LINES: Final = frozenset({"Steps", "Sparse Core Steps"})
SPARSE_CORE_MODULES: Final = "Sparse Core Modules"
SPARSE_CORE_OPS: Final = "Sparse Core Ops"
_DEVICE_SPAN: Final = ("device_offset_ps", "device_duration_ps")
_EVENT_STATS: Final = (
    *_DEVICE_SPAN,
    "min_duration_ps",
    "dma_stall_duration_ps",
    "Time Scale Multiplier",
    "vdd_energy_j",
    "flops",
    "model_flops",
    "bytes_accessed",
)
_STEP_STATS: Final = ("all_reduce_unique_id",)
_LINK_STATS: Final = ("offload_core_id", "tc_offload_start_id")
_MAX_CHILD_DEPTH: Final = 64
# Doubles hold every duration below it.
_EXACT_PS: Final = 1 << 53
# A file whose metadata are each other's children would have no end of them.
_MAX_CHILDREN: Final = 20_000

ModuleKey = tuple[int, int]


def device_spans(columns: Columns) -> tuple[Int64s, Int64s]:
    """Start and duration of events on the device's clock, where they carry both.

    Args:
        columns: With ``device_offset_ps`` and ``device_duration_ps`` decoded.
    """
    offset, duration = (columns.stat(name) for name in _DEVICE_SPAN)
    if not offset.kind.any():
        return columns.start_ps, columns.duration_ps
    if offset.is_everywhere and duration.is_everywhere:
        return offset.ints_or_uints(), duration.ints_or_uints()
    both = offset.present() & duration.present()
    return (
        np.where(both, offset.ints_or_uints(), columns.start_ps),
        np.where(both, duration.ints_or_uints(), columns.duration_ps),
    )


@dataclass(frozen=True)
class OpSums:
    """Sums of the events of each row of a plane's event metadata, shape (m,) each.

    Attributes:
        first: Index of the first event; -1 for a row without events.
        time_ps: Durations on the device.
        self_ps: The same without nested events.
        min_ps: The shortest, as the tracer says it.
        first_linked: Index of the first event that waits for a SparseCore module; -1 for none.
        link: Number of that module, -1 for none.
    """

    first: Int64s
    occurrences: Int64s
    time_ps: Int64s
    self_ps: Int64s
    min_ps: Int64s
    normalized_ps: Int64s
    dma_stall_ps: Int64s
    energy_j: NDArray[np.float64]
    flops: Int64s
    model_flops: Int64s
    size_bytes: Int64s
    first_linked: Int64s
    link: Int64s


def op_sums(
    columns: Columns,
    count: int,
    links: Mapping[ModuleKey, int],
    where: NDArray[np.bool_] | None = None,
) -> OpSums:
    """Operations of one op line, self times by nesting on the device's clock.

    Args:
        columns: With the stats that operations need decoded.
        count: Rows of the plane's event metadata.
        links: Numbers of SparseCore modules by offloading core and start id.
        where: Which events to take; nesting sees only these.
    """
    at = slice(None) if where is None else np.flatnonzero(where)
    start, duration = (values[at] for values in device_spans(columns))
    rows, measured = columns.metadata[at], columns.duration_ps[at]
    sums = sum_nested(rows, count, start, duration)
    occurred = columns.occurrences[at]
    occurrences = sums.occurrences
    if occurred.any():
        occurrences = _added(rows, np.maximum(occurred, 1), count)

    def total(name: str, read: Callable[[StatColumn], NDArray[Any]]) -> NDArray[Any]:
        stat = columns.stat(name)
        # Most stats are on no event of a line at all.
        if not stat.kind.any():
            return np.zeros(count, np.int64)
        return _added(rows, read(stat)[at], count)

    minimum = columns.stat("min_duration_ps")
    if minimum.kind.any():
        told = np.where(minimum.present(), minimum.ints(), columns.duration_ps)[at]
        shortest = sum_groups(rows, count, told, told).min_ps
    elif measured is duration:
        shortest = sums.min_ps
    else:
        shortest = sum_groups(rows, count, measured, measured).min_ps
    scale = columns.stat("Time Scale Multiplier")
    normalized = sums.time_ps
    if scale.kind.any() or (len(duration) and int(duration.max()) >= _EXACT_PS):
        factor = np.where(scale.present(), scale.doubles(), 1.0)[at]
        normalized = _added(rows, np.trunc(duration * factor).astype(np.int64), count)
    first_linked, link = _links(columns, links, at, rows, count)
    return OpSums(
        first=sums.first,
        occurrences=occurrences,
        time_ps=sums.time_ps,
        self_ps=sums.self_ps,
        min_ps=shortest,
        normalized_ps=normalized,
        dma_stall_ps=total("dma_stall_duration_ps", StatColumn.ints),
        energy_j=total("vdd_energy_j", StatColumn.doubles).astype(np.float64),
        flops=total("flops", StatColumn.ints_or_uints),
        model_flops=total("model_flops", StatColumn.ints_or_uints),
        size_bytes=total("bytes_accessed", StatColumn.ints_or_uints),
        first_linked=first_linked,
        link=link,
    )


def _added(rows: NDArray[np.int32], values: NDArray[Any], count: int) -> NDArray[Any]:
    summed = np.zeros(count, values.dtype)
    np.add.at(summed, rows, values)
    return summed


def decode_ops(line: OpLine) -> Columns:
    """A line's events with every stat that operations need, and steps, which are read next."""
    return line.columns((*_EVENT_STATS, *_LINK_STATS, *_STEP_STATS))


def _links(
    columns: Columns,
    links: Mapping[ModuleKey, int],
    at: slice | NDArray[np.intp],
    rows: NDArray[np.int32],
    count: int,
) -> tuple[Int64s, Int64s]:
    """Of every row, the first event that waits for a module, and that module's number."""
    first, link = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    core, start = (columns.stat(name) for name in _LINK_STATS)
    both = (core.present() & start.present())[at] if links else np.zeros(0, np.bool_)
    if not both.any():
        return first, link
    cores, starts = core.ints_or_uints()[at], start.ints_or_uints()[at]
    for event in np.flatnonzero(both)[::-1].tolist():
        found = links.get((int(cores[event]), int(starts[event])), -1)
        if found >= 0:
            first[rows[event]], link[rows[event]] = event, found
    return first, link


@dataclass(frozen=True)
class OpMetadata:
    """What a plane's event metadata says of operations, one row per row that is used.

    Attributes:
        columns: Text codes, module ids and per-execution costs by column, shape (u,).
        symbol_id: Operation within its program; 0 for no operation, shape (u,).
        accesses: Rows of operation, space, access and bytes, per execution.
    """

    columns: Mapping[str, NDArray[Any]]
    symbol_id: Int64s
    accesses: MemoryAccesses


def read_op_metadata(table: MetadataTable, rows: NDArray[np.intp], texts: TextTable) -> OpMetadata:
    """Metadata of operations.

    Args:
        table: A plane's event metadata.
        rows: Rows of the table, each read once.
        texts: Takes the texts found.
    """
    found: dict[str, list[int | float]] = {
        name: []
        for name in (
            *TEXT_COLUMNS,
            "source_line",
            "module_id",
            "flops",
            "model_flops",
            "bytes_accessed",
        )
    }
    symbols: list[int] = []
    accesses: list[tuple[int, int, int, int]] = []
    for index, row in enumerate(rows.tolist()):
        # Of a name that repeats, the last counts here.
        stats: dict[str, StatValue] = dict(table.stat_pairs(row))
        file, line = _source(_text(stats, "source"))
        display = table.display_names[row]
        described = {
            "name": display or table.names[row],
            "long_name": table.names[row] if display else "",
            "category": _text(stats, "hlo_category"),
            "provenance": _text(stats, "tf_op"),
            "deduplicated_name": _text(stats, "deduplicated_name"),
            "source_file": file,
            "source_stack": _text(stats, "source_stack"),
        }
        for name, text in described.items():
            found[name].append(texts.code(text))
        found["source_line"].append(line)
        has_ids = "program_id" in stats and "symbol_id" in stats
        found["module_id"].append(_signed(_integer(stats, "program_id")))
        symbols.append(_signed(_integer(stats, "symbol_id")) if has_ids else 0)
        flops = _integer(stats, "flops")
        found["flops"].append(flops)
        found["model_flops"].append(_integer(stats, "model_flops"))
        found["bytes_accessed"].append(_signed(_integer(stats, "bytes_accessed")))
        raw = stats.get("memory_access_breakdown")
        if isinstance(raw, bytes):
            accesses += [(index, *access) for access in read_memory_breakdown(raw)]
    columns = {
        name: np.array(values, np.float64 if name.endswith("flops") else np.int64)
        for name, values in found.items()
    }
    return OpMetadata(columns, np.array(symbols, np.int64), MemoryAccesses.of(accesses))


def tensor_core_ops(
    plane: OpPlane, programs: Programs, sparse_core: Mapping[ModuleKey, OpDatabase]
) -> tuple[OpDatabase, NDArray[np.intp]]:
    """Operations of one TensorCore.

    Args:
        plane: The core's.
        programs: Gives fusions their fused instructions.
        sparse_core: Operations of SparseCore modules, by offloading core and start id; they
            become children of the operation that waits for them.

    Returns:
        Them, and the operation of every row of the plane's event metadata, -1 for none, (m,).
    """
    links = {key: number for number, key in enumerate(sparse_core)}
    parts: list[OpSums] = []
    first, last = None, 0
    for line in plane.lines:
        is_ops = line.name in OP_LINES
        if not is_ops and line.name not in STEP_LINES:
            continue
        columns = decode_ops(line) if is_ops else line.columns(_DEVICE_SPAN)
        if not len(columns):
            continue
        begin, end = extent(*device_spans(columns))
        first = begin if first is None else min(first, begin)
        last = max(last, end)
        if is_ops:
            parts.append(op_sums(columns, len(plane.event_metadata), links))
    if plane.framework_span is not None:
        begin, end = plane.framework_span
        first = begin if first is None else min(first, begin)
        last = max(last, end)
    database, op_of_row = merge_ops(
        plane.event_metadata, parts, CoreType.TENSOR_CORE, list(sparse_core.values()), programs
    )
    total_ps = last - first if first is not None else 0
    return database.with_total_time(total_ps).with_idle(), op_of_row


def merge_ops(
    table: MetadataTable,
    parts: list[OpSums],
    core_type: CoreType,
    linked: list[OpDatabase],
    programs: Programs,
) -> tuple[OpDatabase, NDArray[np.intp]]:
    """One row per operation; costs of the metadata times occurrences.

    Events without program and symbol id are left out.

    Args:
        table: The plane's event metadata.
        parts: Sums of the plane's op lines.
        core_type: Of the plane's core.
        linked: Databases that an event's ``link`` numbers.
        programs: Give fusions their fused instructions.

    Returns:
        The database, and the operation of every row of the metadata, -1 for none, shape (m,).
    """
    op_of_row = np.full(len(table), -1, np.intp)
    if not parts:
        return OpDatabase.empty(), op_of_row
    rows = _by_appearance(parts)
    metadata, texts = table.made_of(rows, "operations", lambda: _described(table, rows))
    keys = np.stack([metadata.columns["module_id"], metadata.symbol_id])
    taken = np.flatnonzero(metadata.symbol_id)
    group, first = group_rows(keys[:, taken])
    of_op = taken[first]
    op_of_row[rows[taken]] = group
    count = len(first)

    def total(name: str) -> NDArray[Any]:
        values = [getattr(part, name)[rows[taken]] for part in parts]
        summed = np.zeros(count, values[0].dtype)
        for one in values:
            np.add.at(summed, group, one)
        return summed

    columns: dict[str, Any] = {name: values[of_op] for name, values in metadata.columns.items()}
    occurrences = total("occurrences")
    minimum = np.full(count, np.iinfo(np.int64).max)
    for part in parts:
        happened = part.first[rows[taken]] >= 0
        np.minimum.at(minimum, group[happened], part.min_ps[rows[taken]][happened])
    columns |= {
        "occurrences": occurrences,
        "time_ps": total("time_ps"),
        "self_time_ps": total("self_ps"),
        # The clock rate of SparseCores is not told.
        "normalized_time_ps": 0 * occurrences
        if core_type == CoreType.SPARSE_CORE
        else total("normalized_ps"),
        "dma_stall_ps": total("dma_stall_ps"),
        "energy_j": total("energy_j"),
        "min_time_ps": minimum,
        "num_cores": 1,
        "core_type": core_type,
    }
    columns |= _costs(
        columns, occurrences, total("flops"), total("model_flops"), total("size_bytes")
    )
    self_ps = columns["self_time_ps"]
    time_ps = columns["time_ps"].astype(np.float64)
    # Multiplied before it is divided, so that without nested operations nothing is lost.
    normalized_self_ps = np.divide(
        self_ps * columns["normalized_time_ps"].astype(np.float64),
        time_ps,
        out=np.zeros(count),
        where=time_ps != 0,
    )
    database = OpDatabase.build(
        columns,
        texts,
        accesses=_accesses(metadata.accesses, of_op, occurrences),
        total_op_time_ps=int(self_ps.sum()),
        # Each addition is to an unsigned integer.
        normalized_total_op_time_ps=int(np.trunc(normalized_self_ps).astype(np.int64).sum()),
    )
    links = np.full(count, -1, np.int64)
    for part in reversed(parts):
        at, link = part.first_linked[rows[taken]], part.link[rows[taken]]
        # The last to be assigned, the first in the line, is the one that stays.
        for row in np.argsort(-at, kind="stable")[: int((at >= 0).sum())].tolist():
            links[group[row]] = link[row]
    if (links >= 0).any():
        below = _below(database, table, rows[of_op], links, linked, programs)
    else:
        below = table.made_of(
            # Codes of texts depend on the rows that are no operations too.
            np.concatenate([rows, of_op]),
            ("below", programs),
            lambda: _below(database, table, rows[of_op], links, linked, programs),
        )
    return below.under(database), op_of_row


def _described(table: MetadataTable, rows: NDArray[np.intp]) -> tuple[OpMetadata, TextTable]:
    """Metadata of operations, and the texts in them."""
    texts = TextTable()
    return read_op_metadata(table, rows, texts), texts


def _by_appearance(parts: list[OpSums]) -> NDArray[np.intp]:
    """Rows that have events, in the order in which the lines show them."""
    seen = np.zeros(len(parts[0].first), np.bool_)
    found = []
    for part in parts:
        new = np.flatnonzero((part.first >= 0) & ~seen)
        found.append(new[np.argsort(part.first[new])])
        seen[new] = True
    return np.concatenate(found)


def _costs(
    columns: Mapping[str, Any],
    occurrences: Int64s,
    event_flops: Int64s,
    event_model_flops: Int64s,
    event_bytes: Int64s,
) -> dict[str, Any]:
    """The reference looks at metadata alone; we take what events alone carry, too."""
    flops = columns["flops"] * occurrences
    model = columns["model_flops"] * occurrences
    size = columns["bytes_accessed"] * occurrences
    own_flops = np.where(flops > 0, flops, event_flops)
    own_model = np.where(model > 0, model, event_model_flops)
    own_bytes = np.where(size > 0, size, event_bytes)
    is_known = (own_flops > 0) | (own_bytes > 0)
    return {
        "flops": flops,
        "model_flops": np.where(model > 0, model, flops),
        "bytes_accessed": size,
        "own_flops": own_flops,
        "own_model_flops": np.where(own_model > 0, own_model, own_flops),
        "own_bytes_accessed": own_bytes,
        "cost_source": np.where(is_known, CostSource.STATS, CostSource.NONE),
    }


def _accesses(
    per_row: MemoryAccesses, of_op: NDArray[np.intp], occurrences: Int64s
) -> MemoryAccesses:
    op_of_row: dict[int, list[int]] = {}
    for op, row in enumerate(of_op.tolist()):
        op_of_row.setdefault(row, []).append(op)
    rows = [
        (
            op,
            int(per_row.space[at]),
            int(per_row.access[at]),
            int(per_row.size_bytes[at]) * int(occurrences[op]),
        )
        for at, row in enumerate(per_row.op.tolist())
        for op in op_of_row.get(row, ())
    ]
    return MemoryAccesses.of(rows)


def _below(
    database: OpDatabase,
    table: MetadataTable,
    rows: NDArray[np.intp],
    links: Int64s,
    linked: list[OpDatabase],
    programs: Programs,
) -> "_Below":
    """SparseCore operations, metadata's children and fused instructions."""
    below = _Below(database)
    for op in range(len(database)):
        if links[op] >= 0:
            below.add_database(op, linked[links[op]])
        else:
            below.add_metadata(op, table, int(rows[op]))
        instruction = programs.instruction(database.module_id(op), database.text("name", op))
        if instruction is not None:
            below.add_fused(op, instruction)
    return below


class _Below:
    """Collects rows below top-level ones."""

    def __init__(self, database: OpDatabase) -> None:
        self._top_count = len(database)
        self._texts = TextTable(database.texts)
        self._rows: list[dict[str, Any]] = []
        self._accesses: list[tuple[int, int, int, int]] = []
        self._children = 0

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
        columns = _costs(metadata.columns, once, none, none, none) | dict(metadata.columns)
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
        """Instructions of a fusion, and of fusions in it; their costs are not told."""
        for instruction in fusion.fused():
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
            self.add_fused(at, instruction)

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


def _source(text: str) -> tuple[str, int]:
    """File and line of ``file:line``; no file and line 0 for any other text."""
    parts = text.split(":")
    if len(parts) == 2 and re.fullmatch(r"[+-]?\d{1,9}", parts[1]):
        return parts[0], int(parts[1])
    return "", 0


def _text(stats: Mapping[str, StatValue], name: str) -> str:
    value = stats.get(name)
    return value if isinstance(value, str) else ""


def _integer(stats: Mapping[str, StatValue], name: str) -> int:
    value = stats.get(name)
    return value if isinstance(value, int) else 0


def _signed(value: int) -> int:
    """The int64 of the same bits."""
    value &= 2**64 - 1
    return value - (1 << 64) if value >> 63 else value
