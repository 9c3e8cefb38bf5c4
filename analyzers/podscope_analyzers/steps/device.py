"""Steps as devices show them: markers on the line of steps, events on the others."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.collectives import kind_id
from podscope_analyzers.device_clock import DEVICE_SPAN, device_spans
from podscope_analyzers.kernels import (
    Cells,
    count_codes,
    factorise,
    sum_groups,
    sum_nested,
)
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
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.step_times import StepTimes
from podscope_analyzers.steps.database import SPARSE_CORE_OFFSET, Collectives, Int64s
from podscope_analyzers.steps.event_types import EventType
from podscope_analyzers.steps.events import StepEvents, intersect, unite
from podscope_analyzers.steps.operation_costs import operation_costs
from podscope_analyzers.steps.work import WIDTH
from podscope_analyzers.xspace import Columns
from podscope_analyzers.xspace.columns import Int32s

# As many sums of steps and categories are simply a table.
_DENSE_CELLS: Final = 1 << 20
_EVENT_COSTS: Final = ("flops", "model_flops", "bytes_accessed")
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


def device_step_events(plane: PreparedPlane) -> StepEvents:
    """Markers and events of the steps of one device."""
    return read_device_steps(plane)[0]


def read_device_steps(plane: PreparedPlane) -> tuple[StepEvents, StepTimes]:
    """Markers and events of one device's steps; of a TPU also self times by step.

    These are of the rows of the plane's event metadata.
    """
    tensor, sparse = is_tensor_core(plane.name), is_sparse_core(plane.name)
    core = plane.id + (SPARSE_CORE_OFFSET if sparse else 0)
    markers, found, by_row = StepEvents(), [], []
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
                events, times = _tpu_ops(line, core)
                found.append(events)
                by_row.append(times)
        else:
            found.append(_stream(line, core))
    events = unite(found)
    if not len(events.steps()) or not len(markers.steps()):
        return StepEvents(), StepTimes()
    rows = np.arange(len(plane.event_metadata))
    return intersect(events, markers), StepTimes.combine(by_row, [rows] * len(by_row))


def _spans(line: PreparedLine) -> tuple[Int64s, Int64s]:
    """Start and duration of every event on the device's clock, without a decode for nothing."""
    if not line.plane.stat_names.issuperset(DEVICE_SPAN):
        columns = line.columns(())
        return columns.start_ps, columns.duration_ps
    return device_spans(line.columns(DEVICE_SPAN))


def _markers(line: PreparedLine, core: int) -> StepEvents:
    group = line.group_id
    begin, duration = _spans(line)
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
    metadata, place = np.unique(columns.metadata[kept[gathers]], return_inverse=True)
    names = line.plane.event_metadata.names
    kinds = np.array([kind_id(names[int(row)]) for row in metadata], np.int64)
    return StepEvents(
        event_step=step,
        event_type=types,
        event_begin_ps=begin,
        event_end_ps=end,
        collectives=Collectives(
            step=step[gathers],
            core_id=np.full(len(place), core, np.int64),
            # The tracers of GPUs do not say which is which.
            id=kinds[place],
            begin_ps=begin[gathers],
            end_ps=end[gathers],
            size_bytes=np.zeros(len(place), np.int64),
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


def _tpu_ops(line: PreparedLine, core: int) -> tuple[StepEvents, StepTimes]:
    """Self time by category, and the work, of a core's operations in each step."""
    known = line.plane.stat_names
    stats = [s for s in ("all_reduce_unique_id", *DEVICE_SPAN, *_EVENT_COSTS) if s in known]
    columns = line.columns(stats)
    group_code, groups = line.group_codes()
    # The last place is for -1, no group.
    steps, step_of_code = np.unique(np.append(groups, -1), return_inverse=True)
    counted_rows = columns.metadata
    if not _are_all_steps(group_code, groups):
        counted_rows = np.where(np.append(groups, -1)[group_code] >= 0, counted_rows, -1)
    rows = np.flatnonzero(count_codes(counted_rows, len(line.plane.event_metadata)))
    if not len(rows):
        return StepEvents(), StepTimes()
    begin, duration = _spans(line)
    table = line.plane.event_metadata
    operations = table.made_of(rows, "costs", lambda: operation_costs(table, rows))
    # One cell per step and operation, of which there are far fewer than events.
    step_of_code = np.where(steps[step_of_code] >= 0, step_of_code, -1)
    cell_of, cells = _cells(group_code, step_of_code, columns.metadata, rows)
    sums = sum_nested(cell_of, len(cells), begin, duration)
    # In order of appearance, in which sums of doubles are made.
    by_appearance = np.argsort(sums.first)
    by_appearance = by_appearance[np.searchsorted(sums.first[by_appearance], 0) :]
    cells = cells[by_appearance]
    cell_step, cell_row = steps[cells // len(rows)], cells % len(rows)

    def summed(values: Int64s) -> Int64s:
        codes = cell_of.numbers() if isinstance(cell_of, Cells) else cell_of
        total: Int64s = sum_groups(codes, len(sums.first), values, values).time_ps
        return total[by_appearance]

    is_counted = operations.category[cell_row] >= 0
    cell_self_ps = np.where(is_counted, sums.self_ps[by_appearance], 0)
    # A step whose operations do not count keeps its core.
    width = len(operations.categories) + 1
    step_order = distinct(cell_step)
    key = np.searchsorted(step_order, cell_step) * width + operations.category[cell_row] + 1
    keys, key_at = np.unique(key, return_inverse=True)
    category_ps = np.zeros(len(keys), np.int64)
    np.add.at(category_ps, key_at, cell_self_ps)
    work_step, work, feeds_ps = np.zeros(0, np.int64), np.zeros((0, 2, WIDTH)), steps[:0]
    if core < SPARSE_CORE_OFFSET:
        event_costs = [
            summed(columns.stat(name).ints_or_uints())
            if name in known and columns.stat(name).kind.any()
            else np.zeros(len(cells), np.int64)
            for name in _EVENT_COSTS
        ]
        occurrences = sums.occurrences[by_appearance]
        if columns.occurrences.any():
            occurrences = summed(np.maximum(columns.occurrences, 1))
        time_ps = sums.time_ps[by_appearance]
        counted = np.flatnonzero(is_counted)
        work_step = step_order
        work, feeds_ps = operations.work_by_step(
            np.searchsorted(step_order, cell_step[counted]),
            len(step_order),
            cell_row[counted],
            occurrences[counted],
            time_ps[counted],
            [one[counted] for one in event_costs],
        )
    sizes = np.zeros(len(line.plane.event_metadata), np.int64)
    sizes[rows] = operations.size
    events = StepEvents(
        collectives=_tpu_collectives(columns, group_code, groups, core, sizes),
        core_step=step_order[keys // width],
        core_id=np.full(len(keys), core, np.int64),
        core_category=keys % width - 1,
        core_self_ps=category_ps,
        categories=operations.categories,
        work_step=work_step,
        work=work,
        work_feeds_ps=feeds_ps,
    )
    self_ps = sums.self_ps[by_appearance]
    happened = np.flatnonzero(self_ps)
    by_row = StepTimes(rows[cell_row[happened]], cell_step[happened], self_ps[happened])
    return events, by_row


def _are_all_steps(code: Int32s, groups: Int64s) -> bool:
    """Whether every event is of a step."""
    return bool((not len(groups) or groups.min() >= 0) and (not len(code) or code.min() >= 0))


def _cells(
    code: Int32s, step_of_code: Int64s, row: Int32s, rows: Int64s
) -> tuple[Int32s | Cells, Int64s]:
    """Number of every event's pair of step and operation; the pairs by number.

    Args:
        code: Code of every event's group, -1 for none, shape (n,).
        step_of_code: Step of each code, -1 for none; the last is that of -1.
        row: Row of every event's metadata, shape (n,).
        rows: Rows that are used, ascending; a pair is ``step * len(rows)`` and the place in here.

    Returns:
        Numbers, shape (n,), -1 for none; the pairs.
    """
    width = len(rows)
    place = np.zeros(int(rows[-1]) + 1, np.int32)
    place[rows] = np.arange(width)
    cells = (int(step_of_code.max()) + 1) * width
    if cells < _DENSE_CELLS:
        return Cells(code, step_of_code.astype(np.int32), row, place, width), np.arange(cells)
    step = step_of_code[code]
    known = np.minimum(row, len(place) - 1)
    pair = np.where(step >= 0, step * width + place[known], -1)
    number, pairs = factorise(pair)
    # Events without a step share a number, which is made the one of none.
    return np.where(pair >= 0, number, -1).astype(np.int32), pairs


def _tpu_collectives(
    columns: Columns, code: Int32s, groups: Int64s, core: int, size_of_row: Int64s
) -> Collectives:
    """The events of a step that are part of a collective."""
    if "all_reduce_unique_id" not in columns.stat_names:
        return Collectives()
    ids = columns.stat("all_reduce_unique_id")
    rows = np.flatnonzero(ids.kind)
    step = np.append(groups, -1)[code[rows]]
    rows, step = rows[step >= 0], step[step >= 0]
    begin, length = columns.start_ps[rows], columns.duration_ps[rows]
    end = begin + length
    if "device_offset_ps" in columns.stat_names:
        stat = columns.stat("device_offset_ps")
        begin = np.where(stat.kind[rows] != 0, stat.ints_or_uints()[rows], begin)
    if "device_duration_ps" in columns.stat_names:
        stat = columns.stat("device_duration_ps")
        end = np.where(stat.kind[rows] != 0, begin + stat.ints_or_uints()[rows], end)
    return Collectives(
        step=step,
        core_id=np.full(len(rows), core, np.int64),
        id=ids.ints_or_uints()[rows],
        begin_ps=begin,
        end_ps=end,
        size_bytes=size_of_row[columns.metadata[rows]],
    )
