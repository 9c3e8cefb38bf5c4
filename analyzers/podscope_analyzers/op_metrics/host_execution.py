"""HLO operations that a host's own threads executed: programs compiled for the CPU."""

import numpy as np

from podscope_analyzers.hlo import Programs
from podscope_analyzers.kernels import nest
from podscope_analyzers.kernels.spans import natural_order
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.grouping import group_rows
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.plane_views import HOST_PLANE, OpLine, OpSpace, device_planes

_STATS = ("hlo_op", "program_id")


def host_execution_database(space: OpSpace, programs: Programs) -> OpDatabase:
    """Operations of CPU programs by program and name; empty where there are devices.

    The reference has no such rows. Times add over threads; there is no idle operation, since
    no thread is only there to execute operations.
    """
    host = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    if host is None or device_planes(space):
        return OpDatabase.empty()
    return OpDatabase.combine(
        _line_database(line, programs) for line in host.lines if not line.is_derived
    )


def _line_database(line: OpLine, programs: Programs) -> OpDatabase:
    columns = line.columns(_STATS)
    codes, paths = columns.stat("hlo_op").strings()
    events = np.flatnonzero(np.array([*map(bool, paths), False])[codes])
    start, duration = columns.start_ps[events], columns.duration_ps[events]
    order = natural_order(start, duration)
    if order is not None:
        events, start, duration = events[order], start[order], duration[order]
    self_ps = nest(start, duration).self_ps
    program = columns.stat("program_id").ints_or_uints()[events]
    group, first = group_rows(np.stack([program, codes[events].astype(np.int64)]))
    texts = TextTable()
    rows = []
    for at in first.tolist():
        name = paths[codes[events[at]]].rsplit("::", 1)[-1]
        instruction = programs.instruction(int(program[at]), name)
        texts_of_row = (
            name,
            instruction.category if instruction else "",
            instruction.framework_name if instruction else "",
            instruction.expression if instruction else "",
        )
        rows.append([texts.code(text) for text in texts_of_row])
    described = np.array(rows, np.int64).reshape(-1, 4)
    count = len(first)
    sums = {"time_ps": np.zeros(count, np.int64), "self_time_ps": np.zeros(count, np.int64)}
    np.add.at(sums["time_ps"], group, duration)
    np.add.at(sums["self_time_ps"], group, self_ps)
    total = int(self_ps.sum())
    database = OpDatabase.build(
        {
            "name": described[:, 0],
            "category": described[:, 1],
            "provenance": described[:, 2],
            "long_name": described[:, 3],
            "module_id": program[first],
            "occurrences": np.bincount(group, minlength=count),
            **sums,
        },
        texts,
        total_op_time_ps=total,
        total_time_ps=total,
    )
    # Two paths may end in one operation.
    return OpDatabase.combine([OpDatabase.empty(), database])
