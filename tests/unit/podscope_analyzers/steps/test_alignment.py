"""Steps of pods in which some hosts recorded only a part of theirs."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.pipeline import analyze_host, combine, run_tool
from podscope_analyzers.result import Loss, Scope, ToolResult
from podscope_analyzers.steps.alignment import Alignment, align_lacking
from podscope_protos.v1 import xplane_pb2

STEP = 1_000


def _aligned(
    hosts: Sequence[Sequence[int]],
    *,
    length: int = STEP,
    lengths: dict[int, int] | None = None,
    has_device: Sequence[bool] | None = None,
) -> tuple[Alignment | None, list[list[int]]]:
    """Of hosts with steps that begin at these places, in steps of the pod."""
    counts = np.array([len(steps) for steps in hosts], np.int64)
    begin = np.array([round(at * STEP) for steps in hosts for at in steps], np.int64)
    long = [(lengths or {}).get(host, length) for host, steps in enumerate(hosts) for _ in steps]
    with_device: NDArray[np.bool_] = np.array(has_device or [True] * len(hosts))
    found = align_lacking(begin, begin + np.array(long, np.int64), counts, with_device)
    if found is None:
        return None, []
    parts = np.split(found.place, np.cumsum(counts)[:-1])
    return found, [part.tolist() for part in parts]


ALL = list(range(10))


def test_hosts_that_recorded_all_steps_or_nearly_lack_none() -> None:
    assert _aligned([ALL, ALL, ALL[1:], ALL[:-2]])[0] is None
    assert _aligned([[], [], []])[0] is None


def test_a_host_that_began_late_has_the_last_steps() -> None:
    found, places = _aligned([ALL, ALL, ALL[6:], ALL])
    assert found is not None
    assert places == [ALL, ALL, [6, 7, 8, 9], ALL]
    assert (found.step_count, found.lacking.tolist()) == (10, [0, 0, 6, 0])
    assert found.takes_part.all()


def test_a_host_with_holes_has_its_steps_where_they_were() -> None:
    found, places = _aligned([ALL[::2], ALL, ALL, ALL])
    assert found is not None
    assert places[0] == [0, 2, 4, 6, 8]
    assert found.lacking.tolist() == [5, 0, 0, 0]


def test_a_host_without_steps_takes_no_part_and_takes_none_from_the_others() -> None:
    found, places = _aligned([ALL, [], ALL])
    assert found is not None
    assert places == [ALL, [], ALL]
    assert found.takes_part.tolist() == [True, False, True]
    assert found.lacking.tolist() == [0, 10, 0]


def test_steps_that_lie_beside_all_others_are_none_of_theirs() -> None:
    found, places = _aligned([ALL, ALL, ALL, [30, 31]])
    assert found is not None
    assert places[3] == [-1, -1]
    assert found.takes_part.tolist() == [True, True, True, False]


def test_a_clock_that_is_off_by_less_than_half_a_step_changes_nothing() -> None:
    (_, places) = _aligned([ALL, ALL, ALL, [3.4, 4.4]])  # type: ignore[list-item]  # in between
    assert places[3] == [3, 4]


def test_a_host_whose_steps_are_twice_as_long_lacks_none() -> None:
    assert _aligned([ALL, ALL, ALL[::2]], lengths={2: 2 * STEP})[0] is None


def test_a_host_that_is_quick_lacks_none() -> None:
    assert _aligned([ALL, ALL, ALL], lengths={2: STEP // 10})[0] is None


def test_a_host_without_a_device_beside_others_lacks_none() -> None:
    assert _aligned([ALL, ALL, []], has_device=[True, True, False])[0] is None
    found, places = _aligned([ALL, ALL[:2], []], has_device=[True, True, False])
    assert found is not None
    assert (places, found.lacking.tolist()) == ([ALL, [0, 1], []], [0, 8, 0])


POD = Pod("tpu-v5e", hosts=4, steps=12, seed=3, slow_host=2, noise=0.05)


def _space(host: int) -> xplane_pb2.XSpace:
    return xplane_pb2.XSpace.FromString(build_xspace(POD, host))


def _cut(space: xplane_pb2.XSpace, first: int, last: int) -> xplane_pb2.XSpace:
    """The capture as if its devices had recorded some of the steps alone."""
    for plane in space.planes:
        steps = [line for line in plane.lines if line.name == "Steps"]
        if not steps:
            continue
        at = sorted(steps[0].timestamp_ns * 1000 + event.offset_ps for event in steps[0].events)
        begin = at[first]
        end = at[last] if last < len(at) else 1 << 62
        for line in plane.lines:
            base = line.timestamp_ns * 1000
            kept = [event for event in line.events if begin <= base + event.offset_ps < end]
            del line.events[:]
            line.events.extend(kept)
    return space


def _viewed(spaces: Sequence[xplane_pb2.XSpace], tool: str = "pod_viewer") -> ToolResult:
    hosts = [analyze_host(s.SerializeToString(), f"h{i}") for i, s in enumerate(spaces)]
    return run_tool(tool, hosts, Scope([host.host for host in hosts]))


def _late(result: ToolResult) -> list[tuple[str, str, int, int]]:
    return [
        (late["host"], late["cause"], late["step_count"], late["slowest_steps"])
        for late in result.result["straggler"]["stragglers"]
    ]


@pytest.mark.parametrize("lacking", [0, 3])
@pytest.mark.parametrize("kept", [(0, 0), (0, 1), (8, 12)])
def test_the_late_host_is_named_whatever_another_lacks(lacking: int, kept: tuple[int, int]) -> None:
    spaces = [_space(host) for host in range(4)]
    _cut(spaces[lacking], *kept)
    found = _viewed(spaces)
    assert found.result["step_count"] == 12
    assert _late(found) == [("h2", "compute", 12, 12)]
    assert Loss(f"h{lacking}", "", "steps_not_traced", 12 - (kept[1] - kept[0])) in found.losses
    assert "events_dropped" in [advice.code for advice in found.advice]


def test_a_late_host_that_recorded_half_of_the_steps_is_named_by_these() -> None:
    spaces = [_space(host) for host in range(4)]
    _cut(spaces[2], 6, 12)
    found = _viewed(spaces)
    assert _late(found) == [("h2", "compute", 6, 6)]
    ids = [column.id for column in found.tables["slowest"].columns]
    slowest = {
        row[ids.index("step")]: row[ids.index("host")] for row in found.tables["slowest"].rows
    }
    assert [step for step in range(12) if slowest[step] == "h2"] == list(range(6, 12))
    # The overview is of all steps, with those that the host lacks.
    assert _viewed(spaces, "overview_page").result["step_count"] == 12


def test_in_xprofs_format_the_steps_are_still_those_that_all_have() -> None:
    spaces = [_space(host) for host in range(4)]
    _cut(spaces[0], 0, 4)
    hosts = [analyze_host(s.SerializeToString(), f"h{i}") for i, s in enumerate(spaces)]
    stats = combine(hosts)
    assert (len(stats.steps), len(stats.all_steps)) == (4, 12)


@pytest.mark.parametrize("kept", [(0, 0), (4, 6)])
def test_a_late_host_that_recorded_too_little_is_said_not_to_be_compared(
    kept: tuple[int, int],
) -> None:
    spaces = [_space(host) for host in range(4)]
    _cut(spaces[2], *kept)
    found = _viewed(spaces)
    assert found.result["straggler"]["verdict"] == "even"
    (reason,) = found.reasons
    assert reason.code == "hosts_not_compared"
    assert reason.message.startswith("1 of 4 hosts is not compared")
    assert reason.message.endswith("with fewer than 3 of the 12 steps recorded: h2.")


def test_a_host_whose_devices_were_not_traced_is_said_not_to_be_compared() -> None:
    spaces = [_space(host) for host in range(4)]
    for plane in [plane for plane in spaces[0].planes if plane.name.startswith("/device:")]:
        spaces[0].planes.remove(plane)
    found = _viewed(spaces)
    assert _late(found) == [("h2", "compute", 12, 12)]
    assert [reason.message.rpartition(" ")[2] for reason in found.reasons] == ["h0."]


def test_whole_hosts_are_all_compared() -> None:
    assert _viewed([_space(host) for host in range(4)]).reasons == ()
