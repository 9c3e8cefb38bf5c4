"""Captures that lack something: reasons and nulls, never zeros that look like measurements."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.errors import XSpaceError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Cell, MissingHost, Scope, ToolResult
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
    assert shown["straggler"]["verdict"] == "too_few_steps"
    placed = shown["op_placement"]
    if capture == "device without steps":
        assert (placed["host_eager_ratio"], placed["device_ratio"]) == (None, 1.0)
    else:
        assert set(placed.values()) == {None}
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


@pytest.mark.parametrize("capture", CAPTURES)
def test_nothing_is_idle_where_nothing_was_recorded(capture: str) -> None:
    result = _answer("framework_op_stats", [_partial(capture)])
    rows = [_row(result, "with_idle", row) for row in result.tables["with_idle"].rows]
    assert all(row["total_self_time_us"] > 0 for row in rows)
    assert bool(rows) == (capture == "device without steps")
    for row in rows:
        # Shares are of the row's own place; idle time is no execution.
        assert row["host_total_self_time_ratio"] is None
        assert row["gpu_tensor_core_utilization_ratio"] is None
        assert (row["avg_time_us"] is None) == (row["type"] == "IDLE")


def test_hosts_without_steps_were_not_compared() -> None:
    result = _answer("pod_viewer", [_partial("device without steps"), _partial("nothing")])
    assert result.result["straggler"]["verdict"] == "too_few_steps"
    assert result.result["straggler"]["waiting_ratio"] is None


def test_programs_without_a_recorded_operation_have_no_duty_cycle() -> None:
    space = _simulated("tpu-v5e", leave_out=lambda _: False)
    for plane in space.planes:
        for line in plane.lines:
            if plane.name.startswith("/device:TPU:") and line.name != "XLA Modules":
                del line.events[:]
    result = _answer("overview_page", [analyze_host(space.SerializeToString(), "h0")])
    assert result.result["run_environment"]["hardware_type"] == "TPU"
    assert result.result["utilization"]["duty_cycle_ratio"] is None


def test_a_program_in_bfloat16_is_said_to_compute_in_16_bits() -> None:
    # XProf goes by `half` and `fp16` in kernels' names, and calls all of this 32 bits.
    host = analyze_host(build_xspace(Pod("gpu-h100", steps=4), 0), "h0")
    found = _answer("overview_page", [host]).result["utilization"]
    assert (found["compute_16bit_ratio"], found["compute_32bit_ratio"]) == (1.0, 0.0)


def test_the_overview_tells_whether_the_others_wait_as_the_pod_viewer_does() -> None:
    hosts = [_whole(host) for host in range(3)]
    overview, pod = (_answer(tool, hosts).result for tool in ("overview_page", "pod_viewer"))
    waiting = pod["straggler"]["waiting_ratio"]
    assert overview["straggler"]["waiting_ratio"] == waiting
    assert waiting > 0


def test_cores_that_a_chip_does_not_have_spend_no_time() -> None:
    result = _answer("input_pipeline_analyzer", [_whole(0)])
    for row in result.tables["steps"].rows:
        step = _row(result, "steps", row)
        assert step["tc_compute_ms"] > 0
        names = ("scv0_compute_ms", "sc_compute_ms", "sc_idle_ms")
        assert {step[name] for name in names} == {None}


def _gpu(leave_out: str, *, in_details: str = "") -> HostPartial:
    """A simulated GPU host that lacks a stat, or has only a text for it."""
    space = xplane_pb2.XSpace.FromString(build_xspace(Pod(device="gpu-h100", hosts=1, steps=3), 0))
    for plane in space.planes:
        left_out = {key for key, one in plane.stat_metadata.items() if one.name == leave_out}
        owners: list[Any] = [plane, *(event for line in plane.lines for event in line.events)]
        for owner in owners:
            kept = [stat for stat in owner.stats if stat.metadata_id not in left_out]
            if in_details and len(kept) < len(owner.stats):
                kept.append(
                    xplane_pb2.XStat(metadata_id=next(iter(left_out)), str_value=in_details)
                )
            del owner.stats[:]
            owner.stats.extend(kept)
    return analyze_host(space.SerializeToString(), "h0")


def test_kernels_without_launch_parameters_are_said_to_be_there() -> None:
    partial = _gpu("kernel_details")
    result = _answer("kernel_stats", [partial])
    assert result.status == "empty"
    assert [reason.code for reason in result.reasons] == ["no_launch_parameters"]
    (first, *_) = _answer("framework_op_stats", [partial]).tables["without_idle"].rows
    ops = _answer("framework_op_stats", [partial])
    assert _row(ops, "without_idle", first)["gpu_tensor_core_utilization_ratio"] is None


def test_kernels_of_an_unknown_maker_may_use_tensor_cores_or_not() -> None:
    partial = _gpu("device_vendor")
    result = _answer("kernel_stats", [partial])
    assert [reason.code for reason in result.reasons] == ["unknown_gpu_vendor"]
    rows = [_row(result, "kernels", row) for row in result.tables["kernels"].rows]
    assert {row["is_kernel_using_tensor_core"] for row in rows} == {None}
    assert {row["tensor_core_ratio"] for row in _rows(result, "operations")} == {None}
    top = _rows(_answer("overview_page", [partial]), "top_ops")
    assert {row["uses_tensor_core"] for row in top} == {None}


def test_launch_parameters_that_the_tracer_did_not_tell_are_null() -> None:
    result = _answer("kernel_stats", [_gpu("kernel_details", in_details="regs:40")])
    rows = _rows(result, "kernels")
    assert {row["registers_per_thread"] for row in rows} == {40}
    for name in ("shared_memory_bytes", "block_dim", "grid_dim", "occupancy_ratio"):
        assert {row[name] for row in rows} == {None}


def test_operations_of_unknown_work_have_no_flop_rate() -> None:
    space = xplane_pb2.XSpace.FromString(build_xspace(Pod(device="tpu-v5e", hosts=1, steps=3), 0))
    for plane in space.planes:
        for one in plane.stat_metadata.values():
            if one.name in ("flops", "model_flops", "bytes_accessed", "memory_access_breakdown"):
                one.name = f"no {one.name}"
    planes = [plane for plane in space.planes if plane.name != "/host:metadata"]
    del space.planes[:]
    space.planes.extend(planes)
    result = _answer("overview_page", [analyze_host(space.SerializeToString(), "h0")])
    top = _rows(result, "top_ops")
    assert top
    assert {row["flops_per_second"] for row in top} == {None}
    assert {row["is_tensor_core_eligible"] for row in top} == {None}


def _row(result: ToolResult, table: str, row: Sequence[Cell]) -> dict[str, Any]:
    return dict(zip((one.id for one in result.tables[table].columns), row, strict=True))


def _rows(result: ToolResult, table: str) -> list[dict[str, Any]]:
    return [_row(result, table, row) for row in result.tables[table].rows]


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
        # A worker that did not record its steps takes none from those that did.
        assert together.result["step_count"] == alone.result["step_count"] == 6
        own = _answer("overview_page", [lacking]).result["step_count"]
        lost = [(one.host, one.count) for one in together.losses if one.kind == "steps_not_traced"]
        assert lost == ([] if own == 6 else [("h9", 6 - own)])


def test_these_are_tools() -> None:
    assert set(TOOLS_HERE) <= set(TOOLS)
