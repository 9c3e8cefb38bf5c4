"""Makes an XSpace ready for analysis: groups its events into steps and derives lines."""

from collections.abc import Callable

import numpy as np

from podscope_analyzers.grouping.contexts import CONTEXT_STATS
from podscope_analyzers.grouping.event_types import NodeType
from podscope_analyzers.grouping.forest import ForestBuilder, types_of_rows
from podscope_analyzers.grouping.framework import (
    FRAMEWORK_STATS,
    derive_framework_ops,
    framework_span,
)
from podscope_analyzers.grouping.gpu import derive_steps
from podscope_analyzers.grouping.groups import Groups, eager_nodes, group_forest
from podscope_analyzers.grouping.notable import host_sieve
from podscope_analyzers.grouping.threadpool import add_regions
from podscope_analyzers.grouping.tpu import CoreNodes, add_core, finish_core, number_in_lock_step
from podscope_analyzers.planes import (
    HOST_PLANE,
    is_device_plane,
    is_gpu,
    is_host_plane,
    is_sparse_core,
    is_tensor_core,
)
from podscope_analyzers.prepared import PreparedLine, PreparedPlane, PreparedSpace
from podscope_analyzers.prepared_lines import sort_lines
from podscope_analyzers.xspace import XSpace

__all__ = ["PreparedLine", "PreparedPlane", "PreparedSpace", "prepare"]


def prepare(
    space: XSpace, *, derive_lines: bool = True, framework_ops: bool = True
) -> PreparedSpace:
    """Groups the events of a host into steps, and adds the lines that follow from them.

    A file that was grouped before is left as it is: its events say their groups.

    Args:
        space: What one profiler session of one host recorded.
        derive_lines: Add derived lines and fill in the groups of GPU events.
        framework_ops: Add a TensorCore's line of framework operations too: for viewers, since
            it takes as long as all else, and says nothing that the operations do not.

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
        if plane.name == HOST_PLANE:
            plane.sieve = host_sieve(plane.source.event_metadata)
        add_regions(plane)
    cores = _group(prepared, with_spans=derive_lines and not framework_ops)
    for core in cores:
        finish_core(core)
    if derive_lines:
        for plane in prepared.planes:
            if is_gpu(plane.name):
                derive_steps(plane)
            elif framework_ops and is_tensor_core(plane.name):
                derive_framework_ops(plane)
        prepared.derive = _line_deriver(prepared)
    return prepared


def _line_deriver(
    prepared: PreparedSpace,
) -> Callable[[PreparedPlane], tuple[PreparedLine, ...]]:
    def derive(plane: PreparedPlane) -> tuple[PreparedLine, ...]:
        # No statistic needs these lines: what reads HLO is loaded when they are looked at.
        from podscope_analyzers.derived import LineDeriver

        deriver = prepared.derive = LineDeriver(prepared)
        return deriver(plane)

    return derive


def _group(prepared: PreparedSpace, *, with_spans: bool) -> list[CoreNodes]:
    types = {id(plane): types_of_rows(plane) for plane in prepared.planes if plane.lines}
    if any((found == NodeType.LOOP).any() for found in types.values()):
        # Loops outside the executor: the reference makes no groups then.
        for plane in prepared.planes:
            if is_tensor_core(plane.name):
                _read_core(plane, with_spans=with_spans)
        _set_ungrouped(prepared)
        return []
    builder = ForestBuilder()
    cores: list[CoreNodes] = []
    for plane in prepared.planes:
        if not plane.lines:
            continue
        of_rows = types[id(plane)]
        if is_tensor_core(plane.name):
            _read_core(plane, with_spans=with_spans)
        if is_tensor_core(plane.name) or is_sparse_core(plane.name):
            core = add_core(builder, plane, of_rows)
            if core is not None:
                cores.append(core)
            plane.release()
            continue
        for line in plane.lines:
            if line.event_count:
                builder.add_line(line, of_rows, notable=True)
    forest = builder.build()
    # What it collected is in the forest now, and as large.
    del builder
    groups = group_forest(forest)
    for core in cores:
        groups.mark_device_roots(core.nodes)
    if cores:
        number_in_lock_step(groups, cores)
    forest.forget_children()
    prepared.groups = groups
    _set_groups(groups)
    return cores


def _read_core(plane: PreparedPlane, *, with_spans: bool) -> None:
    """Sorts a TensorCore's events; all that preparation reads of them is read at once."""
    sort_lines(plane, CONTEXT_STATS | FRAMEWORK_STATS)
    if with_spans:
        plane.framework_span = framework_span(plane)


def _set_groups(groups: Groups) -> None:
    """Hands every line its part of what was found."""
    forest = groups.forest
    eager_at, eager = eager_nodes(forest)
    named_nodes = groups.root[groups.named]
    named_groups = np.flatnonzero(groups.named)
    order = np.argsort(named_nodes)
    named_nodes, named_groups = named_nodes[order], named_groups[order]
    for part in forest.lines:
        begin, end = part.base, part.base + part.count
        is_eager = None
        low, high = np.searchsorted(eager_at, (begin, end))
        if high > low:
            is_eager = np.full(part.line.event_count, -1, np.int8)
            is_eager[part.events_of(eager_at[low:high])] = eager[low:high]
        low, high = np.searchsorted(named_nodes, (begin, end))
        named = (part.events_of(named_nodes[low:high]), named_groups[low:high])
        group = groups.group[begin:end]
        if part.events is None:
            part.line.set_groups(group, is_eager, named)
        else:
            part.line.set_notable_groups(group, is_eager, named)


def _set_ungrouped(prepared: PreparedSpace) -> None:
    for plane in prepared.planes:
        for line in plane.lines:
            line.set_groups(np.full(line.event_count, -1, np.int32))
