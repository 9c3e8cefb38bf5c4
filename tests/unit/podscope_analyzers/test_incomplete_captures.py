"""Captures that lack something: reasons and nulls, never zeros that look like measurements."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.errors import XSpaceError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import MissingHost, Scope, ToolResult
from podscope_protos.v1 import xplane_pb2

TOOLS_HERE = (
    "overview_page",
    "input_pipeline_analyzer",
    "framework_op_stats",
    "kernel_stats",
    "pod_viewer",
    "inference_profile",
)


def nothing() -> xplane_pb2.XSpace:
    return xplane_pb2.XSpace(hostnames=["vm"])


def host_only() -> xplane_pb2.XSpace:
    """A host's thread with one annotation, no framework, no steps."""
    space = nothing()
    plane = space.planes.add(name="/host:CPU")
    plane.event_metadata[1].id, plane.event_metadata[1].name = 1, "work"
    plane.lines.add(id=1, name="main").events.add(metadata_id=1, duration_ps=10**9)
    return space


def _simulated(device: str, *, leave_out: Callable[[str], bool]) -> xplane_pb2.XSpace:
    raw = build_xspace(Pod(device=device, hosts=2, steps=4, seed=2), 0)
    space = xplane_pb2.XSpace.FromString(raw)
    for plane in space.planes:
        kept = [line for line in plane.lines if not leave_out(line.name)]
        del plane.lines[:]
        plane.lines.extend(kept)
    return space


def device_without_steps() -> xplane_pb2.XSpace:
    """A TPU whose operations were traced, and neither its steps nor the host's threads."""
    space = _simulated("tpu-v5e", leave_out=lambda name: name == "Steps")
    for plane in space.planes:
        if plane.name == "/host:CPU":
            del plane.lines[:]
    return space


def device_without_events() -> xplane_pb2.XSpace:
    """A TPU of which only the names of the lines are there."""
    space = _simulated("tpu-v5e", leave_out=lambda _: False)
    for plane in space.planes:
        for line in plane.lines:
            del line.events[:]
    return space


CAPTURES = {
    "nothing": nothing,
    "host only": host_only,
    "device without steps": device_without_steps,
    "device without events": device_without_events,
}


@cache
def _partial(capture: str) -> HostPartial:
    return analyze_host(CAPTURES[capture]().SerializeToString(), "h0")


@cache
def _whole(host: int) -> HostPartial:
    return analyze_host(
        build_xspace(Pod(device="tpu-v5e", hosts=3, steps=6, seed=2), host), f"h{host}"
    )


def _answer(tool: str, hosts: list[HostPartial]) -> ToolResult:
    result = run_tool(tool, hosts, Scope([host.host for host in hosts]))
    json.dumps(result.to_json(), allow_nan=False)
    json.dumps(run_tool_xprof(tool, hosts), allow_nan=False)
    return result


@pytest.mark.parametrize("tool", TOOLS_HERE)
@pytest.mark.parametrize("capture", CAPTURES)
def test_what_is_absent_has_a_reason_with_advice(tool: str, capture: str) -> None:
    result = _answer(tool, [_partial(capture)])
    assert result.reasons
    assert all(reason.message and reason.advice for reason in result.reasons)


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_overview_has_nulls_for_what_was_not_measured(capture: str) -> None:
    shown: dict[str, Any] = dict(_answer("overview_page", [_partial(capture)]).result)
    assert shown["step_time_ms"] is None
    assert shown["breakdown"] == []
    assert shown["bottleneck"]["classification"] == "unknown"
    assert shown["straggler"]["host"] is None
    assert shown["sessions_per_second"] is None
    used = shown["utilization"]
    if capture == "device without steps":
        assert used["duty_cycle_ratio"] > 0
        assert used["flops_per_second"] > 0
    else:
        # What was never looked at has no share. Peaks are told by the device, not measured.
        measured = {name: value for name, value in used.items() if "peak" not in name}
        measured.pop("mxu_utilization_ratio")
        assert set(measured.values()) == {None}


@pytest.mark.parametrize("capture", CAPTURES)
def test_tables_have_no_rows_of_zeros(capture: str) -> None:
    for tool, tables in (
        ("input_pipeline_analyzer", ("steps",)),
        ("pod_viewer", ("steps", "hosts", "slowest", "collectives")),
        ("kernel_stats", ("kernels",)),
        ("inference_profile", ("models", "latency", "requests", "batches", "request_averages")),
    ):
        result = _answer(tool, [_partial(capture)])
        assert result.status == "empty", tool
        assert {name: len(result.tables[name].rows) for name in tables} == dict.fromkeys(tables, 0)


def test_a_file_that_is_damaged_says_so_and_the_other_hosts_have_their_results() -> None:
    raw = build_xspace(Pod(device="tpu-v5e", hosts=3, steps=6, seed=2), 1)
    with pytest.raises(XSpaceError, match="not a valid XSpace"):
        analyze_host(raw[: len(raw) // 2], "h1")
    scope = Scope(["h0", "h2"], missing_hosts=[MissingHost("h1", "unreadable")])
    for tool in TOOLS_HERE:
        result = run_tool(tool, [_whole(0), _whole(2)], scope)
        missing = result.to_json()["scope"]["missing_hosts"]
        assert missing == [{"host": "h1", "reason": "unreadable"}]
    pod = run_tool("pod_viewer", [_whole(0), _whole(2)], scope)
    assert {row[0] for row in pod.tables["hosts"].rows} == {"h0", "h2"}
    assert pod.result["step_count"] == 6


@pytest.mark.parametrize("capture", CAPTURES)
def test_one_host_of_several_that_recorded_little_takes_nothing_from_the_others(
    capture: str,
) -> None:
    hosts = [_whole(0), _whole(1), _whole(2)]
    lacking = analyze_host(CAPTURES[capture]().SerializeToString(), "h9")
    alone = _answer("overview_page", hosts)
    together = _answer("overview_page", [*hosts, lacking])
    for tool in TOOLS_HERE:
        _answer(tool, [*hosts, lacking])
    if capture in ("nothing", "host only"):
        # A host without a device beside hosts with devices takes no part in the steps.
        assert together.result["step_count"] == alone.result["step_count"] == 6
        assert together.result["step_time_ms"] == alone.result["step_time_ms"]
    else:
        # A worker whose steps nobody recorded shares none with the others: said, not counted as 0.
        assert together.result["step_count"] in (0, 6)
        if not together.result["step_count"]:
            codes = {reason.code for reason in together.reasons}
            assert codes & {"no_steps", "no_common_steps"}
            assert together.result["step_time_ms"] is None


def test_these_are_tools() -> None:
    assert set(TOOLS_HERE) <= set(TOOLS)
