"""GPU kernels by time, with their launch and whether they use tensor cores."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.gpu_kernels import ONE, Dim3, Kernel
from podscope_analyzers.op_metrics.op_columns import SPREAD_COLUMNS, spread_values
from podscope_analyzers.reasons import (
    GENERATED_KERNELS,
    NO_KERNELS,
    NO_LAUNCH_PARAMETERS,
    UNKNOWN_GPU_VENDOR,
)
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult
from podscope_analyzers.spread import Spread
from podscope_analyzers.step_table import PARAMETER, Series, step_table, wants_step_times
from podscope_analyzers.xprof_table import XprofCell, XprofColumn, XprofTable

NAME: Final = "kernel_stats"
VERSION: Final = 4
PARAMETERS: Final = {
    PARAMETER: "1 to list the time of every kernel in every step, as far as it is kept"
}

_COLUMNS: Final = (
    Column("rank", "Rank", "integer"),
    Column("kernel_name", "Kernel", "string"),
    Column("registers_per_thread", "Registers per thread", "integer"),
    Column("shared_memory_bytes", "Shared memory", "integer", "bytes"),
    Column("block_dim", "Block", "string"),
    Column("grid_dim", "Grid", "string"),
    Column("occupancy_ratio", "Theoretical occupancy", "number", "ratio"),
    Column("is_op_tensor_core_eligible", "Could use tensor cores", "boolean"),
    Column("is_kernel_using_tensor_core", "Uses tensor cores", "boolean"),
    Column("op_name", "Operation", "string"),
    Column("host_count", "Hosts", "integer"),
    Column("occurrences", "Occurrences", "integer"),
    Column("total_duration_us", "Total duration", "number", "us"),
    Column("avg_duration_us", "Average duration", "number", "us"),
    Column("min_duration_us", "Shortest", "number", "us"),
    Column("max_duration_us", "Longest", "number", "us"),
    *SPREAD_COLUMNS,
)
_XPROF_COLUMNS: Final = (
    XprofColumn("rank", "Rank"),
    XprofColumn("kernel_name", "Kernel Name", "string"),
    XprofColumn("registers_per_thread", "Registers per thread"),
    XprofColumn("shmem_bytes", "Shared Mem bytes"),
    XprofColumn("block_dim", "Block dim", "string"),
    XprofColumn("grid_dim", "Grid dim", "string"),
    XprofColumn("occupancy_pct", "Theoretical Occupancy %"),
    XprofColumn("is_op_tensor_core_eligible", "Op is TensorCore eligible", "boolean"),
    XprofColumn("is_kernel_using_tensor_core", "Kernel uses TensorCore", "boolean"),
    XprofColumn("op_name", "Op Name", "string"),
    XprofColumn("occurrences", "Occurrences"),
    XprofColumn("total_duration_us", "Total Duration (μs)"),
    XprofColumn("avg_duration_us", "Avg Duration (μs)"),
    XprofColumn("min_duration_us", "Min Duration (μs)"),
    XprofColumn("max_duration_us", "Max Duration (μs)"),
)


def _dim(size: Dim3) -> str:
    return ",".join(map(str, size))


def _cells(rank: int, kernel: Kernel, spread: Spread | None) -> list[Cell]:
    launch = kernel.launch
    occupancy = launch.occupancy_percent
    return [
        rank,
        kernel.name,
        launch.registers,
        launch.shared_bytes,
        _dim(launch.block) if launch.block else None,
        _dim(launch.grid) if launch.grid else None,
        None if occupancy is None else occupancy / 100,
        kernel.could_use_tensor_core,
        kernel.uses_tensor_core,
        kernel.op_name or None,
        kernel.hosts,
        kernel.occurrences,
        kernel.total_ns / 1000,
        kernel.total_ns / kernel.occurrences / 1000,
        kernel.min_ns / 1000,
        kernel.max_ns / 1000,
        *spread_values(spread).values(),
    ]


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Kernels, longest first; equal ones of several hosts are one row."""
    with_step_times = wants_step_times(parameters)
    found = stats.kernels
    rows = [
        _cells(rank, one, spread)
        for rank, (one, spread) in enumerate(
            zip(found.kernels, found.spreads(), strict=True), start=1
        )
    ]
    tables = {"kernels": Table(_COLUMNS, rows), "operations": _operations_table(stats)}
    if with_step_times:
        tables[PARAMETER] = step_table(stats, _STEP_COLUMNS, [_step_series(stats)])
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if rows else "empty",
        result={
            "left_out_kernel_count": found.left_out,
            "left_out_duration_us": found.left_out_ns / 1000,
            **{name: table.to_json() for name, table in tables.items()},
        },
        tables=tables,
        reasons=_reasons(stats),
    )


_STEP_COLUMNS: Final = tuple(
    column
    for column in _COLUMNS
    if column.id in ("kernel_name", "block_dim", "grid_dim", "op_name")
)


def _step_series(stats: CaptureStats) -> Series:
    """Kernels that differ in registers or memory alone count together."""
    found = stats.kernels

    def cells_of(at: int) -> Iterator[tuple[Cell, ...]]:
        one = found.kernels[at]
        block, grid = one.launch.block, one.launch.grid
        yield (
            one.name,
            _dim(block) if block else None,
            _dim(grid) if grid else None,
            one.op_name or None,
        )

    return Series(found.step_times, True, cells_of)


def _reasons(stats: CaptureStats) -> tuple[Reason, ...]:
    kernels = stats.kernels.kernels
    if not kernels:
        is_gpu = stats.run_environment.hardware_type == "GPU"
        has_run = is_gpu and stats.device_ops.total_op_time_ps > 0
        return (NO_LAUNCH_PARAMETERS if has_run else NO_KERNELS,)
    untold = [kernel.uses_tensor_core is None for kernel in kernels]
    if all(untold):
        return (UNKNOWN_GPU_VENDOR,)
    return (GENERATED_KERNELS,) if any(untold) else ()


def _operations_table(stats: CaptureStats) -> Table:
    """The same kernels by the operation that launched them, the longest first."""
    every = stats.kernels.by_op()
    occurrences: Counter[str] = Counter()
    rows: dict[str, list[int]] = {}
    total_ns = np.array([kernel.total_ns for kernel in stats.kernels.kernels], np.int64)
    for at, kernel in enumerate(stats.kernels.kernels):
        occurrences[kernel.op_name] += kernel.occurrences
        rows.setdefault(kernel.op_name, []).append(at)
    longest = sorted(every, key=lambda name: (-every[name].total_ns, name))
    return Table(
        columns=(
            Column("op_name", "Operation", "string"),
            Column("kernel_count", "Kernels", "integer"),
            Column("occurrences", "Occurrences", "integer"),
            Column("total_duration_us", "Total duration", "number", "us"),
            Column("is_op_tensor_core_eligible", "Could use tensor cores", "boolean"),
            Column("tensor_core_duration_us", "On tensor cores", "number", "us"),
            Column("tensor_core_ratio", "Share on tensor cores", "number", "ratio"),
            *SPREAD_COLUMNS,
        ),
        rows=[
            (
                name or None,
                len(rows[name]),
                occurrences[name],
                every[name].total_ns / 1000,
                every[name].could_use_tensor_core,
                None if every[name].untold_ns else every[name].tensor_core_ns / 1000,
                every[name].tensor_core_ratio,
                *spread_values(
                    stats.kernels.step_times.spread_together(
                        np.array(rows[name]), total_ns[rows[name]]
                    )
                ).values(),
            )
            for name in longest
        ],
    )


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's table, where equal kernels of several hosts stay apart."""
    del parameters  # It takes none.
    rows = [
        _reference_cells(rank, one)
        for rank, one in enumerate(stats.reference_kernels.kernels, start=1)
    ]
    return XprofTable(_XPROF_COLUMNS, rows).to_json()


def _reference_cells(rank: int, kernel: Kernel) -> list[XprofCell]:
    launch = kernel.launch
    return [
        rank,
        kernel.name,
        launch.registers or 0,
        launch.shared_bytes or 0,
        _dim(launch.block or ONE),
        _dim(launch.grid or ONE),
        # Kept in 32 bits there.
        float(np.float32(launch.occupancy_percent or 0.0)),
        bool(kernel.is_op_eligible),
        bool(kernel.uses_tensor_core),
        kernel.op_name,
        kernel.occurrences,
        kernel.total_ns / 1000,
        # Of whole nanoseconds.
        kernel.total_ns // kernel.occurrences / 1000,
        kernel.min_ns / 1000,
        kernel.max_ns / 1000,
    ]
