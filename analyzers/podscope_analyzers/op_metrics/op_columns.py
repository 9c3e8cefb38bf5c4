"""Columns that tables of operations have in common: what they are called, and their values."""

from collections.abc import Mapping, Sequence
from typing import Final

from podscope_analyzers.op_metrics.database import CostSource, safe_divide
from podscope_analyzers.op_metrics.op_description import OpDescription
from podscope_analyzers.op_metrics.rates import GIBI, OpRates
from podscope_analyzers.result import Cell, Column
from podscope_analyzers.spread import Spread
from podscope_analyzers.xprof_table import XprofCell

BYTES_PER_GIBI: Final = GIBI * 1e9
"""Bytes in the unit of the reference's bandwidths."""

SPREAD_COLUMNS: Final = (
    Column("step_spread_ratio", "Spread over steps", "number", "ratio"),
    Column("independent_steps", "Independent steps", "number"),
)
"""Standard deviation of a step's self time over its mean, and how many steps say so."""

_ALL: Final = (
    Column("rank", "Rank", "integer"),
    Column("occurrences", "Occurrences", "integer"),
    Column("total_time_us", "Total time", "number", "us"),
    Column("avg_time_us", "Average time", "number", "us"),
    Column("total_self_time_us", "Total self time", "number", "us"),
    Column("avg_self_time_us", "Average self time", "number", "us"),
    Column("total_self_time_ratio", "Share of time", "number", "ratio"),
    Column("cumulative_total_self_time_ratio", "Cumulative share of time", "number", "ratio"),
    Column("dma_stall_ratio", "Stalled by DMA", "number", "ratio"),
    Column("measured_flops_per_second", "FLOP rate", "number", "flops/s"),
    Column("model_flops_per_second", "Model FLOP rate", "number", "flops/s"),
    Column("measured_memory_bytes_per_second", "Memory bandwidth", "number", "bytes/s"),
    Column("operational_intensity_flops_per_byte", "Operational intensity", "number", "flops/byte"),
    Column("bound_by", "Bound by", "string"),
    Column("program_id", "Program", "string"),
    Column("category", "Category", "string"),
    Column("framework_name", "Framework operation", "string"),
    Column("is_rematerialized", "Rematerialized", "boolean"),
    Column("is_outside_compilation", "Outside compilation", "boolean"),
    Column("source", "Source", "string"),
    Column("core_type", "Core", "string"),
    Column("energy_j", "Energy", "number", "J"),
    Column("cost_source", "Source of flops and bytes", "string"),
    *SPREAD_COLUMNS,
)
OP_COLUMNS: Final[Mapping[str, Column]] = {column.id: column for column in _ALL}

_COST_SOURCES: Final = {
    CostSource.NONE: None,
    CostSource.STATS: "tracer",
    CostSource.ANALYSIS: "cost_analysis",
    CostSource.KERNEL: "kernel",
}


def op_columns(*ids: str) -> tuple[Column, ...]:
    """Some of the common columns."""
    return tuple(OP_COLUMNS[one] for one in ids)


def in_order(columns: Sequence[Column], values: Mapping[str, Cell]) -> list[Cell]:
    """A row's cells in the order of the columns."""
    return [values[column.id] for column in columns]


def time_values(occurrences: int, time_us: float, self_us: float) -> dict[str, Cell]:
    """Times of all executions and of one; idle time is no execution, and has no mean of one."""
    return {
        "occurrences": occurrences,
        "total_time_us": time_us,
        "avg_time_us": time_us / occurrences if occurrences else None,
        "total_self_time_us": self_us,
        "avg_self_time_us": self_us / occurrences if occurrences else None,
    }


def rate_values(rates: OpRates, *, is_known: bool = True) -> dict[str, Cell]:
    """Rates; null where nobody knows the flops and bytes."""
    values: dict[str, Cell] = {
        "measured_flops_per_second": rates.flop_rate * 1e9,
        "model_flops_per_second": rates.model_flop_rate * 1e9,
        "measured_memory_bytes_per_second": rates.memory_bandwidth * BYTES_PER_GIBI,
        "operational_intensity_flops_per_byte": rates.operational_intensity,
    }
    if not is_known:
        values = dict.fromkeys(values)
    return values | {"bound_by": rates.bound_by.lower()}


def description_values(op: OpDescription) -> dict[str, Cell]:
    """What is known of an operation beside its numbers."""
    return {
        "program_id": op.program_id,
        "category": op.category,
        "framework_name": op.framework_name.removesuffix(":") or None,
        "is_rematerialized": op.is_rematerialized,
        "is_outside_compilation": op.is_outside_compilation,
        "source": op.origin or None,
        "core_type": op.core or None,
    }


def cost_source_value(source: CostSource) -> Cell:
    """Where flops and bytes are from, in words."""
    return _COST_SOURCES[source]


def spread_values(spread: Spread | None) -> dict[str, Cell]:
    """How far the self time of a step varies, over its mean; null where nobody knows."""
    return {
        "step_spread_ratio": spread.ratio if spread else None,
        "independent_steps": spread.steps if spread else None,
    }


def xprof_time_cells(occurrences: int, time_us: float, self_us: float) -> list[XprofCell]:
    """The five columns of times as the reference's tables have them in a row."""
    return [
        occurrences,
        time_us,
        safe_divide(time_us, occurrences),
        self_us,
        safe_divide(self_us, occurrences),
    ]
