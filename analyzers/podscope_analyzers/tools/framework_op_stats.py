"""Operations by self time: on devices, on hosts, and of compiled programs run by host threads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.gpu_kernels import OpKernels
from podscope_analyzers.op_metrics.database import IDLE, CostSource, OpDatabase, safe_divide
from podscope_analyzers.op_metrics.framework_view import framework_view, is_training
from podscope_analyzers.op_metrics.op_columns import (
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
from podscope_analyzers.op_metrics.op_shares import Grouping, op_shares
from podscope_analyzers.op_metrics.rates import OpRates, Roofline
from podscope_analyzers.op_names import parse_op_name
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult
from podscope_analyzers.spread import Spread
from podscope_analyzers.step_table import PARAMETER, Series, step_table, wants_step_times
from podscope_analyzers.xprof_table import XprofColumn, XprofTable

NAME: Final = "framework_op_stats"
VERSION: Final = 5
PARAMETERS: Final = {
    PARAMETER: "1 to list the self time of every operation in every step, as far as it is kept"
}
MAX_ROWS: Final = 500
"""Operations kept on the devices, on the hosts, and of host execution; and annotations."""

Place = Literal["device", "host", "host_execution"]


@dataclass(frozen=True)
class OpRow:
    """One operation's row.

    Attributes:
        ratio: Share of the time of all operations at its place.
        cumulative_ratio: The same with all rows of the place before.
        tensor_core_ratio: Share of the kernels' time on tensor cores; None where it is not known.
        cost_source: Where flops and bytes are from.
        op: What its program says of it; of host execution alone.
        spread: Of its self time over steps.
    """

    rank: int
    place: Place
    type: str
    name: str
    occurrences: int
    time_us: float
    self_time_us: float
    ratio: float
    cumulative_ratio: float
    rates: OpRates
    tensor_core_ratio: float | None
    is_eager: bool
    cost_source: CostSource
    op: OpDescription | None = None
    spread: Spread | None = None

    def ratios(self, place: Place) -> tuple[float, float] | None:
        """Share and cumulative share in the columns of a place; None in those of another."""
        return (self.ratio, self.cumulative_ratio) if self.place == place else None


def op_rows(stats: CaptureStats, *, with_idle: bool, own: bool) -> list[OpRow]:
    """Rows of the devices' operations, then of the hosts', each by self time.

    Ours have those of host execution after them; the reference does not know these.

    Args:
        stats: Of the capture.
        with_idle: Whether the time without operations is a row, and counts in the shares.
        own: Whether flops and bytes are ours, or follow the reference's rule.
    """
    rows: list[OpRow] = []
    for place, database in _places(stats, own=own):
        first_rank = len(rows) + 1
        rows += _rows(
            database, stats, with_idle=with_idle, own=own, place=place, first_rank=first_rank
        )
    return rows


def _places(stats: CaptureStats, *, own: bool) -> list[tuple[Place, OpDatabase]]:
    places: list[tuple[Place, OpDatabase]] = [
        ("device", framework_view(stats.device_ops, with_idle=True)),
        ("host", stats.host_ops),
    ]
    if own:
        places.append(("host_execution", stats.host_execution))
    return places


def _rows(
    database: OpDatabase,
    stats: CaptureStats,
    *,
    with_idle: bool,
    own: bool,
    place: Place,
    first_rank: int,
) -> Iterator[OpRow]:
    total_ps = database.total_time_ps if with_idle else database.total_op_time_ps
    roofline = Roofline(database, stats.perf_env, stats.run_environment.device_type, own=own)
    found = stats.kernels if own else stats.reference_kernels
    by_op = found.by_op() if place == "device" else {}
    spreads = database.spreads()
    cumulative = 0.0
    rank = first_rank
    for row in database.order_by_self_time()[:MAX_ROWS].tolist():
        category, name = database.text("category", row), database.text("name", row)
        # Idle is cut off with the rest first, and left out then.
        if category == IDLE and not with_idle:
            continue
        self_us = int(database.column("self_time_ps")[row]) / 1e6
        # Where nothing was recorded nothing was idle either; the reference has such a row.
        if category == IDLE and own and not database.total_op_time_ps:
            continue
        ratio = safe_divide(self_us, total_ps / 1e6)
        cumulative += ratio
        kernels = by_op.get(name)
        yield OpRow(
            rank=rank,
            place=place,
            type=category,
            name=name,
            occurrences=int(database.column("occurrences")[row]),
            time_us=int(database.column("time_ps")[row]) / 1e6,
            self_time_us=self_us,
            ratio=ratio,
            cumulative_ratio=cumulative,
            rates=roofline[row],
            tensor_core_ratio=_tensor_core_ratio(kernels, own=own),
            is_eager=bool(database.column("is_eager")[row]),
            cost_source=CostSource(int(database.column("cost_source")[row])),
            op=describe_op(database, row) if place == "host_execution" else None,
            spread=spreads[row],
        )
        rank += 1


def _tensor_core_ratio(kernels: OpKernels | None, *, own: bool) -> float | None:
    if kernels is None:
        return None
    return kernels.tensor_core_ratio if own else kernels.reference_ratio


_COLUMNS: Final = (
    *op_columns("rank"),
    Column("host_or_device", "Host or device", "string"),
    Column("type", "Type", "string"),
    Column("operation", "Operation", "string"),
    *op_columns(
        "occurrences", "total_time_us", "avg_time_us", "total_self_time_us", "avg_self_time_us"
    ),
    Column("device_total_self_time_ratio", "Share of device time", "number", "ratio"),
    Column(
        "device_cumulative_total_self_time_ratio",
        "Cumulative share of device time",
        "number",
        "ratio",
    ),
    Column("host_total_self_time_ratio", "Share of host time", "number", "ratio"),
    Column(
        "host_cumulative_total_self_time_ratio", "Cumulative share of host time", "number", "ratio"
    ),
    Column(
        "host_execution_total_self_time_ratio",
        "Share of the programs' time on host threads",
        "number",
        "ratio",
    ),
    Column(
        "host_execution_cumulative_total_self_time_ratio",
        "Cumulative share of the programs' time on host threads",
        "number",
        "ratio",
    ),
    *op_columns(
        "measured_flops_per_second",
        "model_flops_per_second",
        "measured_memory_bytes_per_second",
        "operational_intensity_flops_per_byte",
    ),
    Column("gpu_tensor_core_utilization_ratio", "Tensor core utilization", "number", "ratio"),
    *op_columns("bound_by"),
    Column("execution_mode", "Execution", "string"),
    *op_columns("cost_source", "framework_name", "program_id", "source"),
    *SPREAD_COLUMNS,
)
_PLACES: Final[tuple[Place, ...]] = ("device", "host", "host_execution")


def _table(rows: list[OpRow], is_gpu: bool) -> Table:
    return Table(_COLUMNS, [_cells(row, is_gpu) for row in rows])


def _cells(row: OpRow, is_gpu: bool) -> list[Cell]:
    values: dict[str, Cell] = {
        **dict.fromkeys(("framework_name", "program_id", "source")),
        **(description_values(row.op) if row.op else {}),
        **time_values(row.occurrences, row.time_us, row.self_time_us),
        **rate_values(
            row.rates, is_known=row.place != "host" and row.cost_source != CostSource.NONE
        ),
        "rank": row.rank,
        **spread_values(row.spread),
        "host_or_device": row.place,
        "type": row.type,
        "operation": row.name,
        "gpu_tensor_core_utilization_ratio": row.tensor_core_ratio
        if is_gpu and row.place == "device"
        else None,
        "execution_mode": "eager" if row.is_eager else "function",
        "cost_source": cost_source_value(row.cost_source),
    }
    for place in _PLACES:
        ratio, cumulative = row.ratios(place) or (None, None)
        values[f"{place}_total_self_time_ratio"] = ratio
        values[f"{place}_cumulative_total_self_time_ratio"] = cumulative
    return in_order(_COLUMNS, values)


_GROUPINGS: Final[tuple[Grouping, ...]] = ("type", "operation")


def _shares_table(stats: CaptureStats, *, with_idle: bool) -> Table:
    """Pie charts: of every place one by type and one by operation."""
    return Table(
        columns=(
            Column("host_or_device", "Host or device", "string"),
            Column("grouped_by", "Grouped by", "string"),
            Column("name", "Type or operation", "string"),
            Column("operation_count", "Operations", "integer"),
            Column("total_self_time_us", "Total self time", "number", "us"),
            Column("self_time_ratio", "Share of the self time", "number", "ratio"),
        ),
        rows=[
            (place, by, one.name, one.count, one.self_time_ps / 1e6, one.ratio)
            for place, database in _places(stats, own=True)
            for by in _GROUPINGS
            for one in op_shares(database, by, with_idle=with_idle)
        ],
    )


def _annotations_table(stats: CaptureStats) -> Table:
    found = stats.annotations
    columns = (found.occurrences, found.time_ps, found.self_ps, found.max_ps, found.is_runtime)
    return Table(
        columns=(
            Column("annotation", "Annotation", "string"),
            Column("origin", "Written by", "string"),
            Column("occurrences", "Occurrences", "integer"),
            Column("total_time_us", "Total time", "number", "us"),
            Column("avg_time_us", "Average time", "number", "us"),
            Column("max_time_us", "Longest", "number", "us"),
            Column("total_self_time_us", "Total self time", "number", "us"),
        ),
        rows=[
            (
                name,
                "runtime" if is_runtime else "program",
                occurrences,
                time_ps / 1e6,
                time_ps / occurrences / 1e6,
                max_ps / 1e6,
                self_ps / 1e6,
            )
            for name, occurrences, time_ps, self_ps, max_ps, is_runtime in zip(
                found.names, *(column.tolist() for column in columns), strict=True
            )
        ][:MAX_ROWS],
    )


_STEP_COLUMNS: Final = (
    Column("host_or_device", "Host or device", "string"),
    Column("type", "Type", "string"),
    Column("operation", "Operation", "string"),
    *op_columns("program_id"),
)


def _step_series(place: Place, database: OpDatabase) -> Series:
    """Instructions of one operation count together, as in the tables of all steps."""

    def cells_of(at: int) -> Iterator[tuple[Cell, ...]]:
        # Of the other places an operation is one by its name alone.
        program = describe_op(database, at).program_id if place == "host_execution" else None
        yield place, database.text("category", at), database.text("name", at), program

    return Series(database.step_times, place == "device", cells_of)


def _task_type(rows: list[OpRow]) -> str:
    def trains(row: OpRow) -> bool:
        if row.op is None:
            return is_training(row.name, row.type)
        op = parse_op_name(row.op.framework_name)
        return is_training(op.name, op.type)

    return "Training" if any(map(trains, rows)) else "Inference"


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Operations with their share of the time, with and without the time without any."""
    with_step_times = wants_step_times(parameters)
    is_gpu = "GPU" in stats.run_environment.device_type
    with_idle = op_rows(stats, with_idle=True, own=True)
    without_idle = op_rows(stats, with_idle=False, own=True)
    tables = {
        "with_idle": _table(with_idle, is_gpu),
        "without_idle": _table(without_idle, is_gpu),
        "shares_with_idle": _shares_table(stats, with_idle=True),
        "shares_without_idle": _shares_table(stats, with_idle=False),
        "annotations": _annotations_table(stats),
    }
    if with_step_times:
        places = _places(stats, own=True)
        tables[PARAMETER] = step_table(
            stats, _STEP_COLUMNS, [_step_series(place, database) for place, database in places]
        )
    reasons = _reasons(stats)
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if without_idle else "empty",
        result={
            "device_type": stats.run_environment.device_type,
            "task_type": _task_type(with_idle).lower(),
            **{name: table.to_json() for name, table in tables.items()},
        },
        tables=tables,
        reasons=reasons,
    )


def _reasons(stats: CaptureStats) -> list[Reason]:
    reasons = []
    if not stats.device_ops.total_op_time_ps and not len(stats.host_execution):
        reasons.append(
            Reason(
                "no_device_ops",
                "No operation of a device is in the capture.",
                "Capture while the job runs steps on its accelerators.",
            )
        )
    # A program in plain JAX has none; what ran is told by the operations of the program.
    if not stats.host_ops.total_op_time_ps and not len(stats.host_execution):
        reasons.append(
            Reason(
                "no_host_ops",
                "No framework operation of a host thread is in the capture.",
                "Capture with host_tracer_level 2.",
            )
        )
    return reasons


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's two tables, with and without idle."""
    del parameters  # It takes none.
    is_gpu = "GPU" in stats.run_environment.device_type
    return [
        _xprof_table(op_rows(stats, with_idle=with_idle, own=False), is_gpu).to_json()
        for with_idle in (True, False)
    ]


_XPROF_COLUMNS: Final = (
    XprofColumn("rank", "Rank"),
    XprofColumn("host_or_device", "Host/device", "string"),
    XprofColumn("type", "Operation Type", "string"),
    XprofColumn("operation", "Operation Name", "string"),
    XprofColumn("occurrences", "#Occurrences"),
    XprofColumn("total_time", "Total time (us)"),
    XprofColumn("avg_time", "Avg. time (us)"),
    XprofColumn("total_self_time", "Total self-time (us)"),
    XprofColumn("avg_self_time", "Avg. self-time (us)"),
    XprofColumn("device_total_self_time_percent", "Total self-time on Device (%)"),
    XprofColumn(
        "device_cumulative_total_self_time_percent", "Cumulative total-self time on Device (%)"
    ),
    XprofColumn("host_total_self_time_percent", "Total self-time on Host (%)"),
    XprofColumn(
        "Host_cumulative_total_self_time_percent", "Cumulative total-self time on Host (%)"
    ),
    # The label is wrong, the values are GFLOP/s.
    XprofColumn("measured_flop_rate", "Normalized FLOP Rate (FLOPs/s)"),
    XprofColumn("model_flop_rate", "Model FLOP Rate (GFLOP/s)"),
    XprofColumn("measured_memory_bw", "Measured Memory BW (GBytes/Sec)"),
    XprofColumn("operational_intensity", "Operational Intensity (FLOPs/Byte)"),
    XprofColumn("gpu_tensorcore_utilization", "GPU TensorCore utilization"),
    XprofColumn("bound_by", "Bound by", "string"),
    XprofColumn("eager", "Execution mode", "string"),
)
_TENSOR_CORE_COLUMN: Final = "gpu_tensorcore_utilization"


def _xprof_table(rows: list[OpRow], is_gpu: bool) -> XprofTable:
    kept = [
        at for at, column in enumerate(_XPROF_COLUMNS) if is_gpu or column.id != _TENSOR_CORE_COLUMN
    ]
    cells = []
    for row in rows:
        rates = row.rates
        every = (
            row.rank,
            "Device" if row.place == "device" else "Host",
            row.type,
            row.name,
            *xprof_time_cells(row.occurrences, row.time_us, row.self_time_us),
            *(row.ratios("device") or (0.0, 0.0)),
            *(row.ratios("host") or (0.0, 0.0)),
            rates.flop_rate,
            rates.model_flop_rate,
            rates.memory_bandwidth,
            rates.operational_intensity,
            row.tensor_core_ratio or 0.0,
            rates.bound_by,
            "Eager" if row.is_eager else "Function",
        )
        cells.append([every[at] for at in kept])
    return XprofTable(
        [_XPROF_COLUMNS[at] for at in kept],
        cells,
        {"architecture_type": "Unknown", "task_type": _task_type(rows)},
    )
