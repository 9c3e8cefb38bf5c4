"""Steps as the host's threads show them."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels import nest
from podscope_analyzers.kernels.forest import spread_below
from podscope_analyzers.op_names import OpCategory, is_infeed_enqueue, parse_op_name
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.steps.database import Bools, Int64s
from podscope_analyzers.steps.event_types import EventType
from podscope_analyzers.steps.events import HOST_MARKER, StepEvents, unite
from podscope_analyzers.steps.outermost import CONTAINER, MARKER, outermost_events
from podscope_analyzers.xspace import Columns

_MARKERS: Final = ("train", "test", "TraceContext")
_CONTAINERS: Final = ("EagerExecute", "EagerLocalExecute", "EagerKernelExecute", "FunctionRun")
_STATS: Final = frozenset({"correlation_id", "_ipl_stage_name", "_pt", "_p", "_ct", "_c"})

# What a name alone says.
_MARKER, _CONTAINER, _TO_DEVICE, _WITHIN_HOST, _EXECUTOR, _GET_NEXT, _PLAIN = range(7)


# What that is on a host without devices.
_TYPES_OF_KINDS: Final = np.array(
    [
        MARKER,
        CONTAINER,
        EventType.HOST_TO_DEVICE,
        EventType.HOST_TO_HOST,
        EventType.HOST_COMPUTE,
        EventType.HOST_WAIT_INPUT,
        EventType.HOST_COMPUTE,
    ],
    np.uint8,
)


def _name_kinds(names: Sequence[str]) -> NDArray[np.uint8]:
    """What every name of the plane's event metadata says, shape (m,)."""
    return np.array([_name_kind(name) for name in names], np.uint8)


def _name_kind(name: str) -> int:
    if name.startswith(_MARKERS) and "/" not in name:
        return _MARKER
    if name.startswith(_CONTAINERS):
        return _CONTAINER
    op = parse_op_name(name)
    if op.category == OpCategory.MEMCPY_HOST_TO_DEVICE or is_infeed_enqueue(op):
        return _TO_DEVICE
    if op.category == OpCategory.MEMCPY_HOST_TO_HOST:
        return _WITHIN_HOST
    start = name[:22].lower()
    if start.startswith("executorstate::process"):
        return _EXECUTOR
    return _GET_NEXT if start.startswith("iteratorgetnext") else _PLAIN


def host_step_events(
    plane: PreparedPlane, device_steps: Int64s | None = None, *, for_times: bool = False
) -> StepEvents:
    """Markers and events of the steps on the host's threads.

    Args:
        plane: The host's.
        for_times: Leave out events that add nothing to the time of any step.
        device_steps: Steps that the devices have; none but these are looked for then, and
            kernel launches are told from computation.
    """
    kinds = _name_kinds(plane.event_metadata.names)
    stats = _STATS & plane.stat_names
    has_stages = "_ipl_stage_name" in stats
    produced = _produced(plane) if has_stages and {"_ct", "_c"} <= stats else None
    if not has_stages:
        stats &= {"correlation_id"}
    if device_steps is None:
        stats -= {"correlation_id"}

    def read_all(line: PreparedLine) -> StepEvents:
        return _line_events(line, kinds, line.columns(stats), produced, device_steps)

    if for_times and device_steps is None and not has_stages:
        found = outermost_events(plane, _TYPES_OF_KINDS[kinds], read_all)
        if found is not None:
            return found
    return unite([read_all(line) for line in plane.lines if line.event_count])


def _line_events(
    line: PreparedLine,
    kinds: NDArray[np.uint8],
    columns: Columns,
    produced: NDArray[np.void] | None,
    device_steps: Int64s | None,
) -> StepEvents:
    group = line.group_id
    wanted = group >= 0
    if device_steps is not None:
        wanted &= np.isin(group, device_steps)
    if not wanted.any():
        return StepEvents()
    kind = kinds[columns.metadata]
    codes, table = line.step_names()
    titled = np.array([bool(name) for name in table] + [False], np.bool_)[codes]
    is_marker = wanted & ((kind == _MARKER) | titled)
    is_event = wanted & ~is_marker & (kind != _CONTAINER)
    types = np.full(len(columns), EventType.HOST_COMPUTE, np.uint8)
    types[_root_stages(columns, produced) | (kind == _GET_NEXT)] = EventType.HOST_WAIT_INPUT
    if device_steps is not None:
        launches = kind == _EXECUTOR
        if "correlation_id" in columns.stat_names:
            stat = columns.stat("correlation_id")
            launches |= stat.present() & (stat.ints() >= 0)
        types[launches] = EventType.HOST_PREPARE
    types[kind == _WITHIN_HOST] = EventType.HOST_TO_HOST
    types[kind == _TO_DEVICE] = EventType.HOST_TO_DEVICE
    names: dict[int, str] = {}
    for event in np.flatnonzero(wanted & titled):
        # The last name that a line gives is the one that stays.
        names[int(group[event])] = table[int(codes[event])]
    start = columns.start_ps
    return StepEvents(
        marker_step=group[is_marker],
        marker_core=np.full(int(is_marker.sum()), HOST_MARKER, np.int64),
        marker_begin_ps=start[is_marker],
        marker_duration_ps=columns.duration_ps[is_marker],
        event_step=group[is_event],
        event_type=types[is_event],
        event_begin_ps=start[is_event],
        event_end_ps=start[is_event] + columns.duration_ps[is_event],
        names=names,
    )


def _root_stages(columns: Columns, produced: NDArray[np.void] | None) -> Bools:
    """Stages of the input pipeline that no other stage waits for, shape (n,)."""
    none = np.zeros(len(columns), np.bool_)
    if "_ipl_stage_name" not in columns.stat_names:
        return none
    codes, table = columns.stat("_ipl_stage_name").strings()
    stage = np.array([bool(name) for name in table] + [False], np.bool_)[codes]
    if not stage.any():
        return none
    called = none
    if produced is not None and len(produced):
        called = np.isin(_pairs(columns, "_ct", "_c"), produced)
        called &= columns.stat("_ct").present() & columns.stat("_c").present()
    parent = nest(columns.start_ps, columns.duration_ps).parent
    below = np.empty(len(columns), np.bool_)
    spread_below(parent, np.ascontiguousarray(called), stage, below)
    return stage & ~below


def _produced(plane: PreparedPlane) -> NDArray[np.void] | None:
    """The contexts that the plane's events produce."""
    if not {"_pt", "_p"} <= plane.stat_names:
        return None
    found = []
    for line in plane.lines:
        columns = line.columns(("_pt", "_p"))
        present = columns.stat("_pt").present() & columns.stat("_p").present()
        if present.any():
            found.append(_pairs(columns, "_pt", "_p")[present])
    return distinct(np.concatenate(found)) if found else None


def _pairs(columns: Columns, kind: str, number: str) -> NDArray[np.void]:
    """Type and id of every event's context as one value, shape (n,)."""
    pairs = np.empty(len(columns), [("kind", np.int64), ("number", np.int64)])
    pairs["kind"] = columns.stat(kind).ints_or_uints()
    pairs["number"] = columns.stat(number).ints_or_uints()
    return pairs
