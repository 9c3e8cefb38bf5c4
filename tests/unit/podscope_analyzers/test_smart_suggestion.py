"""The rules that XProf has as suggestions, as one tool."""

from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.advice.rules.suggestions import SUGGESTIONS
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope
from podscope_protos.v1 import xplane_pb2

STEP_PS = 10**9
STEPS = 5


def waiting(share: float, name: str) -> xplane_pb2.XSpace:
    """A TPU whose steps spend a share of them in a barrier between cores."""
    space = xplane_pb2.XSpace(hostnames=[name])
    plane = space.planes.add(id=1, name="/device:TPU:0")
    stats = ("group_id", "device_duration_ps", "device_offset_ps")
    for key, stat in enumerate(stats, start=1):
        plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, stat
    for key in range(STEPS):
        plane.event_metadata[key + 10].id = key + 10
        plane.event_metadata[key + 10].name = str(key)
    for key, event_name in (
        (1, "jit_f(1)"),
        (2, "%fusion.1 = f32[] fusion()"),
        (3, "barrier-cores"),
    ):
        plane.event_metadata[key].id, plane.event_metadata[key].name = key, event_name
    lines = {
        line: plane.lines.add(id=number, name=line)
        for number, line in enumerate(("Steps", "XLA Modules", "XLA Ops"), start=1)
    }

    def add(line: str, key: int, step: int, begin_ps: int, duration_ps: int) -> None:
        event = lines[line].events.add(metadata_id=key, offset_ps=begin_ps, duration_ps=duration_ps)
        event.stats.add(metadata_id=1, int64_value=step)
        event.stats.add(metadata_id=2, uint64_value=duration_ps)
        event.stats.add(metadata_id=3, uint64_value=begin_ps)

    waited = int(share * STEP_PS)
    for step in range(STEPS):
        begin = step * STEP_PS
        add("Steps", 10 + step, step, begin, STEP_PS)
        add("XLA Modules", 1, step, begin, STEP_PS)
        add("XLA Ops", 2, step, begin, STEP_PS - waited)
        add("XLA Ops", 3, step, begin + STEP_PS - waited, waited)
    return space


def analyzed(*shares: float) -> list[HostPartial]:
    return [
        analyze_host(waiting(share, f"vm{i}").SerializeToString(), f"h{i}")
        for i, share in enumerate(shares)
    ]


def rules(partials: list[HostPartial]) -> dict[str, list[Any]]:
    found = run_tool("smart_suggestion", partials, Scope([one.host for one in partials]))
    return {str(row[0]): [*row[1:]] for row in found.tables["rules"].rows}


def test_every_rule_has_a_row_and_those_that_apply_are_first() -> None:
    partials = analyzed(0.3)
    found = run_tool("smart_suggestion", partials, Scope(["h0"]))
    assert {row[0] for row in found.tables["rules"].rows} == set(SUGGESTIONS.values())
    code, state, severity, message, action = rules(partials)["BarrierCores"]
    assert (code, state, severity) == ("barrier_cores", "applies", "medium")
    assert "30.0%" in message
    assert action
    states = [str(row[2]) for row in found.tables["rules"].rows]
    assert states == sorted(states)
    assert found.result["applying"] == states.count("applies") == len(found.advice)
    assert {advice.code for advice in found.advice} <= set(SUGGESTIONS)


def test_a_rule_that_does_not_apply_says_so() -> None:
    code, state, severity, message, _ = rules(analyzed(0.05))["BarrierCores"]
    assert (code, state) == ("barrier_cores", "does_not_apply")
    assert severity is message is None


def test_without_anything_to_judge_no_rule_is_measured() -> None:
    partial = analyze_host(xplane_pb2.XSpace(hostnames=["vm"]).SerializeToString(), "h0")
    found = run_tool("smart_suggestion", [partial], Scope(["h0"]))
    states = {str(row[0]): row[2] for row in found.tables["rules"].rows}
    assert states["ComputeBound"] == states["CollectiveBound"] == "not_measured"


def test_a_job_that_waits_for_its_input_is_told() -> None:
    pod = Pod("tpu-v5e", 2, 8, 1, input_bound=0.5)
    partials = [analyze_host(build_xspace(pod, host), f"h{host}") for host in range(2)]
    found = rules(partials)
    states = {name: row[1] for name, row in found.items()}
    bound = ("DataTransferBound", "HostProcessingBound", "InputBound")
    assert [states[name] for name in bound].count("applies") == 1


@pytest.mark.parametrize(
    ("shares", "mean", "named"),
    [
        ([0.0999], None, []),
        ([0.1], "10.0%", []),
        ([0.1, 0.3, 0.5], "30.0%", []),
        ([0.02, 0.02, 0.02, 0.9], "24.0%", ["<b>vm3</b>: <b>90.0%</b>"]),
        ([0.5, 0.5, 0.5, 0.1, 0.5], "42.0%", ["<b>vm3</b>: <b>10.0%</b>"]),
    ],
)
def test_the_references_answer_knows_barriers_alone(
    shares: list[float], mean: str | None, named: list[str]
) -> None:
    """The shares and hosts are what XProf 2.24.2 says of these captures."""
    found: Any = run_tool_xprof("smart_suggestion", analyzed(*shares))
    if mean is None:
        assert found == {"suggestions": []}
        return
    (one,) = found["suggestions"]
    assert one["ruleName"] == "BarrierCoresRule"
    assert mean in one["suggestionText"]
    assert one["suggestionText"].count("<li>Host ") == len(named)
    assert all(text in one["suggestionText"] for text in named)


def test_a_hosts_name_is_no_markup_in_the_references_text() -> None:
    names = ["vm0", "vm1", "vm2", '<i>"&']
    hosts = [
        analyze_host(waiting(share, name).SerializeToString(), f"h{i}")
        for i, (share, name) in enumerate(zip([0.02, 0.02, 0.02, 0.9], names, strict=True))
    ]
    found: Any = run_tool_xprof("smart_suggestion", hosts)
    assert "<b>&lt;i&gt;&quot;&amp;</b>" in found["suggestions"][0]["suggestionText"]
