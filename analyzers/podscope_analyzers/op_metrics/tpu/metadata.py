"""What the event metadata of a TPU core say of its operations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.memory_breakdown import read_memory_breakdown
from podscope_analyzers.op_metrics.database import TEXT_COLUMNS, CostSource, MemoryAccesses
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.plane_views import MetadataTable
from podscope_analyzers.xspace import StatValue

Int64s = NDArray[np.int64]


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


def costs(
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
