"""Sums of a TPU core's events and what the metadata say, made one operation database."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.hlo import Programs
from podscope_analyzers.op_metrics.database import CoreType, MemoryAccesses, OpDatabase
from podscope_analyzers.op_metrics.grouping import group_rows
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.op_metrics.tpu.children import child_ops
from podscope_analyzers.op_metrics.tpu.lines import OpSums
from podscope_analyzers.op_metrics.tpu.metadata import OpMetadata, costs, read_op_metadata
from podscope_analyzers.plane_views import MetadataTable

Int64s = NDArray[np.int64]


def merge_ops(
    table: MetadataTable,
    parts: list[OpSums],
    core_type: CoreType,
    linked: list[OpDatabase],
    programs: Programs,
    *,
    with_children: bool = True,
) -> tuple[OpDatabase, NDArray[np.intp]]:
    """One row per operation; costs of the metadata times occurrences.

    Events without program and symbol id are left out.

    Args:
        table: The plane's event metadata.
        parts: Sums of the plane's op lines.
        core_type: Of the plane's core.
        linked: Databases that an event's ``link`` numbers.
        programs: Give fusions their fused instructions.
        with_children: Whether the database has what operations are made of.

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
    columns |= costs(
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
    if not with_children:
        return database, op_of_row
    links = np.full(count, -1, np.int64)
    for part in reversed(parts):
        at, link = part.first_linked[rows[taken]], part.link[rows[taken]]
        # The last to be assigned, the first in the line, is the one that stays.
        for row in np.argsort(-at, kind="stable")[: int((at >= 0).sum())].tolist():
            links[group[row]] = link[row]
    if (links >= 0).any():
        below = child_ops(database, table, rows[of_op], links, linked, programs)
    else:
        below = table.made_of(
            # Codes of texts depend on the rows that are no operations too.
            np.concatenate([rows, of_op]),
            ("below", programs),
            lambda: child_ops(database, table, rows[of_op], links, linked, programs),
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
