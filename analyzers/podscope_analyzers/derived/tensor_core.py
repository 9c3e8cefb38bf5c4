"""Derived lines of a TPU's TensorCore: name scopes, source lines, offloads to the host."""

from collections.abc import Callable, Sequence

import numpy as np

from podscope_analyzers.derived.framework import framework_scopes
from podscope_analyzers.derived.offloads import offload_lines
from podscope_analyzers.derived.rows import merged_line
from podscope_analyzers.grouping.framework import named_events
from podscope_analyzers.kernels.levels import Paths, merge_levels
from podscope_analyzers.planes import DERIVED_NAME_SCOPE, DERIVED_SOURCE, NAME_SCOPE, SOURCE
from podscope_analyzers.prepared import PreparedLine, PreparedPlane

Levels = Callable[[str], Sequence[int]]


def tensor_core_lines(plane: PreparedPlane) -> tuple[PreparedLine, ...]:
    """The lines of one core; its framework operations are among its ``lines``."""
    metadata = plane.event_metadata

    def scopes(name: str) -> list[int]:
        return [metadata.add(scope) for scope in framework_scopes(name)]

    def sources(name: str) -> list[int]:
        return [metadata.add(name)]

    return (
        *_text_line(plane, "tf_op", scopes, NAME_SCOPE, DERIVED_NAME_SCOPE),
        *_text_line(plane, "source", sources, SOURCE, DERIVED_SOURCE),
        *offload_lines(plane),
    )


def _text_line(
    plane: PreparedPlane, stat: str, levels: Levels, name: str, line_id: int
) -> tuple[PreparedLine, ...]:
    codes: dict[str, int] = {}
    found = [named_events(line, stat, codes) for line in plane.lines if line.event_count]
    if not codes:
        return ()
    code, start, duration, group = (
        np.concatenate([part[field] for part in found]) for field in range(4)
    )
    order = np.lexsort((duration, start))
    start, group = start[order], group[order]
    merged = merge_levels(
        code[order].astype(np.int32),
        Paths.of([levels(text) for text in codes]),
        start,
        start + duration[order],
        group,
        limits_gaps=True,
        shrinks=True,
    )
    return merged_line(plane, merged, group, name=name, line_id=line_id)
