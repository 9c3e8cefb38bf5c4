"""The roofline of the devices, and how near to it programs and operations come."""

from collections.abc import Mapping
from typing import Final

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.input_pipeline.analysis import step_warnings
from podscope_analyzers.op_metrics.database import OpDatabase, safe_divide
from podscope_analyzers.op_metrics.rates import GIBI
from podscope_analyzers.op_metrics.roofline_records import (
    AVERAGE,
    ON_CHIP,
    RooflineModel,
    RooflineRecord,
)
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult
from podscope_analyzers.xprof_table import XprofCell, XprofColumn, XprofTable, general

NAME: Final = "roofline_model"
VERSION: Final = 1

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


def _records(stats: CaptureStats, model: RooflineModel) -> list[RooflineRecord]:
    """With infeeds and outfeeds, then without."""
    if not _has_device(stats):
        return []
    is_tpu = stats.run_environment.hardware_type == "TPU"
    numbers = stats.steps.step_numbers.tolist()
    nothing = OpDatabase.empty()
    found: list[RooflineRecord] = []
    for with_feeds in (True, False):
        found += model.total(stats.device_ops, with_feeds=with_feeds)
        if is_tpu and not numbers:
            found.append(model.program(nothing, AVERAGE, with_feeds=with_feeds))
        elif not is_tpu:
            # Operations of GPUs are not told apart by step: these say that there is a step.
            found += (model.program(nothing, str(n), with_feeds=with_feeds) for n in numbers)
    return found


_COLUMNS: Final = (
    Column("step", "Step", "string"),
    Column("rank", "Rank", "integer"),
    Column("category", "Category", "string"),
    Column("operation", "Operation", "string"),
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
    *(
        Column(f"{name}_bytes_per_second", f"{_LABELS[name]} bandwidth", "number", "bytes/s")
        for name in _MEMORIES
    ),
    Column("operational_intensity_flops_per_byte", "Operational intensity", "number", "flops/byte"),
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
    Column("bound_by", "Bound by", "string"),
    Column("total_time_per_core_us", "Time per core", "number", "us"),
    Column("total_time_ratio", "Share of total time", "number", "ratio"),
    Column("optimal_flops_per_second", "FLOP rate on the roofline", "number", "flops/s"),
    Column("roofline_efficiency_ratio", "Roofline efficiency", "number", "ratio"),
    Column("compute_efficiency_ratio", "FLOP rate over peak", "number", "ratio"),
    Column("max_memory_bandwidth_ratio", "Most used memory over peak", "number", "ratio"),
    Column("include_infeed_outfeed", "With infeed and outfeed", "boolean"),
    Column("program_id", "Program", "string"),
    Column("source", "Source", "string"),
)
_CEILING_COLUMNS: Final = (
    Column("ceiling", "Ceiling", "string"),
    Column("peak_bytes_per_second", "Peak bandwidth", "number", "bytes/s"),
    Column("ridge_point_flops_per_byte", "Ridge point", "number", "flops/byte"),
)
_BYTES: Final = GIBI * 1e9


def _cells(record: RooflineRecord, cores: int) -> list[Cell]:
    rates = record.rates
    return [
        record.step.lower(),
        record.rank,
        record.category,
        record.name,
        record.occurrences,
        record.time_us,
        safe_divide(record.time_us, record.occurrences),
        record.self_time_us,
        safe_divide(record.self_time_us, record.occurrences),
        record.self_ratio,
        record.cumulative_ratio,
        record.dma_stall_ratio,
        rates.flop_rate * 1e9,
        rates.model_flop_rate * 1e9,
        rates.memory_bandwidth * _BYTES,
        *(record.bandwidths[name] * _BYTES for name in _MEMORIES),
        rates.operational_intensity,
        *(record.intensities[name] for name in _MEMORIES),
        record.bottleneck_intensity,
        rates.bound_by.lower(),
        safe_divide(record.time_us, cores),
        record.time_ratio,
        record.optimal_flop_rate * 1e9,
        record.efficiency,
        record.compute_ratio,
        record.memory_ratio,
        record.includes_feeds,
        record.program_id,
        record.source or None,
    ]


def _model(stats: CaptureStats, *, own: bool) -> RooflineModel:
    return RooflineModel(stats.perf_env, stats.run_environment.device_type, own=own)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """The devices' ceilings, and the program and its operations against them."""
    del parameters  # It takes none.
    model = _model(stats, own=True)
    # A step without its own operations has nothing to say here.
    records = [record for record in _records(stats, model) if record.time_us > 0]
    cores = stats.run_environment.device_core_count
    ceilings = model.ceilings
    tables = {
        "records": Table(_COLUMNS, [_cells(record, cores) for record in records]),
        "ceilings": Table(
            _CEILING_COLUMNS,
            [
                [name, peak * _BYTES, ceilings.ridge_point(name)]
                for name, peak in ceilings.bandwidths.items()
                if peak > 0 and records
            ],
        ),
    }
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
        reasons.append(
            Reason(
                "no_peak_rates",
                "The capture does not say how fast the device can compute.",
                "Compare rates and intensities; efficiencies count only known peaks.",
            )
        )
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if records else "empty",
        result={
            "device_type": stats.run_environment.device_type,
            "peak_flops_per_second": ceilings.flop_rate * 1e9 or None,
            "time_scale_ratio": _time_scale(stats.device_ops),
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


def _xprof_cells(record: RooflineRecord, cores: int) -> list[XprofCell]:
    rates = record.rates
    return [
        record.step,
        record.rank,
        record.category,
        record.name,
        record.occurrences,
        record.time_us,
        safe_divide(record.time_us, record.occurrences),
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
    env, ceilings = stats.perf_env, model.ceilings
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
    every = [_xprof_cells(record, cores) for record in _records(stats, model)]
    cells = [[row[at] for at in kept] for row in every]
    table = XprofTable(columns, cells, _properties(stats, model, is_gpu=is_gpu))
    return [table.to_json(), _diagnostics(stats).to_json()]


def _diagnostics(stats: CaptureStats) -> XprofTable:
    rows: list[list[XprofCell]] = []
    if _has_device(stats):
        shown = stats.diagnostics
        rows += (["WARNING", text] for text in (*shown.warnings, *step_warnings(stats.steps)))
        rows += (["ERROR", text] for text in shown.errors)
    columns = (
        XprofColumn("severity", "Severity", "string"),
        XprofColumn("message", "Message", "string"),
    )
    return XprofTable(columns, rows)
