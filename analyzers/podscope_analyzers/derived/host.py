"""The programs that a host's own threads ran, as XLA's CPU backend names them on its events."""

import numpy as np

from podscope_analyzers.derived.rows import merged_line
from podscope_analyzers.kernels.levels import Paths, merge_levels
from podscope_analyzers.planes import DERIVED_HOST_XLA, MAX_HOST_XLA_LINES, XLA_MODULES
from podscope_analyzers.prepared import PreparedLine, PreparedPlane


def program_lines(plane: PreparedPlane) -> tuple[PreparedLine, ...]:
    """A line for each thread that ran programs, with an event for each run."""
    if "hlo_module" not in plane.stat_names:
        return ()
    lines: list[PreparedLine] = []
    for line in plane.lines:
        if line.is_derived or not line.event_count or len(lines) == MAX_HOST_XLA_LINES:
            continue
        columns = line.columns(("hlo_module",))
        codes, texts = columns.stat("hlo_module").strings()
        is_named = np.array([*map(bool, texts), False])[codes]
        kept = np.flatnonzero(is_named)
        kept = kept[np.lexsort((columns.duration_ps[kept], columns.start_ps[kept]))]
        start = columns.start_ps[kept]
        group = line.group_id[kept]
        merged = merge_levels(
            codes[kept],
            Paths.of([[plane.event_metadata.add(text)] for text in texts]),
            start,
            start + columns.duration_ps[kept],
            group,
            limits_gaps=True,
        )
        lines.extend(
            merged_line(
                plane,
                merged,
                group,
                name=f"{XLA_MODULES} - from {line.display_name or line.name}",
                line_id=DERIVED_HOST_XLA + len(lines),
            )
        )
    return tuple(lines)
