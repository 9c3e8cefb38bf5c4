"""Groups of TPU cores: their own steps or modules stand for all that runs within them."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from podscope_analyzers.grouping.contexts import CONTEXT_STATS, line_contexts
from podscope_analyzers.grouping.forest import ForestBuilder
from podscope_analyzers.grouping.groups import Groups
from podscope_analyzers.kernels.forest import find_around
from podscope_analyzers.planes import (
    SPARSE_CORE_MODULES,
    SPARSE_CORE_STEPS,
    STEPS,
    XLA_MODULES,
    device_ordinal,
    is_sparse_core,
)
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.prepared_lines import derived_line
from podscope_analyzers.xspace.columns import Int32s, Int64s


@dataclass(frozen=True)
class CoreNodes:
    """The grouping line of a core, and its nodes.

    Attributes:
        nodes: Node of every event of the line, shape (n,).
    """

    plane: PreparedPlane
    line: PreparedLine
    nodes: Int64s
    has_steps: bool
    is_tensor_core: bool


def add_core(builder: ForestBuilder, plane: PreparedPlane, types: np.ndarray) -> CoreNodes | None:
    """Makes the events of a core's grouping line nodes, which speak for all its lines.

    Args:
        builder: Gets the nodes.
        plane: Of a TensorCore or SparseCore.
        types: Type of every row of the plane's metadata.

    Returns:
        The nodes; None for a core without steps and modules.
    """
    sparse = is_sparse_core(plane.name)
    steps = _filled(plane, SPARSE_CORE_STEPS if sparse else STEPS)
    modules = SPARSE_CORE_MODULES if sparse else XLA_MODULES
    line = steps or _filled(plane, modules)
    if line is None:
        return None
    ordinal = None if sparse else device_ordinal(plane.name)
    nodes = builder.add_line(line, types, ordinal=ordinal if line.name == XLA_MODULES else None)
    columns = line.columns()
    outer_start, outer_end = columns.start_ps, columns.start_ps + columns.duration_ps
    for other in plane.lines:
        if other is line or not other.event_count:
            continue
        survey = other.survey(CONTEXT_STATS)
        if survey is not None and survey.has_none(CONTEXT_STATS):
            # Without these, an event neither produces nor consumes a context.
            continue
        found_columns = other.columns(CONTEXT_STATS & plane.stat_names)
        contexts = line_contexts(
            types[found_columns.metadata],
            found_columns,
            device_of_modules=ordinal if other.name == XLA_MODULES else None,
        )
        if len(contexts.producer_ids.events) or len(contexts.consumer_ids.events):
            found = np.empty(len(found_columns), np.int32)
            spans = found_columns.start_ps, found_columns.duration_ps
            find_around(outer_start, outer_end, *spans, True, found)
            speaks = np.where(found >= 0, nodes[np.maximum(found, 0)], -1)
            builder.add_contexts(contexts, speaks, plane, roots=False)
        # The other lines hold nearly all events of a host: one at a time is in memory.
        other.release()
    return CoreNodes(plane, line, nodes, steps is not None, not sparse)


def number_in_lock_step(groups: Groups, cores: list[CoreNodes]) -> None:
    """Where the host says nothing, the k-th step of every TensorCore is one group.

    SparseCores are of a step only where what they run was linked to it.
    """
    tensor = [core.nodes for core in cores if core.is_tensor_core]
    if tensor and not any((groups.group[nodes] >= 0).any() for nodes in tensor):
        groups.spread_in_lock_step(tensor)


def finish_core(core: CoreNodes) -> None:
    """Merges a core's steps of one group, and gives its other events their groups."""
    line = core.line
    if core.has_steps:
        line = _merged_steps(core)
        core.plane.lines = tuple(
            line if other is core.line else other for other in core.plane.lines
        )
    columns = line.columns()
    start, end = columns.start_ps, columns.start_ps + columns.duration_ps
    group = line.group_id
    if not len(group):
        return
    for other in core.plane.lines:
        if other is not line and other.event_count:
            other.find_groups(partial(_spans_around, other, start, end), group)


def _spans_around(line: PreparedLine, start: Int64s, end: Int64s) -> Int32s:
    """The span which each event of a line overlaps, -1 for none, shape (n,)."""
    inner = line.columns()
    found = np.empty(len(inner), np.int32)
    find_around(start, end, inner.start_ps, inner.duration_ps, False, found)
    return found


def _filled(plane: PreparedPlane, name: str) -> PreparedLine | None:
    """The last line of a name that has events; there should be one."""
    filled = [line for line in plane.lines if line.name == name and line.event_count]
    return filled[-1] if filled else None


def _merged_steps(core: CoreNodes) -> PreparedLine:
    line = core.line
    names = ("device_offset_ps", "device_duration_ps", "step_idle_time_ps")
    columns = line.columns(names)
    group = line.group_id
    kept = np.flatnonzero(group >= 0)
    if not len(kept):
        return line
    ids = group[kept]
    first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    heads = kept[first]
    stored = line.source_events
    last = kept[np.append(first[1:], len(kept)) - 1]
    start = columns.start_ps[heads]
    end = columns.start_ps[last] + columns.duration_ps[last]
    offset, length, idle = (columns.stat(name) for name in names)
    device = offset.present() & length.present()
    device_start = offset.ints_or_uints()
    device_end = device_start + length.ints_or_uints()
    has_device = device[heads] & device[last]
    stats = {
        "device_offset_ps": (has_device, device_start[heads]),
        "device_duration_ps": (
            has_device,
            np.maximum(device_end[last] - device_start[heads], 0),
        ),
        "step_idle_time_ps": (
            np.logical_or.reduceat(idle.present()[kept], first),
            np.add.reduceat(idle.ints_or_uints()[kept], first),
        ),
    }
    return derived_line(
        core.plane,
        name=line.name,
        line_id=line.id,
        metadata=columns.metadata[heads],
        start_ps=start,
        duration_ps=np.maximum(end - start, 0),
        group_id=ids[first],
        is_step=True,
        source=line.source,
        source_events=heads if stored is None else stored[heads],
        stats=stats,
        display_name=line.display_name,
        display_id=line.display_id,
        timestamp_ns=line.timestamp_ns,
    )
