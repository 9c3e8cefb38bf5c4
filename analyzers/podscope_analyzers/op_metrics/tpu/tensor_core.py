"""Operations of TensorCores, with those of SparseCores below the ones that wait for them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.device_clock import DEVICE_SPAN, device_spans
from podscope_analyzers.hlo import Programs
from podscope_analyzers.kernels import extent
from podscope_analyzers.op_metrics.database import CoreType, OpDatabase
from podscope_analyzers.op_metrics.tpu.lines import (
    STEP_LINES,
    ModuleKey,
    OpSums,
    decode_ops,
    op_sums,
)
from podscope_analyzers.op_metrics.tpu.merging import merge_ops
from podscope_analyzers.plane_views import OpPlane
from podscope_analyzers.planes import OP_LINES


def tensor_core_ops(
    plane: OpPlane,
    programs: Programs,
    sparse_core: Mapping[ModuleKey, OpDatabase],
    *,
    with_children: bool = True,
) -> tuple[OpDatabase, NDArray[np.intp]]:
    """Operations of one TensorCore.

    Args:
        plane: The core's.
        programs: Gives fusions their fused instructions.
        sparse_core: Operations of SparseCore modules, by offloading core and start id; they
            become children of the operation that waits for them.
        with_children: Whether these and fused instructions are wanted.

    Returns:
        Them, and the operation of every row of the plane's event metadata, -1 for none, (m,).
    """
    links = {key: number for number, key in enumerate(sparse_core)}
    parts: list[OpSums] = []
    first, last = None, 0
    for line in plane.lines:
        is_ops = line.name in OP_LINES
        if not is_ops and line.name not in STEP_LINES:
            continue
        columns = decode_ops(line) if is_ops else line.columns(DEVICE_SPAN)
        if not len(columns):
            continue
        begin, end = extent(*device_spans(columns))
        first = begin if first is None else min(first, begin)
        last = max(last, end)
        if is_ops:
            parts.append(op_sums(columns, len(plane.event_metadata), links))
    if plane.framework_span is not None:
        begin, end = plane.framework_span
        first = begin if first is None else min(first, begin)
        last = max(last, end)
    database, op_of_row = merge_ops(
        plane.event_metadata,
        parts,
        CoreType.TENSOR_CORE,
        list(sparse_core.values()),
        programs,
        with_children=with_children,
    )
    total_ps = last - first if first is not None else 0
    return database.with_total_time(total_ps).with_idle(), op_of_row
