"""Steps as devices show them: markers on the line of steps, events on the others."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels import nest
from podscope_analyzers.op_names import OpCategory, parse_op_name
from podscope_analyzers.planes import (
    DERIVED_STEPS,
    OP_LINES,
    SPARSE_CORE_OPS,
    SPARSE_CORE_STEPS,
    STEPS,
    is_sparse_core,
    is_tensor_core,
    line_id,
)
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.steps.database import SPARSE_CORE_OFFSET, Collectives, Int64s
from podscope_analyzers.steps.event_types import EventType
from podscope_analyzers.steps.events import StepEvents, intersect, unite
from podscope_analyzers.xspace import Columns

_DEVICE_TIMES: Final = ("device_offset_ps", "device_duration_ps")
_COPIES: Final = {
    OpCategory.MEMCPY_HOST_TO_DEVICE: EventType.HOST_TO_DEVICE,
    OpCategory.MEMCPY_DEVICE_TO_HOST: EventType.DEVICE_TO_HOST,
    OpCategory.MEMCPY_DEVICE_TO_DEVICE: EventType.DEVICE_TO_DEVICE,
}
_TRANSFER_KIND: Final = {
    EventType.HOST_TO_DEVICE: 0,
    EventType.DEVICE_TO_HOST: 1,
    EventType.DEVICE_TO_DEVICE: 2,
}


def device_spans(line: PreparedLine) -> tuple[Int64s, Int64s]:
    """Start and duration of every event by the device's clock where it says so, both (n,)."""
    stats = [name for name in _DEVICE_TIMES if name in line.plane.stat_names]
    columns = line.columns(stats)
    if len(stats) < len(_DEVICE_TIMES):
        return columns.start_ps, columns.duration_ps
    offset, duration = (columns.stat(name) for name in _DEVICE_TIMES)
    both = offset.present() & duration.present()
    return (
        np.where(both, offset.ints_or_uints(), columns.start_ps),
        np.where(both, duration.ints_or_uints(), columns.duration_ps),
    )


def device_step_events(plane: PreparedPlane) -> StepEvents:
    """Markers and events of the steps of one device."""
    tensor, sparse = is_tensor_core(plane.name), is_sparse_core(plane.name)
    core = plane.id + (SPARSE_CORE_OFFSET if sparse else 0)
    markers, found = StepEvents(), []
    for line in plane.lines:
        if (
            line_id(line.id) == DERIVED_STEPS
            or (tensor and line.name == STEPS)
            or (sparse and line.name == SPARSE_CORE_STEPS)
        ):
            markers = _markers(line, core)
        elif line.is_derived or not line.event_count:
            continue
        elif tensor or sparse:
            if line.name == SPARSE_CORE_OPS if sparse else line.name in OP_LINES:
                found.append(_tpu_ops(line, core))
        else:
            found.append(_stream(line, core))
    events = unite(found)
    if not len(events.steps()):
        return StepEvents()
    return intersect(events, markers) if len(markers.steps()) else StepEvents()


def _markers(line: PreparedLine, core: int) -> StepEvents:
    group = line.group_id
    begin, duration = device_spans(line)
    kept = group >= 0
    codes, table = line.step_names()
    names = {int(group[e]): table[int(codes[e])] for e in np.flatnonzero(kept & (codes >= 0))}
    return StepEvents(
        marker_step=group[kept],
        marker_core=np.full(int(kept.sum()), core, np.int64),
        marker_begin_ps=begin[kept],
        marker_duration_ps=duration[kept],
        names={step: name for step, name in names.items() if name},
    )


def _stream(line: PreparedLine, core: int) -> StepEvents:
    """Kernels and copies of a GPU's stream that the host launched within a step."""
    known = line.plane.stat_names
    if "correlation_id" not in known:
        return StepEvents()
    stats = [s for s in ("correlation_id", "shape", "memcpy_details") if s in known]
    columns = line.columns(stats)
    group = line.group_id
    correlation = columns.stat("correlation_id")
    kept = np.flatnonzero((group >= 0) & correlation.present() & (correlation.ints() >= 0))
    if not len(kept):
        return StepEvents()
    types = _stream_types(line, columns)[kept]
    step, begin = group[kept], columns.start_ps[kept]
    end = begin + columns.duration_ps[kept]
    gathers = types == EventType.DEVICE_COLLECTIVES
    kind = np.full(len(EventType), -1, np.int64)
    kind[list(_TRANSFER_KIND)] = list(_TRANSFER_KIND.values())
    copies = kind[types] >= 0
    size = _copied_bytes(columns)[kept]
    count = int(gathers.sum())
    return StepEvents(
        event_step=step,
        event_type=types,
        event_begin_ps=begin,
        event_end_ps=end,
        collectives=Collectives(
            step=step[gathers],
            core_id=np.full(count, core, np.int64),
            id=np.zeros(count, np.int64),
            begin_ps=begin[gathers],
            end_ps=end[gathers],
            size_bytes=np.zeros(count, np.int64),
        ),
        transfer_step=step[copies],
        transfer_kind=kind[types[copies]],
        transfer_duration_ps=(end - begin)[copies],
        transfer_bytes=size[copies],
    )


def _stream_types(line: PreparedLine, columns: Columns) -> NDArray[np.uint8]:
    """Type of every event of a stream, by its name and the shapes of its tensors, (n,)."""
    metadata, inverse = np.unique(columns.metadata, return_inverse=True)
    names = line.plane.event_metadata.names
    fixed, by_name = [], []
    for row in metadata:
        name = names[int(row)]
        copy = _COPIES.get(parse_op_name(name).category)
        if copy is not None:
            fixed.append(int(copy))
        elif name[:4].lower() == "nccl":
            fixed.append(int(EventType.DEVICE_COLLECTIVES))
        else:
            fixed.append(-1)
        by_name.append("half" in name or "fp16" in name)
    is_half = np.array(by_name, np.bool_)[inverse]
    if "shape" in columns.stat_names:
        codes, table = columns.stat("shape").strings()
        says = np.array([bool(text) for text in table] + [False], np.bool_)[codes]
        half = np.array(["half" in text for text in table] + [False], np.bool_)[codes]
        is_half = np.where(says, half, is_half)
    compute = np.where(is_half, EventType.DEVICE_COMPUTE_16, EventType.DEVICE_COMPUTE_32)
    known = np.array(fixed, np.int64)[inverse]
    return np.where(known >= 0, known, compute).astype(np.uint8)


def _copied_bytes(columns: Columns) -> Int64s:
    """Sizes that copies tell, 0 otherwise, shape (n,)."""
    if "memcpy_details" not in columns.stat_names:
        return np.zeros(len(columns), np.int64)
    codes, table = columns.stat("memcpy_details").strings()
    return np.array([*map(_bytes_of, table), 0], np.int64)[codes]


def _bytes_of(details: str) -> int:
    """``num_bytes`` among ``key:value`` lines; blank-separated ones are not understood."""
    tokens = details.replace("\n", ":").split(":")
    for at in range(0, len(tokens) - 1, 2):
        if tokens[at] == "num_bytes":
            try:
                return min(int(tokens[at + 1]), 1 << 62)
            except ValueError:
                return 0
    return 0


def _tpu_ops(line: PreparedLine, core: int) -> StepEvents:
    """Self time by category of a core's operations in each step."""
    known = line.plane.stat_names
    stats = [s for s in ("all_reduce_unique_id", *_DEVICE_TIMES) if s in known]
    columns = line.columns(stats)
    group = line.group_id
    kept = np.flatnonzero(group >= 0)
    if not len(kept):
        return StepEvents()
    begin, duration = device_spans(line)
    step, metadata = group[kept], columns.metadata[kept]
    self_ps = nest(begin[kept], duration[kept]).self_ps
    rows, inverse = np.unique(metadata, return_inverse=True)
    table = line.plane.event_metadata
    categories: dict[str, int] = {}
    codes, sizes = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64)
    for at, row in enumerate(rows):
        about = table.stats(int(row))
        size = about.get("bytes_accessed", 0)
        sizes[at] = min(size, 1 << 62) if isinstance(size, int) else 0
        symbol = about.get("symbol_id")
        # Operations without an identity, and the program's root, are not counted.
        if isinstance(about.get("program_id"), int) and isinstance(symbol, int) and symbol != 0:
            category = about.get("hlo_category", "")
            text = category if isinstance(category, str) else ""
            codes[at] = categories.setdefault(text, len(categories))
    code = codes[inverse]
    # One sum per step and category; a step whose operations do not count keeps its core.
    width = len(categories) + 1
    steps, step_at = np.unique(step, return_inverse=True)
    cell = step_at * width + code + 1
    cells, cell_at = np.unique(cell, return_inverse=True)
    sums = np.zeros(len(cells), np.int64)
    np.add.at(sums, cell_at, self_ps)
    category_of_cell = cells % width - 1
    sums[category_of_cell < 0] = 0
    return StepEvents(
        collectives=_tpu_collectives(columns, kept, step, core, sizes[inverse]),
        core_step=steps[cells // width],
        core_id=np.full(len(cells), core, np.int64),
        core_category=category_of_cell,
        core_self_ps=sums,
        categories=tuple(categories),
    )


def _tpu_collectives(
    columns: Columns, kept: Int64s, step: Int64s, core: int, size: Int64s
) -> Collectives:
    if "all_reduce_unique_id" not in columns.stat_names:
        return Collectives()
    ids = columns.stat("all_reduce_unique_id")
    at = np.flatnonzero(ids.present()[kept])
    rows = kept[at]
    begin, length = columns.start_ps[rows], columns.duration_ps[rows]
    end = begin + length
    if "device_offset_ps" in columns.stat_names:
        stat = columns.stat("device_offset_ps")
        begin = np.where(stat.present()[rows], stat.ints_or_uints()[rows], begin)
    if "device_duration_ps" in columns.stat_names:
        stat = columns.stat("device_duration_ps")
        end = np.where(stat.present()[rows], begin + stat.ints_or_uints()[rows], end)
    return Collectives(
        step=step[at],
        core_id=np.full(len(rows), core, np.int64),
        id=ids.ints_or_uints()[rows],
        begin_ps=begin,
        end_ps=end,
        size_bytes=size[at],
    )
