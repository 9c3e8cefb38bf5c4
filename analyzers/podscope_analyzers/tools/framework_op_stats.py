"""Operations by self time: on devices, on hosts, and of compiled programs run by host threads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.op_metrics.database import IDLE, CostSource, OpDatabase, safe_divide
from podscope_analyzers.op_metrics.framework_view import framework_view, is_training
from podscope_analyzers.op_metrics.rates import GIBI, OpRates, Roofline
from podscope_analyzers.op_names import parse_op_name
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult
from podscope_analyzers.xprof_table import XprofColumn, XprofTable

NAME: Final = "framework_op_stats"
VERSION: Final = 2
MAX_ROWS: Final = 500
"""Operations kept on the devices, on the hosts, and of host execution."""

Place = Literal["device", "host", "host_execution"]


@dataclass(frozen=True)
class OpRow:
    """One operation's row.

    Attributes:
        ratio: Share of the time of all operations at its place.
        cumulative_ratio: The same with all rows of the place before.
        tensor_core_ratio: Share of the kernels' time on tensor cores.
        cost_source: Where flops and bytes are from.
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
    tensor_core_ratio: float
    is_eager: bool
    cost_source: CostSource
    framework_name: str = ""
    program_id: int | None = None
    source: str = ""

    def ratios(self, place: Place) -> tuple[float, float]:
        """Share and cumulative share in the columns of a place; 0 in those of another."""
        return (self.ratio, self.cumulative_ratio) if self.place == place else (0.0, 0.0)


def op_rows(stats: CaptureStats, *, with_idle: bool, own: bool) -> list[OpRow]:
    """Rows of the devices' operations, then of the hosts', each by self time.

    Ours have those of host execution after them; the reference does not know these.

    Args:
        stats: Of the capture.
        with_idle: Whether the time without operations is a row, and counts in the shares.
        own: Whether flops and bytes are ours, or follow the reference's rule.
    """
    places: list[tuple[Place, OpDatabase]] = [
        ("device", framework_view(stats.device_ops, with_idle=True)),
        ("host", stats.host_ops),
    ]
    if own:
        places.append(("host_execution", stats.host_execution))
    rows: list[OpRow] = []
    for place, database in places:
        first_rank = len(rows) + 1
        rows += _rows(
            database, stats, with_idle=with_idle, own=own, place=place, first_rank=first_rank
        )
    return rows


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
    by_op = stats.kernels.by_op() if place == "device" else {}
    cumulative = 0.0
    rank = first_rank
    for row in database.order_by_self_time()[:MAX_ROWS].tolist():
        category, name = database.text("category", row), database.text("name", row)
        # Idle is cut off with the rest first, and left out then.
        if category == IDLE and not with_idle:
            continue
        self_us = int(database.column("self_time_ps")[row]) / 1e6
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
            tensor_core_ratio=kernels.tensor_core_ratio if kernels else 0.0,
            is_eager=bool(database.column("is_eager")[row]),
            cost_source=CostSource(int(database.column("cost_source")[row])),
            **(_of_program(database, row) if place == "host_execution" else {}),
        )
        rank += 1


class _OfProgram(TypedDict, total=False):
    framework_name: str
    program_id: int | None
    source: str


def _of_program(database: OpDatabase, row: int) -> _OfProgram:
    """What an instruction's program says of it."""
    file = database.text("source_file", row)
    # Without a file of its own, the innermost frame, less its column.
    frame = database.text("source_stack", row).partition("\n")[0].rpartition(":")[0]
    return {
        "framework_name": database.text("provenance", row),
        "program_id": database.module_id(row),
        "source": f"{file}:{int(database.column('source_line')[row])}" if file else frame,
    }


_COLUMNS: Final = (
    Column("rank", "Rank", "integer"),
    Column("host_or_device", "Host or device", "string"),
    Column("type", "Type", "string"),
    Column("operation", "Operation", "string"),
    Column("occurrences", "Occurrences", "integer"),
    Column("total_time_us", "Total time", "number", "us"),
    Column("avg_time_us", "Average time", "number", "us"),
    Column("total_self_time_us", "Total self time", "number", "us"),
    Column("avg_self_time_us", "Average self time", "number", "us"),
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
    Column("measured_flops_per_second", "FLOP rate", "number", "flops/s"),
    Column("model_flops_per_second", "Model FLOP rate", "number", "flops/s"),
    Column("measured_memory_bytes_per_second", "Memory bandwidth", "number", "bytes/s"),
    Column("operational_intensity_flops_per_byte", "Operational intensity", "number", "flops/byte"),
    Column("gpu_tensor_core_utilization_ratio", "Tensor core utilization", "number", "ratio"),
    Column("bound_by", "Bound by", "string"),
    Column("execution_mode", "Execution", "string"),
    Column("cost_source", "Source of flops and bytes", "string"),
    Column("framework_name", "Framework operation", "string"),
    Column("program_id", "Program", "string"),
    Column("source", "Source", "string"),
)
_COST_SOURCES: Final = {
    CostSource.NONE: None,
    CostSource.STATS: "tracer",
    CostSource.ANALYSIS: "cost_analysis",
}


def _table(rows: list[OpRow], is_gpu: bool) -> Table:
    cells: list[list[Cell]] = []
    for row in rows:
        knows_cost = row.place != "host" and row.cost_source != CostSource.NONE
        rates = row.rates
        cells.append(
            [
                row.rank,
                row.place,
                row.type,
                row.name,
                row.occurrences,
                row.time_us,
                safe_divide(row.time_us, row.occurrences),
                row.self_time_us,
                safe_divide(row.self_time_us, row.occurrences),
                *row.ratios("device"),
                *row.ratios("host"),
                *row.ratios("host_execution"),
                rates.flop_rate * 1e9 if knows_cost else None,
                rates.model_flop_rate * 1e9 if knows_cost else None,
                rates.memory_bandwidth * GIBI * 1e9 if knows_cost else None,
                rates.operational_intensity if knows_cost else None,
                row.tensor_core_ratio if is_gpu and row.place == "device" else None,
                rates.bound_by.lower(),
                "eager" if row.is_eager else "function",
                _COST_SOURCES[row.cost_source],
                row.framework_name.removesuffix(":") or None,
                None if row.program_id is None else str(row.program_id),
                row.source or None,
            ]
        )
    return Table(_COLUMNS, cells)


def _task_type(rows: list[OpRow]) -> str:
    def trains(row: OpRow) -> bool:
        if row.place != "host_execution":
            return is_training(row.name, row.type)
        op = parse_op_name(row.framework_name)
        return is_training(op.name, op.type)

    return "Training" if any(map(trains, rows)) else "Inference"


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Operations with their share of the time, with and without the time without any."""
    del parameters  # It takes none.
    is_gpu = "GPU" in stats.run_environment.device_type
    with_idle = op_rows(stats, with_idle=True, own=True)
    without_idle = op_rows(stats, with_idle=False, own=True)
    tables = {
        "with_idle": _table(with_idle, is_gpu),
        "without_idle": _table(without_idle, is_gpu),
    }
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
            row.occurrences,
            row.time_us,
            safe_divide(row.time_us, row.occurrences),
            row.self_time_us,
            safe_divide(row.self_time_us, row.occurrences),
            *row.ratios("device"),
            *row.ratios("host"),
            rates.flop_rate,
            rates.model_flop_rate,
            rates.memory_bandwidth,
            rates.operational_intensity,
            row.tensor_core_ratio,
            rates.bound_by,
            "Eager" if row.is_eager else "Function",
        )
        cells.append([every[at] for at in kept])
    return XprofTable(
        [_XPROF_COLUMNS[at] for at in kept],
        cells,
        {"architecture_type": "Unknown", "task_type": _task_type(rows)},
    )
