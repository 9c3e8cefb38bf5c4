"""Makes an XSpace ready for analysis: groups its events into steps and derives lines."""

import numpy as np

from podscope_analyzers.grouping.event_types import NodeType
from podscope_analyzers.grouping.forest import ForestBuilder, types_of_rows
from podscope_analyzers.grouping.framework import derive_framework_ops
from podscope_analyzers.grouping.gpu import derive_steps
from podscope_analyzers.grouping.groups import Groups, eager_nodes, group_forest
from podscope_analyzers.grouping.threadpool import add_regions
from podscope_analyzers.grouping.tpu import CoreNodes, add_core, finish_core, number_in_lock_step
from podscope_analyzers.planes import (
    is_device_plane,
    is_gpu,
    is_host_plane,
    is_sparse_core,
    is_tensor_core,
)
from podscope_analyzers.prepared import (
    PreparedLine,
    PreparedPlane,
    PreparedSpace,
    sort_lines,
)
from podscope_analyzers.xspace import XSpace

__all__ = ["PreparedLine", "PreparedPlane", "PreparedSpace", "prepare"]


def prepare(space: XSpace, *, derive_lines: bool = True) -> PreparedSpace:
    """Groups the events of a host into steps, and adds the lines that follow from them.

    A file that was grouped before is left as it is: its events say their groups.

    Args:
        space: What one profiler session of one host recorded.
        derive_lines: Add derived lines and fill in the groups of GPU events.

    Returns:
        The space's planes and lines, which also say the group of every event.
    """
    prepared = PreparedSpace(space)
    judged = [
        plane
        for plane in prepared.planes
        if is_host_plane(plane.name) or is_device_plane(plane.name)
    ]
    if all("group_id" in plane.stat_names for plane in judged):
        return prepared
    for plane in prepared.planes:
        add_regions(plane)
        if is_tensor_core(plane.name):
            sort_lines(plane)
    cores = _group(prepared)
    for core in cores:
        finish_core(core)
    if derive_lines:
        for plane in prepared.planes:
            if is_gpu(plane.name):
                derive_steps(plane)
            elif is_tensor_core(plane.name):
                derive_framework_ops(plane)
    return prepared


def _group(prepared: PreparedSpace) -> list[CoreNodes]:
    types = {id(plane): types_of_rows(plane) for plane in prepared.planes if plane.lines}
    if any((found == NodeType.LOOP).any() for found in types.values()):
        # Loops outside the executor: the reference makes no groups then.
        _set_ungrouped(prepared)
        return []
    builder = ForestBuilder()
    cores: list[CoreNodes] = []
    for plane in prepared.planes:
        if not plane.lines:
            continue
        of_rows = types[id(plane)]
        if is_tensor_core(plane.name) or is_sparse_core(plane.name):
            core = add_core(builder, plane, of_rows)
            if core is not None:
                cores.append(core)
            continue
        for line in plane.lines:
            if line.event_count:
                builder.add_line(line, of_rows)
    forest = builder.build()
    groups = group_forest(forest)
    for core in cores:
        groups.mark_device_roots(core.nodes)
    if cores:
        number_in_lock_step(groups, cores)
    prepared.groups = groups
    _set_groups(groups)
    return cores


def _set_groups(groups: Groups) -> None:
    """Hands every line its part of what was found."""
    forest = groups.forest
    eager_at, eager = eager_nodes(forest)
    named_nodes = groups.root[groups.named]
    named_groups = np.flatnonzero(groups.named)
    order = np.argsort(named_nodes)
    named_nodes, named_groups = named_nodes[order], named_groups[order]
    for part in forest.lines:
        begin, end = part.base, part.base + part.line.event_count
        is_eager = None
        low, high = np.searchsorted(eager_at, (begin, end))
        if high > low:
            is_eager = np.full(part.line.event_count, -1, np.int8)
            is_eager[eager_at[low:high] - begin] = eager[low:high]
        low, high = np.searchsorted(named_nodes, (begin, end))
        part.line.set_groups(
            groups.group[begin:end],
            is_eager,
            (named_nodes[low:high] - begin, named_groups[low:high]),
        )


def _set_ungrouped(prepared: PreparedSpace) -> None:
    for plane in prepared.planes:
        for line in plane.lines:
            line.set_groups(np.full(line.event_count, -1, np.int32))
