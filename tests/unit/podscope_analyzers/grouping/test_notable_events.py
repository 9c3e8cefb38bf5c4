"""Working on the events that say something gives what working on all of them gives."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from podscope_analyzers import XSpace, open_xspace
from podscope_analyzers.annotations import host_annotations
from podscope_analyzers.grouping.groups import Groups
from podscope_analyzers.op_metrics.host_databases import host_op_database
from podscope_analyzers.prepare import PreparedSpace, prepare
from podscope_analyzers.prepared import PreparedPlane
from podscope_analyzers.step_activity import step_activity
from podscope_analyzers.steps import host_step_database
from podscope_analyzers.steps.intersection import step_spans
from podscope_analyzers.xspace import Limits
from podscope_analyzers.xspace.columns import Int64s
from podscope_analyzers.xspace.wire import PortableWire
from podscope_protos.v1 import xplane_pb2

FRAMES = ("$model.py:1 call", "$builtins len", "$model.py:7 loss", "$nccl.py:2 reduce")
NAMED = (
    "train",
    "PjitFunction(step)",
    "MatMul:MatMul",
    "EagerExecute",
    "Iterator::Map",
    "IteratorGetNextOp::DoCompute",
    "MemcpyHtoD",
    "TraceContext",
    "ExecutorState::Process",
    "load_batch",
    "all-reduce-start.1",
)
NAMES = FRAMES + NAMED
STATS = ("_r", "_pt", "_p", "_ct", "_c", "_a", "step_num", "iter_num", "id", "is_func", "hlo_op")

stats = st.dictionaries(st.sampled_from(STATS[:-1]), st.integers(0, 2), max_size=3)
# Mostly calls, at times that meet, some of them without duration.
event = st.tuples(
    st.one_of(st.integers(0, 2), st.integers(0, 2), st.integers(0, len(NAMES) - 1)),
    st.integers(0, 12),
    st.sampled_from((0, 0, 1, 2, 3, 5, 8, 13)),
    st.one_of(st.just({}), st.just({}), stats),
)
lines = st.lists(st.lists(event, max_size=24), min_size=1, max_size=3)


def raw_space(drawn: list[list[tuple[int, int, int, dict[str, int]]]], *, is_sorted: bool) -> bytes:
    """A host's XSpace of some lines of (name, start, duration, stats)."""
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/host:CPU")
    for number, text in enumerate(NAMES, 1):
        plane.event_metadata[number].id = number
        plane.event_metadata[number].name = text
    for number, text in enumerate(STATS, 1):
        plane.stat_metadata[number].id = number
        plane.stat_metadata[number].name = text
    for at, events in enumerate(drawn):
        line = plane.lines.add(id=at + 1, name=f"thread {at}")
        ordered = sorted(events, key=lambda e: (e[1], -e[2])) if is_sorted else events
        for name, start, duration, own in ordered:
            one = line.events.add(metadata_id=name + 1)
            one.offset_ps, one.duration_ps = start * 1000, duration * 1000
            for stat, value in own.items():
                one.stats.add(metadata_id=STATS.index(stat) + 1, int64_value=value)
    return space.SerializeToString()


def plain(value: Any) -> Any:
    """A result as plain values, to compare."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def any_spans(host: PreparedPlane) -> tuple[Int64s, Int64s]:
    """Start and end of the named events, as if all of these marked steps."""
    spans = {
        (int(columns.start_ps[at]), int(columns.start_ps[at] + columns.duration_ps[at]))
        for columns in (line.source.columns() for line in host.lines if line.source)
        for at in np.flatnonzero(columns.metadata >= len(FRAMES))
    }
    begin, end = np.array(sorted(spans), np.int64).reshape(-1, 2).T
    return begin, end


def told(space: PreparedSpace) -> dict[str, Any]:
    """What is read of a host's steps and operations, before the groups of all its events."""
    host = space.host_plane
    assert host is not None
    steps = host_step_database(space)
    found: dict[str, Any] = {
        "steps": plain(steps),
        "activity": plain(step_activity(space, *step_spans(steps))),
        "activity of any spans": plain(step_activity(space, *any_spans(host))),
        "operations": plain(host_op_database(space).to_state()),
        "annotations": plain(host_annotations(space)),
    }
    for at, line in enumerate(host.lines):
        codes, names = line.step_names()
        found[f"groups {at}"] = line.group_id.tolist()
        found[f"eager {at}"] = line.is_eager.tolist()
        found[f"names {at}"] = [names[code] if code >= 0 else None for code in codes]
    if isinstance(space.groups, Groups):
        found["relations"] = space.groups.relations()
        found["group names"] = [space.groups.name(g) for g in range(len(space.groups))]
    return found


@pytest.mark.parametrize("is_sorted", [True, False])
@given(drawn=lines)
@example(drawn=[[(3, 0, 10, {"_r": 1}), (0, 0, 10, {}), (1, 1, 8, {}), (2, 5, 0, {})]])
@example(drawn=[[(0, 0, 0, {}), (4, 0, 1, {})]])
@example(
    drawn=[
        [
            (4, 0, 12, {"step_num": 1}),
            (0, 1, 10, {}),
            (1, 2, 8, {}),
            (3, 3, 2, {"_r": 1, "_ct": 1, "_c": 1}),
        ],
        [(4, 0, 1, {"step_num": 2, "_pt": 1, "_p": 1})],
    ]
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_notable_events_say_what_all_events_say(
    drawn: list[list[tuple[int, int, int, dict[str, int]]]], is_sorted: bool
) -> None:
    raw = raw_space(drawn, is_sorted=is_sorted)
    quick = prepare(open_xspace(raw))
    # Without compiled kernels all events are worked on.
    slow = prepare(XSpace(PortableWire(memoryview(raw)), len(raw), Limits()))

    for space, is_sifted in ((quick, True), (slow, False)):
        assert space.host_plane is not None
        for line in space.host_plane.lines:
            assert (line.notable is not None) == (is_sifted and line.event_count > 0)
    assert told(quick) == told(slow)


def test_only_events_with_a_name_or_stat_of_note_are_kept() -> None:
    calls: list[tuple[int, int, int, dict[str, int]]] = [(0, start, 1, {}) for start in range(20)]
    raw = raw_space([[(3, 0, 30, {"_r": 1}), *calls, (1, 25, 1, {"_c": 1})]], is_sorted=True)
    space = prepare(open_xspace(raw))

    assert space.host_plane is not None
    notable = space.host_plane.lines[0].notable

    assert notable is not None
    assert notable.events.tolist() == [0, 21]
    assert notable.parent.tolist() == [-1, 0]
    assert space.host_plane.lines[0].group_id.tolist() == [0] * 22
