"""The roofline of the devices, and how near to it programs and operations come."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.hlo.instructions import OPCODES
from podscope_analyzers.input_pipeline.analysis import step_warnings
from podscope_analyzers.op_metrics.database import OpDatabase, safe_divide
from podscope_analyzers.op_metrics.op_columns import (
    BYTES_PER_GIBI,
    SPREAD_COLUMNS,
    in_order,
    op_columns,
    rate_values,
    spread_values,
    time_values,
)
from podscope_analyzers.op_metrics.op_description import describe_op
from podscope_analyzers.op_metrics.roofline_records import (
    AVERAGE,
    ON_CHIP,
    RooflineModel,
    RooflineRecord,
)
from podscope_analyzers.reasons import NO_PEAK_RATES
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult
from podscope_analyzers.step_table import PARAMETER, Series, step_table, wants_step_times
from podscope_analyzers.steps.work import StepWork
from podscope_analyzers.xprof_table import XprofCell, XprofColumn, XprofTable, general

NAME: Final = "roofline_model"
VERSION: Final = 5
PARAMETERS: Final = {
    PARAMETER: "1 to list the self time of every operation in every step, as far as it is kept"
}

_MEMORIES: Final = ("hbm", *(name for name, _, _ in ON_CHIP))
_LABELS: Final = {
    "hbm": "HBM",
    "cmem_read": "CMEM Read",
    "cmem_write": "CMEM Write",
    "vmem_read": "VMEM Read",
    "vmem_write": "VMEM Write",
}


def _has_device(stats: CaptureStats) -> bool:
    return stats.run_environment.hardware_type in ("GPU", "TPU")


def _records(stats: CaptureStats, model: RooflineModel, *, own: bool) -> list[RooflineRecord]:
    """With infeeds and outfeeds, then without.

    Our own have one of each program; the reference's one of each step of a GPU, without any number.
    """
    if not _has_device(stats):
        return []
    steps, nothing = stats.steps, OpDatabase.empty()
    numbers = steps.step_numbers.tolist()
    work = steps.work or StepWork.zeros(len(numbers))
    found: list[RooflineRecord] = []
    for with_feeds in (True, False):
        found += model.total(stats.device_ops, with_feeds=with_feeds)
        if own:
            found += model.programs(stats.device_ops, stats.program_titles, with_feeds=with_feeds)
        if stats.run_environment.hardware_type == "TPU":
            found += model.steps(work, numbers, with_feeds=with_feeds)
        elif not own:
            # Operations of GPUs are not told apart by step: these say that there is a step. Of
            # several hosts the reference has an average, steps or not.
            empty = model.program(nothing, AVERAGE, with_feeds=with_feeds)
            if len(stats.hosts) > 1:
                found.append(empty)
            found += (replace(empty, step=str(number)) for number in numbers)
    return found


_COLUMNS: Final = (
    Column("step", "Step", "string"),
    *op_columns("rank", "category"),
    Column("operation", "Operation", "string"),
    *op_columns(
        "occurrences",
        "total_time_us",
        "avg_time_us",
        "total_self_time_us",
        "avg_self_time_us",
        "total_self_time_ratio",
        "cumulative_total_self_time_ratio",
        "dma_stall_ratio",
        "measured_flops_per_second",
        "model_flops_per_second",
        "measured_memory_bytes_per_second",
    ),
    *(
        Column(f"{name}_bytes_per_second", f"{_LABELS[name]} bandwidth", "number", "bytes/s")
        for name in _MEMORIES
    ),
    *op_columns("operational_intensity_flops_per_byte"),
    *(
        Column(
            f"{name}_intensity_flops_per_byte",
            f"{_LABELS[name]} intensity",
            "number",
            "flops/byte",
        )
        for name in _MEMORIES
    ),
    Column(
        "bottleneck_intensity_flops_per_byte", "Intensity of what bounds it", "number", "flops/byte"
    ),
    *op_columns("bound_by"),
    Column("total_time_per_core_us", "Time per core", "number", "us"),
    Column("total_time_ratio", "Share of total time", "number", "ratio"),
    Column("optimal_flops_per_second", "FLOP rate on the roofline", "number", "flops/s"),
    Column("roofline_efficiency_ratio", "Roofline efficiency", "number", "ratio"),
    Column("compute_efficiency_ratio", "FLOP rate over peak", "number", "ratio"),
    Column("max_memory_bandwidth_ratio", "Most used memory over peak", "number", "ratio"),
    Column("include_infeed_outfeed", "With infeed and outfeed", "boolean"),
    *op_columns("program_id", "framework_name", "source"),
    *SPREAD_COLUMNS,
)
_CEILING_COLUMNS: Final = (
    Column("ceiling", "Ceiling", "string"),
    Column("peak_bytes_per_second", "Peak bandwidth", "number", "bytes/s"),
    Column("ridge_point_flops_per_byte", "Ridge point", "number", "flops/byte"),
)


def _cells(record: RooflineRecord, cores: int) -> list[Cell]:
    return in_order(
        _COLUMNS,
        {
            **time_values(record.occurrences, record.time_us, record.self_time_us),
            **rate_values(record.rates),
            **spread_values(record.spread),
            "avg_time_us": record.avg_time_us,
            "step": record.step.lower(),
            "rank": record.rank,
            "category": record.category,
            "operation": record.name,
            "total_self_time_ratio": record.self_ratio,
            "cumulative_total_self_time_ratio": record.cumulative_ratio,
            "dma_stall_ratio": record.dma_stall_ratio,
            **{
                f"{name}_bytes_per_second": record.bandwidths[name] * BYTES_PER_GIBI
                for name in _MEMORIES
            },
            **{f"{name}_intensity_flops_per_byte": record.intensities[name] for name in _MEMORIES},
            "bottleneck_intensity_flops_per_byte": record.bottleneck_intensity,
            "total_time_per_core_us": safe_divide(record.time_us, cores),
            "total_time_ratio": record.time_ratio,
            "optimal_flops_per_second": record.optimal_flop_rate * 1e9,
            "roofline_efficiency_ratio": record.efficiency,
            "compute_efficiency_ratio": record.compute_ratio,
            "max_memory_bandwidth_ratio": record.memory_ratio,
            "include_infeed_outfeed": record.includes_feeds,
            "program_id": record.program_id,
            "framework_name": record.framework_name.removesuffix(":") or None,
            "source": record.origin or None,
        },
    )


_STEP_COLUMNS: Final = (
    *op_columns("program_id", "category"),
    Column("operation", "Operation", "string"),
)


def _step_series(ops: OpDatabase) -> Series:
    """What of a record is known by step: no flops or bytes are, and so no rates."""

    def cells_of(at: int) -> Iterator[tuple[Cell, ...]]:
        yield describe_op(ops, at).program_id, ops.text("category", at), ops.text("name", at)

    return Series(ops.step_times, True, cells_of)


def _model(stats: CaptureStats, *, own: bool) -> RooflineModel:
    env = stats.perf_env
    if not own and len(stats.hosts) > 1:
        # The reference forgets of several hosts what memories their devices have.
        env = replace(env, has_cmem=False, has_merged_vmem=False, has_megacore=False)
    return RooflineModel(env, stats.run_environment.device_type, own=own)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """The devices' ceilings, and the program and its operations against them."""
    with_step_times = wants_step_times(parameters)
    model = _model(stats, own=True)
    # A step without its own operations has nothing to say here.
    records = [record for record in _records(stats, model, own=True) if record.time_us > 0]
    cores = stats.run_environment.device_core_count
    ceilings = model.ceilings
    tables = {
        "records": Table(_COLUMNS, [_cells(record, cores) for record in records]),
        "ceilings": Table(
            _CEILING_COLUMNS,
            [
                [name, peak * BYTES_PER_GIBI, ceilings.ridge_point(name)]
                for name, peak in ceilings.bandwidths.items()
                if peak > 0 and records
            ],
        ),
    }
    if with_step_times:
        series = [_step_series(stats.device_ops)] if _has_device(stats) else []
        tables[PARAMETER] = step_table(stats, _STEP_COLUMNS, series)
    reasons = []
    if not records:
        reasons.append(
            Reason(
                "no_device_ops",
                "No operation of a device is in the capture; a roofline needs a GPU's or TPU's.",
                "Rates of what host threads ran are in hlo_stats.",
            )
        )
    elif not ceilings.flop_rate:
        reasons.append(NO_PEAK_RATES)
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if records else "empty",
        result={
            "device_type": stats.run_environment.device_type,
            "peak_flops_per_second": ceilings.flop_rate * 1e9 or None,
            "time_scale_ratio": _time_scale(stats.device_ops) or None,
            **{name: table.to_json() for name, table in tables.items()},
        },
        tables=tables,
        reasons=reasons,
    )


def _time_scale(ops: OpDatabase) -> float:
    return safe_divide(ops.normalized_total_op_time_ps, ops.total_op_time_ps)


_XPROF_COLUMNS: Final = (
    XprofColumn("step", "Step", "string"),
    XprofColumn("rank", "Rank"),
    XprofColumn("category", "Category", "string"),
    XprofColumn("operation", "Operation", "string"),
    XprofColumn("occurrences", "# Occurrences"),
    XprofColumn("total_time", "Total Time (us)"),
    XprofColumn("avg_time", "Avg. time (us)"),
    XprofColumn("total_self_time", "Total self time (us)"),
    XprofColumn("avg_self_time", "Avg. self time (us)"),
    XprofColumn("total_self_time_percent", "Total self time (%)"),
    XprofColumn("cumulative_total_self_time_percent", "Cumulative total self time (%)"),
    XprofColumn("dma_stall_percent", "%time stalled by DMA"),
    XprofColumn("measured_flop_rate", "Normalized FLOP Rate (GFLOP/s)"),
    XprofColumn("model_flop_rate", "Model FLOP Rate (GFLOP/s)"),
    XprofColumn("measured_memory_bw", "Memory BW (GiB/s)"),
    *(XprofColumn(f"{name}_bw", f"{_LABELS[name]} BW (GiB/s)") for name in _MEMORIES),
    XprofColumn("operational_intensity", "Operational Intensity (FLOP/Byte)"),
    *(
        XprofColumn(
            f"{name}_operational_intensity", f"{_LABELS[name]} Operational Intensity (FLOP/Byte)"
        )
        for name in _MEMORIES
    ),
    XprofColumn("bottleneck_operational_intensity", "Bottleneck Operational Intensity (FLOP/Byte)"),
    XprofColumn("bound_by", "Bound by", "string"),
    XprofColumn("total_time_per_core", "Total Time per core (us)"),
    XprofColumn("total_time_in_percentage", "Total Time (%)"),
    XprofColumn("optimal_flop_rate", "Optimal FLOP Rate (GFLOP/s)"),
    XprofColumn("roofline_efficiency", "Roofline efficiency (%)"),
    XprofColumn("compute_efficiency", "FLOP Rate / Peak (%)"),
    XprofColumn(
        "max_mem_bw_utilization", "Max memory BW utilization (among supported memories) (%)"
    ),
    XprofColumn("include_infeed_outfeed", "Include Infeed/Outfeed", "boolean"),
    XprofColumn("hlo_module_id", "Program ID", "string"),
    XprofColumn("source_info", "Source Info", "string"),
)
_NOT_ON_GPU: Final = frozenset(
    {
        "dma_stall_percent",
        *(f"{name}_bw" for name in _MEMORIES[1:4]),
        *(f"{name}_operational_intensity" for name in _MEMORIES[1:4]),
    }
)
_GPU_LABELS: Final = {
    "vmem_write_bw": "SHM/L1 BW (GiB/s)",
    "vmem_write_operational_intensity": "SHM/L1 Operational Intensity (FLOP/Byte)",
}


def _category_by_name(name: str) -> str:
    """What the reference says of an operation without a category, in this table alone."""
    return name if name in OPCODES else "unknown"


def _xprof_cells(record: RooflineRecord, cores: int) -> list[XprofCell]:
    rates = record.rates
    return [
        record.step,
        record.rank,
        record.category or _category_by_name(record.name),
        record.name,
        record.occurrences,
        record.time_us,
        record.avg_time_us,
        record.self_time_us,
        safe_divide(record.self_time_us, record.occurrences),
        # Labelled percent; the values are fractions, here and below.
        record.self_ratio,
        record.cumulative_ratio,
        record.dma_stall_ratio,
        rates.flop_rate,
        rates.model_flop_rate,
        rates.memory_bandwidth,
        *(record.bandwidths[name] for name in _MEMORIES),
        rates.operational_intensity,
        *(record.intensities[name] for name in _MEMORIES),
        record.bottleneck_intensity,
        rates.bound_by,
        safe_divide(record.time_us, cores),
        record.time_ratio,
        record.optimal_flop_rate,
        record.efficiency,
        record.compute_ratio,
        record.memory_ratio,
        record.includes_feeds,
        record.program_id,
        record.source_html,
    ]


def _properties(stats: CaptureStats, model: RooflineModel, *, is_gpu: bool) -> dict[str, str]:
    has_device = _has_device(stats)
    env, ceilings = model.env, model.ceilings
    numbers = {"peak_flop_rate": ceilings.flop_rate}
    for name in ("hbm", "vmem_write") if is_gpu else _MEMORIES:
        numbers[f"peak_{name}_bw"] = ceilings.bandwidths[name]
        numbers[f"{name}_ridge_point"] = ceilings.ridge_point(name)
    if not is_gpu:
        numbers |= {
            "megacore": float(env.has_megacore),
            "has_cmem": float(env.has_cmem),
            "has_merged_vmem": float(env.has_merged_vmem),
            "time_scale_multiplier": _time_scale(stats.device_ops),
        }
    return {
        "device_type": stats.run_environment.device_type if has_device else "",
        **{name: general(value if has_device else 0.0) for name, value in numbers.items()},
    }


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's tables: records, and what went wrong."""
    del parameters  # It takes none.
    is_gpu = "GPU" in stats.run_environment.device_type
    model = _model(stats, own=False)
    kept = [at for at, one in enumerate(_XPROF_COLUMNS) if not is_gpu or one.id not in _NOT_ON_GPU]
    columns = [
        XprofColumn(one.id, (_GPU_LABELS if is_gpu else {}).get(one.id, one.label), one.type)
        for one in (_XPROF_COLUMNS[at] for at in kept)
    ]
    cores = stats.run_environment.device_core_count
    every = [_xprof_cells(record, cores) for record in _records(stats, model, own=False)]
    cells = [[row[at] for at in kept] for row in every]
    table = XprofTable(columns, cells, _properties(stats, model, is_gpu=is_gpu))
    return [table.to_json(), _diagnostics(stats).to_json()]


def _diagnostics(stats: CaptureStats) -> XprofTable:
    rows: list[list[XprofCell]] = []
    if _has_device(stats):
        # What the profiler itself complained of is in the reference's overview alone.
        rows += (["WARNING", text] for text in step_warnings(stats.steps))
    columns = (
        XprofColumn("severity", "Severity", "string"),
        XprofColumn("message", "Message", "string"),
    )
    return XprofTable(columns, rows)
