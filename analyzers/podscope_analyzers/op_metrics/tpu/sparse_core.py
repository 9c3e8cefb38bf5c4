"""Operations of SparseCores, by the module that a TensorCore offloaded to them."""

from collections.abc import Mapping

import numpy as np

from podscope_analyzers.device_clock import DEVICE_SPAN, device_spans
from podscope_analyzers.hlo import Programs
from podscope_analyzers.op_metrics.database import CoreType, OpDatabase
from podscope_analyzers.op_metrics.tpu.lines import (
    LINK_STATS,
    ModuleKey,
    OpSums,
    decode_ops,
    op_sums,
)
from podscope_analyzers.op_metrics.tpu.merging import merge_ops
from podscope_analyzers.plane_views import OpPlane
from podscope_analyzers.planes import SPARSE_CORE_MODULES, SPARSE_CORE_OPS


def sparse_core_ops(plane: OpPlane) -> Mapping[ModuleKey, OpDatabase]:
    """Operations of a SparseCore by offloading core and start id.

    An operation belongs to the first module that does not end before it starts, if that one
    includes it.
    """
    starts, ends, keys = [], [], []
    for line in plane.lines:
        if line.name != SPARSE_CORE_MODULES:
            continue
        columns = line.columns((*DEVICE_SPAN, *LINK_STATS))
        core, start_id = (columns.stat(name) for name in LINK_STATS)
        linked = np.flatnonzero(core.present() & start_id.present())
        start, duration = device_spans(columns)
        starts.append(start[linked])
        ends.append(start[linked] + duration[linked])
        pairs = zip(core.ints_or_uints()[linked], start_id.ints_or_uints()[linked], strict=True)
        keys += [(int(one), int(other)) for one, other in pairs]
    if not keys:
        return {}
    start, end = np.concatenate(starts), np.concatenate(ends)
    order = np.lexsort((start - end, start))
    start, end = start[order], end[order]
    keys = [keys[at] for at in order.tolist()]
    numbers: dict[ModuleKey, int] = {}
    module_key = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
    parts: dict[int, list[OpSums]] = {}
    for line in plane.lines:
        if line.name != SPARSE_CORE_OPS:
            continue
        columns = decode_ops(line)
        op_start, op_duration = device_spans(columns)
        # Modules follow one another; a running maximum also serves those that overlap.
        module = np.searchsorted(np.maximum.accumulate(end), op_start)
        inside = module < len(end)
        module = np.minimum(module, len(end) - 1)
        inside &= (start[module] <= op_start) & (op_start + op_duration <= end[module])
        ops = np.flatnonzero(inside)
        ops = ops[np.argsort(module_key[module[ops]], kind="stable")]
        key_of_op = module_key[module[ops]]
        for of_key in np.split(ops, np.flatnonzero(np.diff(key_of_op)) + 1) if len(ops) else ():
            # Nesting sees only the operations of one module.
            sums = op_sums(columns.of(of_key), len(plane.event_metadata), {})
            parts.setdefault(int(module_key[module[of_key[0]]]), []).append(sums)
    total = np.zeros(len(numbers), np.int64)
    np.add.at(total, module_key, end - start)
    return {
        key: merge_ops(
            plane.event_metadata,
            parts.get(number, []),
            CoreType.SPARSE_CORE,
            [],
            Programs({}),
        )[0]
        .with_total_time(int(total[number]))
        .with_idle()
        for key, number in numbers.items()
    }
