"""GPU kernels by time, with their launch and whether they use tensor cores."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.gpu_kernels import Dim3, Kernel
from podscope_analyzers.op_metrics.op_columns import SPREAD_COLUMNS, spread_values
from podscope_analyzers.reasons import NO_KERNELS
from podscope_analyzers.result import Cell, Column, Scope, Table, ToolResult
from podscope_analyzers.xprof_table import XprofCell, XprofColumn, XprofTable

NAME: Final = "kernel_stats"
VERSION: Final = 3

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


def _cells(rank: int, kernel: Kernel, occupancy: float, average_ns: float) -> list[XprofCell]:
    launch = kernel.launch
    return [
        rank,
        kernel.name,
        launch.registers,
        launch.static_bytes + launch.dynamic_bytes,
        _dim(launch.block),
        _dim(launch.grid),
        occupancy,
        kernel.is_op_eligible,
        kernel.uses_tensor_core,
        kernel.op_name,
        kernel.occurrences,
        kernel.total_ns / 1000,
        average_ns / 1000,
        kernel.min_ns / 1000,
        kernel.max_ns / 1000,
    ]


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Kernels, longest first; those of several hosts stay apart."""
    del parameters  # It takes none.
    kernels = zip(stats.kernels.kernels, stats.kernels.spreads(), strict=True)
    rows: list[list[Cell]] = [
        [
            *_cells(rank, one, one.launch.occupancy_percent / 100, one.total_ns / one.occurrences),
            *spread_values(spread).values(),
        ]
        for rank, (one, spread) in enumerate(kernels, start=1)
    ]
    tables = {"kernels": Table(_COLUMNS, rows), "operations": _operations_table(stats)}
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if rows else "empty",
        result={name: table.to_json() for name, table in tables.items()},
        tables=tables,
        reasons=() if rows else (NO_KERNELS,),
    )


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
                every[name].is_eligible,
                every[name].tensor_core_ns / 1000,
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
    """The reference's table; its average is of whole nanoseconds."""
    del parameters  # It takes none.
    rows = [
        _cells(rank, one, one.launch.occupancy_percent, one.total_ns // one.occurrences)
        for rank, one in enumerate(stats.kernels.kernels, start=1)
    ]
    return XprofTable(_XPROF_COLUMNS, rows).to_json()
