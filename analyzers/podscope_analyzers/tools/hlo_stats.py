"""HLO instructions by self time: those of devices, and of compiled programs on host threads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.op_metrics.database import (
    Access,
    CoreType,
    CostSource,
    MemorySpace,
    safe_divide,
)
from podscope_analyzers.op_metrics.op_columns import (
    BYTES_PER_GIBI,
    SPREAD_COLUMNS,
    cost_source_value,
    description_values,
    in_order,
    op_columns,
    rate_values,
    spread_values,
    time_values,
    xprof_time_cells,
)
from podscope_analyzers.op_metrics.op_description import OpDescription, describe_op
from podscope_analyzers.op_metrics.rates import GIBI, OpRates, Roofline, giga_per_second
from podscope_analyzers.reasons import NO_HLO_OPS
from podscope_analyzers.result import Cell, Column, Scope, Table, ToolResult
from podscope_analyzers.spread import Spread
from podscope_analyzers.step_table import PARAMETER, Series, step_table, wants_step_times
from podscope_analyzers.xprof_table import XprofCell, XprofColumn, XprofTable

NAME: Final = "hlo_stats"
VERSION: Final = 2
PARAMETERS: Final = {
    PARAMETER: "1 to list the self time of every instruction in every step, as far as it is kept"
}

Place = Literal["device", "host_execution"]
_PLACES: Final[tuple[Place, ...]] = ("device", "host_execution")


@dataclass(frozen=True)
class _Row:
    """One instruction.

    Attributes:
        rank: From 1; 0 for what a SparseCore did for another instruction.
        ratio: Share of the time looked at; 0 without a rank.
        cumulative_ratio: The same with all rows before.
        parent: The instruction that it is a part of, or empty.
        cmem_read: GiB/s; likewise cmem_write.
    """

    rank: int
    place: Place
    op: OpDescription
    occurrences: int
    time_ps: int
    self_time_ps: int
    ratio: float
    cumulative_ratio: float
    dma_stall_ratio: float
    rates: OpRates
    cmem_read: float
    cmem_write: float
    parent: str
    energy_j: float
    cost_source: CostSource
    spread: Spread | None


class _Rows:
    """The rows of one database."""

    def __init__(self, stats: CaptureStats, place: Place, *, own: bool) -> None:
        self._place: Place = place
        self._database = stats.device_ops if place == "device" else stats.host_execution
        self._roofline = Roofline(
            self._database, stats.perf_env, stats.run_environment.device_type, own=own
        )
        self._spreads = self._database.spreads()
        self._children: dict[int, list[int]] = {}
        parents = self._database.column("parent")
        for row in np.flatnonzero(parents >= 0).tolist():
            self._children.setdefault(int(parents[row]), []).append(row)

    def rows(self, first_rank: int) -> Iterator[_Row]:
        """Rows by self time, each followed by what SparseCores did for it."""
        database = self._database
        total_us = database.total_time_ps / 1e6
        cumulative, rank = 0.0, first_rank
        for at in database.order_by_self_time().tolist():
            # Without occurrences is the time in which nothing ran.
            if not database.column("occurrences")[at]:
                continue
            ratio = safe_divide(int(database.column("self_time_ps")[at]) / 1e6, total_us)
            cumulative += ratio
            yield self._row(at, rank=rank, ratio=ratio, cumulative=cumulative)
            rank += 1
            yield from self._below(at)

    def _below(self, at: int) -> Iterator[_Row]:
        database = self._database
        rows = np.array(self._children.get(at, []), np.intp)
        for row in database.sorted_rows(rows).tolist() if len(rows) else ():
            is_sparse = int(database.column("core_type")[row]) == CoreType.SPARSE_CORE
            if is_sparse and database.column("occurrences")[row]:
                yield self._row(row, parent=database.text("name", at))
            yield from self._below(row)

    def _row(
        self,
        at: int,
        *,
        rank: int = 0,
        ratio: float = 0.0,
        cumulative: float = 0.0,
        parent: str = "",
    ) -> _Row:
        database = self._database
        time_ps = int(database.column("time_ps")[at])
        return _Row(
            rank=rank,
            place=self._place,
            op=describe_op(database, at),
            occurrences=int(database.column("occurrences")[at]),
            time_ps=time_ps,
            self_time_ps=int(database.column("self_time_ps")[at]),
            ratio=ratio,
            cumulative_ratio=cumulative,
            dma_stall_ratio=safe_divide(int(database.column("dma_stall_ps")[at]), time_ps),
            rates=self._roofline[at],
            cmem_read=self._cmem(at, Access.READ, time_ps),
            cmem_write=self._cmem(at, Access.WRITE, time_ps),
            parent=parent,
            energy_j=float(database.column("energy_j")[at]),
            cost_source=CostSource(int(database.column("cost_source")[at])),
            spread=self._spreads[at],
        )

    def _cmem(self, at: int, access: Access, time_ps: int) -> float:
        size = self._roofline.bytes(at, MemorySpace.CMEM, access)
        return giga_per_second(size, time_ps) / GIBI


_COLUMNS: Final = (
    *op_columns("rank"),
    Column("place", "Where it ran", "string"),
    *op_columns("program_id", "category"),
    Column("hlo_op_name", "Instruction", "string"),
    Column("hlo_op_expression", "Text", "string"),
    *op_columns(
        "framework_name",
        "occurrences",
        "total_time_us",
        "avg_time_us",
        "total_self_time_us",
        "avg_self_time_us",
        "total_self_time_ratio",
        "cumulative_total_self_time_ratio",
        "dma_stall_ratio",
        "model_flops_per_second",
        "measured_flops_per_second",
        "measured_memory_bytes_per_second",
    ),
    Column("hbm_bytes_per_second", "Main memory bandwidth", "number", "bytes/s"),
    Column("cmem_read_bytes_per_second", "CMEM read bandwidth", "number", "bytes/s"),
    Column("cmem_write_bytes_per_second", "CMEM write bandwidth", "number", "bytes/s"),
    *op_columns(
        "operational_intensity_flops_per_byte",
        "bound_by",
        "is_rematerialized",
        "is_outside_compilation",
        "source",
        "core_type",
    ),
    Column("parent_op_name", "Part of", "string"),
    *op_columns("energy_j", "cost_source"),
    *SPREAD_COLUMNS,
)


def _cells(row: _Row) -> list[Cell]:
    is_known = row.cost_source != CostSource.NONE
    on_device = row.place == "device"
    memory = is_known and on_device
    return in_order(
        _COLUMNS,
        {
            **description_values(row.op),
            **time_values(row.occurrences, row.time_ps / 1e6, row.self_time_ps / 1e6),
            **rate_values(row.rates, is_known=is_known),
            **spread_values(row.spread),
            "rank": row.rank or None,
            "place": row.place,
            "hlo_op_name": row.op.name,
            "hlo_op_expression": row.op.expression,
            "total_self_time_ratio": row.ratio if row.rank else None,
            "cumulative_total_self_time_ratio": row.cumulative_ratio if row.rank else None,
            "dma_stall_ratio": row.dma_stall_ratio if on_device else None,
            "hbm_bytes_per_second": row.rates.hbm_bandwidth * BYTES_PER_GIBI if memory else None,
            "cmem_read_bytes_per_second": row.cmem_read * BYTES_PER_GIBI if memory else None,
            "cmem_write_bytes_per_second": row.cmem_write * BYTES_PER_GIBI if memory else None,
            "parent_op_name": row.parent or None,
            "energy_j": row.energy_j or None,
            "cost_source": cost_source_value(row.cost_source),
        },
    )


_STEP_COLUMNS: Final = (
    Column("place", "Where it ran", "string"),
    *op_columns("program_id", "category"),
    Column("hlo_op_name", "Instruction", "string"),
    *op_columns("framework_name"),
)


def _step_series(stats: CaptureStats, place: Place) -> Series:
    database = stats.device_ops if place == "device" else stats.host_execution

    def cells_of(at: int) -> Iterator[tuple[Cell, ...]]:
        op = describe_op(database, at)
        values = {**description_values(op), "place": place, "hlo_op_name": op.name}
        yield tuple(in_order(_STEP_COLUMNS, values))

    return Series(database.step_times, place == "device", cells_of)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Instructions of devices, longest self time first, then those that host threads ran."""
    with_step_times = wants_step_times(parameters)
    rows = list(_Rows(stats, "device", own=True).rows(1))
    first = 1 + sum(row.rank > 0 for row in rows)
    rows += _Rows(stats, "host_execution", own=True).rows(first)
    tables = {"instructions": Table(_COLUMNS, [_cells(row) for row in rows])}
    if with_step_times:
        tables[PARAMETER] = step_table(
            stats, _STEP_COLUMNS, [_step_series(stats, place) for place in _PLACES]
        )
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if rows else "empty",
        result={
            "device_type": stats.run_environment.device_type,
            **{name: table.to_json() for name, table in tables.items()},
        },
        tables=tables,
        reasons=[] if rows else [NO_HLO_OPS],
    )


_XPROF_COLUMNS: Final = (
    XprofColumn("rank", "Rank"),
    XprofColumn("program_id", "Program id", "string"),
    XprofColumn("category", "HLO op category", "string"),
    XprofColumn("hlo_op_name", "HLO op name", "string"),
    XprofColumn("hlo_op_expression", "HLO op text", "string"),
    XprofColumn("tf_op_name", "Framework op name", "string"),
    XprofColumn("occurrences", "#Occurrences"),
    XprofColumn("total_time", "Total time (us)"),
    XprofColumn("avg_time", "Avg. time (us)"),
    XprofColumn("total_self_time", "Total self time (us)"),
    XprofColumn("avg_self_time", "Avg. self time (us)"),
    XprofColumn("total_self_time_percent", "Total self time (%)"),
    XprofColumn("cumulative_total_self_time_percent", "Cumulative total self time (%)"),
    XprofColumn("dma_stall_percent", "%time stalled by DMA"),
    XprofColumn("model_flop_rate", "Model GFLOP/s"),
    XprofColumn("normalized_flop_rate", "Normalized GFLOP/s"),
    XprofColumn("measured_memory_bw", "Measured memory BW (GiB/s)"),
    XprofColumn("hbm_bw", "HBM BW (GiB/s)"),
    XprofColumn("cmem_read_bw", "CMEM Read BW (GiB/s)"),
    XprofColumn("cmem_write_bw", "CMEM Write BW (GiB/s)"),
    XprofColumn("operational_intensity", "Operational intensity (FLOPS/Byte)"),
    XprofColumn("bound_by", "Bound by", "string"),
    XprofColumn("hlo_rematerialization", "Rematerialization", "string"),
    XprofColumn("outside_compilation", "Outside Compilation", "string"),
    XprofColumn("autotuned", "Autotuned", "string"),
    XprofColumn("source_info", "Source Info", "string"),
    XprofColumn("core_type", "TPU core type", "string"),
    XprofColumn("parent_op_name", "Parent op name", "string"),
    XprofColumn("vdd_energy", "VDD Energy (J)"),
)


def _yes(value: bool) -> str:
    return "Yes" if value else "No"


def _xprof_cells(row: _Row) -> list[XprofCell]:
    op, rates = row.op, row.rates
    return [
        row.rank,
        op.program_id,
        op.category,
        op.name,
        op.expression,
        op.framework_name,
        *xprof_time_cells(row.occurrences, row.time_ps / 1e6, row.self_time_ps / 1e6),
        row.ratio * 100,
        row.cumulative_ratio * 100,
        # Its label says percent, its value is a fraction.
        row.dma_stall_ratio,
        rates.model_flop_rate,
        rates.flop_rate,
        rates.memory_bandwidth,
        rates.hbm_bandwidth,
        row.cmem_read,
        row.cmem_write,
        rates.operational_intensity,
        rates.bound_by,
        _yes(op.is_rematerialized),
        _yes(op.is_outside_compilation),
        # Whether an instruction was autotuned, no tracer tells.
        "No",
        op.source_html,
        op.core,
        row.parent,
        row.energy_j,
    ]


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's table: devices alone."""
    del parameters  # It takes none.
    rows = _Rows(stats, "device", own=False).rows(1)
    return XprofTable(_XPROF_COLUMNS, [_xprof_cells(row) for row in rows]).to_json()
