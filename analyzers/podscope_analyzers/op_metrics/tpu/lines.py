"""The lines of TPU cores that operations are read from, and sums of their events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.device_clock import DEVICE_SPAN, device_spans
from podscope_analyzers.kernels import sum_groups, sum_nested
from podscope_analyzers.plane_views import OpLine
from podscope_analyzers.planes import SPARSE_CORE_STEPS, STEPS
from podscope_analyzers.xspace import Columns, StatColumn

Int64s = NDArray[np.int64]

STEP_LINES: Final = frozenset({STEPS, SPARSE_CORE_STEPS})
_EVENT_STATS: Final = (
    *DEVICE_SPAN,
    "min_duration_ps",
    "dma_stall_duration_ps",
    "Time Scale Multiplier",
    "vdd_energy_j",
    "flops",
    "model_flops",
    "bytes_accessed",
)
_STEP_STATS: Final = ("all_reduce_unique_id",)
LINK_STATS: Final = ("offload_core_id", "tc_offload_start_id")
# Doubles hold every duration below it.
_EXACT_PS: Final = 1 << 53

ModuleKey = tuple[int, int]


@dataclass(frozen=True)
class OpSums:
    """Sums of the events of each row of a plane's event metadata, shape (m,) each.

    Attributes:
        first: Index of the first event; -1 for a row without events.
        time_ps: Durations on the device.
        self_ps: The same without nested events.
        min_ps: The shortest, as the tracer says it.
        first_linked: Index of the first event that waits for a SparseCore module; -1 for none.
        link: Number of that module, -1 for none.
    """

    first: Int64s
    occurrences: Int64s
    time_ps: Int64s
    self_ps: Int64s
    min_ps: Int64s
    normalized_ps: Int64s
    dma_stall_ps: Int64s
    energy_j: NDArray[np.float64]
    flops: Int64s
    model_flops: Int64s
    size_bytes: Int64s
    first_linked: Int64s
    link: Int64s


def op_sums(
    columns: Columns,
    count: int,
    links: Mapping[ModuleKey, int],
) -> OpSums:
    """Operations of one op line, self times by nesting on the device's clock.

    Args:
        columns: With the stats that operations need decoded.
        count: Rows of the plane's event metadata.
        links: Numbers of SparseCore modules by offloading core and start id.
    """
    start, duration = device_spans(columns)
    rows, measured = columns.metadata, columns.duration_ps
    sums = sum_nested(rows, count, start, duration)
    occurred = columns.occurrences
    occurrences = sums.occurrences
    if occurred.any():
        occurrences = _added(rows, np.maximum(occurred, 1), count)

    def total(name: str, read: Callable[[StatColumn], NDArray[Any]]) -> NDArray[Any]:
        stat = columns.stat(name)
        # Most stats are on no event of a line at all.
        if not stat.kind.any():
            return np.zeros(count, np.int64)
        return _added(rows, read(stat), count)

    minimum = columns.stat("min_duration_ps")
    if minimum.kind.any():
        told = np.where(minimum.present(), minimum.ints(), measured)
        shortest = sum_groups(rows, count, told, told).min_ps
    elif measured is duration:
        shortest = sums.min_ps
    else:
        shortest = sum_groups(rows, count, measured, measured).min_ps
    scale = columns.stat("Time Scale Multiplier")
    normalized = sums.time_ps
    if scale.kind.any() or (len(duration) and int(duration.max()) >= _EXACT_PS):
        factor = np.where(scale.present(), scale.doubles(), 1.0)
        normalized = _added(rows, np.trunc(duration * factor).astype(np.int64), count)
    first_linked, link = _links(columns, links, count)
    return OpSums(
        first=sums.first,
        occurrences=occurrences,
        time_ps=sums.time_ps,
        self_ps=sums.self_ps,
        min_ps=shortest,
        normalized_ps=normalized,
        dma_stall_ps=total("dma_stall_duration_ps", StatColumn.ints),
        energy_j=total("vdd_energy_j", StatColumn.doubles).astype(np.float64),
        flops=total("flops", StatColumn.ints_or_uints),
        model_flops=total("model_flops", StatColumn.ints_or_uints),
        size_bytes=total("bytes_accessed", StatColumn.ints_or_uints),
        first_linked=first_linked,
        link=link,
    )


def _added(rows: NDArray[np.int32], values: NDArray[Any], count: int) -> NDArray[Any]:
    summed = np.zeros(count, values.dtype)
    np.add.at(summed, rows, values)
    return summed


def decode_ops(line: OpLine) -> Columns:
    """A line's events with every stat that operations need, and steps, which are read next."""
    return line.columns((*_EVENT_STATS, *LINK_STATS, *_STEP_STATS))


def _links(
    columns: Columns,
    links: Mapping[ModuleKey, int],
    count: int,
) -> tuple[Int64s, Int64s]:
    """Of every row, the first event that waits for a module, and that module's number."""
    first, link = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    core, start = (columns.stat(name) for name in LINK_STATS)
    both = core.present() & start.present() if links else np.zeros(0, np.bool_)
    if not both.any():
        return first, link
    rows, cores, starts = columns.metadata, core.ints_or_uints(), start.ints_or_uints()
    for event in np.flatnonzero(both)[::-1].tolist():
        found = links.get((int(cores[event]), int(starts[event])), -1)
        if found >= 0:
            first[rows[event]], link[rows[event]] = event, found
    return first, link
