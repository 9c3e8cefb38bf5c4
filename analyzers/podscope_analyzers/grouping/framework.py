"""The line of framework operations that a TPU's own operations add up to."""

import numpy as np

from podscope_analyzers.kernels.forest import merge_runs
from podscope_analyzers.planes import DERIVED_FRAMEWORK_OPS, FRAMEWORK_OPS
from podscope_analyzers.prepared import PreparedLine, PreparedPlane, derived_line
from podscope_analyzers.xspace.columns import Int32s, Int64s


def derive_framework_ops(plane: PreparedPlane) -> None:
    """Adds a line with one event for each run of events of the same framework operation."""
    codes: dict[str, int] = {}
    found = [_named(line, codes) for line in plane.lines if line.event_count]
    found = [part for part in found if len(part[0])]
    if not found:
        return
    code, start, duration, group = (
        np.concatenate([part[field] for part in found]) for field in range(4)
    )
    order = np.lexsort((duration, start))
    code, start, group = code[order].astype(np.int32), start[order], group[order]
    end = start + duration[order]
    run = np.empty(len(order), np.int32)
    merge_runs(code, group, start, end, run)
    first = np.flatnonzero(np.append(True, run[1:] != run[:-1]))
    rows = np.array([plane.event_metadata.add(name) for name in codes], np.int32)
    plane.lines = (
        *plane.lines,
        derived_line(
            plane,
            name=FRAMEWORK_OPS,
            line_id=DERIVED_FRAMEWORK_OPS,
            metadata=rows[code[first]],
            start_ps=start[first],
            duration_ps=np.maximum.reduceat(end, first) - start[first],
            group_id=group[first],
        ),
    )


def _named(
    line: PreparedLine, codes: dict[str, int]
) -> tuple[Int32s | Int64s, Int64s, Int64s, Int64s]:
    """Code of the framework operation, start, duration and group of the events that have one."""
    columns = line.columns({"tf_op", "_a"} & line.plane.stat_names)
    table = line.plane.event_metadata
    rows, inverse = np.unique(columns.metadata, return_inverse=True)
    of_rows = np.full(len(rows), -1, np.int64)
    for at, row in enumerate(rows):
        name = table.stats(int(row)).get("tf_op", "")
        if isinstance(name, str) and name:
            of_rows[at] = codes.setdefault(name, len(codes))
    code = of_rows[inverse]
    if "tf_op" in columns.stat_names:
        own, names = columns.stat("tf_op").strings()
        of_names = [codes.setdefault(n, len(codes)) if n else -1 for n in names]
        numbered = np.array([*of_names, -1], np.int64)[own]
        code = np.where(own >= 0, numbered, code)
    kept = code >= 0
    if "_a" in columns.stat_names:
        kept &= columns.stat("_a").ints() == 0
    return (
        code[kept],
        columns.start_ps[kept],
        columns.duration_ps[kept],
        line.group_id[kept],
    )
