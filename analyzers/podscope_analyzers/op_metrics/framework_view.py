"""Device operations by the framework operation that they are of."""

import numpy as np

from podscope_analyzers.op_metrics.database import IDLE, OpDatabase
from podscope_analyzers.op_metrics.grouping import first_nonzero, group_rows
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.op_names import (
    is_jax_training,
    is_tensorflow_training,
    parse_op_name,
)
from podscope_analyzers.step_times import StepTimes

UNKNOWN_TYPE = "Unknown"
_SUMS = (
    "time_ps",
    "self_time_ps",
    "bytes_accessed",
    "own_bytes_accessed",
    "flops",
    "model_flops",
    "own_flops",
    "own_model_flops",
)


def framework_view(device_ops: OpDatabase, *, with_idle: bool) -> OpDatabase:
    """Framework operations, by name alone; those without a framework keep the device's name.

    Occurrences are the largest of the operations folded into one, all else adds. The memory
    breakdown, normalised times and children do not come along.
    """
    texts = TextTable(device_ops.texts)
    top = device_ops.top_count
    idle = device_ops.is_idle[:top]
    rows = np.arange(top) if with_idle else np.flatnonzero(~idle)
    provenance = device_ops.top("provenance")[rows]
    names = device_ops.top("name")[rows].copy()
    types = np.full(len(rows), texts.code(UNKNOWN_TYPE), np.int32)
    used, of_used = np.unique(provenance, return_inverse=True)
    new_names, new_types = np.zeros(len(used), np.int32), np.zeros(len(used), np.int32)
    for at, code in enumerate(used.tolist()):
        if code:
            op = parse_op_name(device_ops.texts[code])
            new_names[at] = texts.code(op.name)
            new_types[at] = texts.code(op.type or UNKNOWN_TYPE)
    is_named = provenance != 0
    names[is_named], types[is_named] = new_names[of_used][is_named], new_types[of_used][is_named]
    idle_code = texts.code(IDLE)
    names[idle[rows]] = types[idle[rows]] = idle_code
    group, first = group_rows(names.astype(np.int64)[None, :])
    count = len(first)
    columns = {"name": names[first], "category": first_nonzero(group, types, count)}
    for name in _SUMS:
        values = device_ops.top(name)[rows]
        columns[name] = np.zeros(count, values.dtype)
        np.add.at(columns[name], group, values)
    columns["occurrences"] = np.zeros(count, np.int64)
    np.maximum.at(columns["occurrences"], group, device_ops.top("occurrences")[rows])
    # The last operation of a name says whether it is eager.
    eager = np.zeros(count, np.bool_)
    eager[group] = device_ops.top("is_eager")[rows]
    columns["is_eager"] = eager
    columns["cost_source"] = first_nonzero(group, device_ops.top("cost_source")[rows], count)
    total_op = device_ops.total_op_time_ps
    place = np.full(len(device_ops), -1, np.int64)
    place[rows] = group
    return OpDatabase.build(
        columns,
        texts,
        step_times=StepTimes.combine([device_ops.step_times], [place]),
        total_op_time_ps=total_op,
        total_time_ps=device_ops.total_time_ps if with_idle else total_op,
    )


def is_training(op_name: str, op_type: str) -> bool:
    """Whether an operation is of a backward computation."""
    return is_tensorflow_training(op_name, op_type) or is_jax_training(op_name, op_type)
