"""Allocator events with known peaks, and an independent account of random ones."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podscope_agent.simulator import Pod, ServedHost, build_xspace, planted_truth
from podscope_analyzers.allocations import type_name
from podscope_analyzers.allocator_profile import AllocatorProfile
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope, ToolResult
from podscope_protos.v1 import xplane_pb2

Stats = dict[str, int | float | str]


def host(events: list[tuple[bool, int, Stats]]) -> HostPartial:
    """A host with allocator events at picoseconds from their line's start."""
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name="/host:CPU")
    line = plane.lines.add(id=1, name="python", timestamp_ns=1000)
    plane.event_metadata[1].CopyFrom(xplane_pb2.XEventMetadata(id=1, name="MemoryAllocation"))
    plane.event_metadata[2].CopyFrom(xplane_pb2.XEventMetadata(id=2, name="MemoryDeallocation"))
    ids: dict[str, int] = {}
    for is_allocation, offset_ps, stats in events:
        event = line.events.add(metadata_id=1 if is_allocation else 2, offset_ps=offset_ps)
        for name, value in stats.items():
            stat = event.stats.add(metadata_id=ids.setdefault(name, len(ids) + 1))
            if isinstance(value, str):
                stat.str_value = value
            elif isinstance(value, float):
                stat.double_value = value
            else:
                stat.int64_value = value
    for name, number in ids.items():
        plane.stat_metadata[number].CopyFrom(xplane_pb2.XStatMetadata(id=number, name=name))
    return analyze_host(space.SerializeToString(), "h0")


def memory(reserved: int, allocated: int, available: int, **stats: Any) -> Stats:
    return {
        "allocator_name": "GPU_0_bfc",
        "bytes_reserved": reserved,
        "bytes_allocated": allocated,
        "bytes_available": available,
        "fragmentation": 0.25,
        **stats,
    }


A = memory(
    2000, 3000, 5000, peak_bytes_in_use=8500, requested_bytes=200, allocation_bytes=256,
    addr=222333, tf_op="foo/bar", region_type="output", data_type=1, shape="[3,3,512,512]",
)  # fmt: skip
B = memory(
    2000, 2744, 5256, peak_bytes_in_use=8500, requested_bytes=200, allocation_bytes=256, addr=222333
)
C = memory(
    2000, 5000, 3000, peak_bytes_in_use=9500, requested_bytes=300, allocation_bytes=300,
    addr=345678, tf_op="mul_grad/Sum", region_type="temp", data_type=1, shape="[1,2]",
)  # fmt: skip


def profile(partial: HostPartial, **parameters: str) -> ToolResult:
    return run_tool("memory_profile", [partial], Scope(["h0"]), parameters)


def records(result: ToolResult, table: str) -> list[dict[str, Any]]:
    found = result.tables[table]
    names = [column.id for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows]


@pytest.fixture(scope="module")
def three() -> HostPartial:
    return host([(True, 40000, A), (False, 50000, B), (True, 70000, C)])


@pytest.mark.case("2.P1", "2.P2", "2.P3", "2.P4", "2.P5", "2.P6")
def test_the_reference_answer_of_a_hand_made_host(three: HostPartial) -> None:
    found: Any = run_tool_xprof("memory_profile", [three])
    assert (found["memoryIds"], found["numHosts"], found["version"]) == (["GPU_0_bfc"], 1, 1)
    one = found["memoryProfilePerAllocator"]["GPU_0_bfc"]
    summary = one["profileSummary"]
    assert summary["peakBytesUsageLifetime"] == "9500"
    assert (summary["peakStats"]["peakBytesInUse"], summary["peakStatsTimePs"]) == ("7000", "70000")
    assert summary["memoryCapacity"] == "10000"
    assert len(one["sampledTimelineSnapshots"]) == 3
    freed = one["sampledTimelineSnapshots"][1]["activityMetadata"]
    assert (freed["memoryActivity"], freed["tfOpName"]) == ("DEALLOCATION", "foo/bar")
    (snapshot,) = one["memoryProfileSnapshots"]
    assert snapshot["activityMetadata"]["tfOpName"] == "mul_grad/Sum"
    assert [row["snapshotIndex"] for row in one["activeAllocations"]] == ["-1", "-2", "0"]
    special = [(row["tfOpName"], row["allocationBytes"]) for row in one["specialAllocations"]]
    assert special == [("unused preallocated device memory", "4700"), ("stack", "2000")]


def test_our_own_answer_of_the_same_host(three: HostPartial) -> None:
    result = profile(three)
    (summary,) = records(result, "allocators")
    assert (summary["allocations"], summary["deallocations"]) == (2, 1)
    assert (summary["peak_bytes"], summary["capacity_bytes"]) == (7000, 10000)
    assert summary["lifetime_peak_bytes"] == 9500
    assert summary["peak_fragmentation_ratio"] == 0.25
    rows = records(result, "peak_allocations")
    assert sum(row["total_bytes"] for row in rows) == summary["peak_bytes"]
    assert [row["is_recorded"] for row in rows] == [False, False, True]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (0.5, 0.5),
    ],
)
def test_an_allocator_of_nothing_has_no_fragmentation(stored: float, shown: float | str) -> None:
    # TensorFlow's allocators of a host divide by a limit that they do not have.
    partial = host([(True, 40000, {**A, "fragmentation": stored})])
    found: Any = run_tool_xprof("memory_profile", [partial])
    one = found["memoryProfilePerAllocator"]["GPU_0_bfc"]
    assert one["profileSummary"]["peakStats"]["fragmentation"] == shown
    json.dumps(found, allow_nan=False)
    (summary,) = records(profile(partial), "allocators")
    assert summary["peak_fragmentation_ratio"] == (stored if math.isfinite(stored) else None)
    json.dumps(profile(partial).to_json(), allow_nan=False)


def test_the_timeline_has_least_and_most_at_any_zoom(three: HostPartial) -> None:
    (all_of_it,) = records(profile(three, points="1"), "timeline")
    assert (all_of_it["min_used_bytes"], all_of_it["max_used_bytes"]) == (4744, 7000)
    assert (all_of_it["events"], all_of_it["op_name"]) == (3, "mul_grad/Sum")
    rows = records(profile(three, points="3"), "timeline")
    assert [row["events"] for row in rows] == [1, 1, 1]
    (freed,) = records(profile(three, start_ms="0.001045", end_ms="0.001055"), "timeline")
    assert (freed["max_used_bytes"], freed["op_name"]) == (4744, "foo/bar")


def test_a_moment_is_broken_down_as_the_peak_is(three: HostPartial) -> None:
    assert records(profile(three), "moment") == []
    assert records(profile(three, at_ms="0.00103"), "moment") == []
    # The first event is at 1,040 ns, the second, which frees what it made, at 1,050.
    (first,) = records(profile(three, at_ms="0.001049"), "moment")
    assert (first["time_ms"], first["used_bytes"]) == (0.00104, 5000)
    first_rows = records(profile(three, at_ms="0.001049"), "moment_allocations")
    assert {row["op_name"]: row["total_bytes"] for row in first_rows if row["is_recorded"]} == {
        "foo/bar": 256
    }
    assert sum(row["total_bytes"] for row in first_rows) == first["used_bytes"]
    (freed,) = records(profile(three, at_ms="0.00105"), "moment")
    assert (freed["time_ms"], freed["used_bytes"]) == (0.00105, 4744)
    rows = records(profile(three, at_ms="0.00105"), "moment_allocations")
    assert [row["is_recorded"] for row in rows] == [False, False]
    last = profile(three, at_ms="5")
    assert records(last, "moment_allocations") == records(last, "peak_allocations")


def test_the_last_stat_that_names_an_allocator_counts() -> None:
    first: Stats = {"allocator_name": "cpu", "index_on_host": 3, "bytes_allocated": 1}
    second: Stats = {"device_ordinal": 4, "bytes_allocated": 1}
    found: Any = run_tool_xprof("memory_profile", [host([(True, 0, first), (True, 1, second)])])
    assert found["memoryIds"] == ["3", "4"]


def test_what_names_the_allocator_last_may_differ_from_event_to_event() -> None:
    first: Stats = {"allocator_name": "cpu", "index_on_host": 3, "bytes_allocated": 1}
    second: Stats = {"index_on_host": 3, "allocator_name": "cpu", "bytes_allocated": 1}
    found: Any = run_tool_xprof("memory_profile", [host([(True, 0, first), (True, 1, second)])])
    assert found["memoryIds"] == ["3", "cpu"]


def test_the_stack_is_the_second_special_row_however_large_it_is() -> None:
    partial = host([(True, 40000, memory(5000, 1000, 0, allocation_bytes=10, addr=1))])
    found: Any = run_tool_xprof("memory_profile", [partial])
    one = found["memoryProfilePerAllocator"]["GPU_0_bfc"]
    special = [(row["tfOpName"], row["allocationBytes"]) for row in one["specialAllocations"]]
    assert special == [("unused preallocated device memory", "990"), ("stack", "5000")]
    # The rows are by size: the stack is the largest.
    assert [row["specialIndex"] for row in one["activeAllocations"]] == ["1", "0", "-1"]
    assert [row["snapshotIndex"] for row in one["activeAllocations"]] == ["-2", "-1", "0"]


def test_of_an_allocator_that_never_says_what_is_free_the_capacity_is_unknown() -> None:
    # As PyTorch's of a host's memory: it is neither full nor has it a limit.
    stats: Stats = {"allocator_name": "cpu", "bytes_allocated": 4000, "allocation_bytes": 4000}
    partial = host([(True, 40000, {**stats, "addr": 1}), (True, 50000, {**stats, "addr": 2})])
    (summary,) = records(profile(partial), "allocators")
    assert summary["peak_bytes"] == 4000
    assert (summary["capacity_bytes"], summary["peak_free_bytes"]) == (None, None)
    (moment,) = records(profile(partial, at_ms="0.001045"), "moment")
    assert moment["free_bytes"] is None
    assert {row["min_free_bytes"] for row in records(profile(partial), "timeline")} == {None}
    advice = run_tool("overview_page", [partial], Scope(["h0"])).advice
    assert "memory_near_limit" not in {one.code for one in advice}
    found: Any = run_tool_xprof("memory_profile", [partial])
    told = found["memoryProfilePerAllocator"]["cpu"]["profileSummary"]
    assert told["memoryCapacity"] == "4000"


def test_of_very_many_runs_of_programs_the_first_are_listed() -> None:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name="/host:CPU")
    plane.event_metadata[1].CopyFrom(xplane_pb2.XEventMetadata(id=1, name="MemoryAllocation"))
    line = plane.lines.add(id=1, name="python")
    for offset_ps in (0, 20_000_000):
        line.events.add(metadata_id=1, offset_ps=offset_ps)
    device = space.planes.add(name="/device:TPU:0")
    device.event_metadata[1].CopyFrom(xplane_pb2.XEventMetadata(id=1, name="jit_f(1)"))
    runs = device.lines.add(id=1, name="XLA Modules")
    for number in range(5003):
        runs.events.add(metadata_id=1, offset_ps=number * 1000, duration_ps=10)
    partial = analyze_host(space.SerializeToString(), "h0")
    found = profile(partial)
    assert len(found.tables["modules"].rows) == 5000
    assert [reason.code for reason in found.reasons] == ["rows_left_out"]
    assert found.reasons[0].message.startswith("3 ")
    later = profile(partial, start_ms="0.0049")
    assert len(later.tables["modules"].rows) == 103
    assert later.reasons == []


def test_equal_allocations_at_the_peak_are_one_row() -> None:
    same = {"tf_op": "x", "allocation_bytes": 10, "requested_bytes": 9}
    events = [(True, i, memory(0, 10 * (i + 1), 90, addr=i, **same)) for i in range(4)]
    (row,) = records(profile(host(events)), "peak_allocations")
    assert (row["occurrences"], row["total_bytes"], row["op_name"]) == (4, 40, "x")


def test_a_long_timeline_is_sampled_where_most_is_in_use() -> None:
    events = [(True, i, memory(0, i % 7, 0, addr=i)) for i in range(2500)]
    found: Any = run_tool_xprof("memory_profile", [host(events)])
    sampled = found["memoryProfilePerAllocator"]["GPU_0_bfc"]["sampledTimelineSnapshots"]
    # 500 boxes of two events, then 500 of three; the first of the highest in each.
    boxes = [range(2 * i, 2 * i + 2) for i in range(500)]
    boxes += [range(1000 + 3 * i, 1003 + 3 * i) for i in range(500)]
    expected = [str(max(box, key=lambda i: (i % 7, -i))) for box in boxes]
    assert [one["timeOffsetPs"] for one in sampled] == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), min_size=1, max_size=40))
@settings(max_examples=25, deadline=None)
def test_the_rows_of_the_peak_add_up_to_it(moves: list[tuple[int, int]]) -> None:
    live: dict[int, int] = {}
    events, heaps = [], []
    for at, (address, size) in enumerate(moves):
        is_allocation = address not in live
        if is_allocation:
            live[address] = size
        freed = live[address] if is_allocation else live.pop(address)
        heaps.append(sum(live.values()))
        stats = memory(0, heaps[-1], 1000, addr=address, allocation_bytes=freed)
        events.append((is_allocation, at, stats))
    result = profile(host(events))
    (summary,) = records(result, "allocators")
    assert summary["peak_bytes"] == max(heaps)
    rows = records(result, "peak_allocations")
    assert all(row["is_recorded"] for row in rows)
    assert sum(row["total_bytes"] for row in rows) == max(heaps)


def test_the_answer_is_the_same_from_a_stored_part() -> None:
    partial = analyze_host(build_xspace(Pod(device="tpu-v5e", hosts=1, steps=3, seed=1), 0), "h0")
    read = HostPartial.from_bytes(partial.to_bytes())
    assert profile(read).status == "empty"
    read = read.with_part("allocations", partial.part_to_bytes("allocations"))
    assert profile(read).to_json() == profile(partial).to_json()
    assert profile(read).tables["modules"].rows


def test_our_breakdown_counts_what_earlier_steps_left() -> None:
    """The reference takes what earlier steps allocated for memory of no event."""
    events = [(True, i, memory(0, 10 * (i + 1), 90, addr=i, allocation_bytes=10)) for i in range(3)]
    partial = host(events)
    kept = dict(partial.allocations.columns) if partial.allocations else {}
    kept["step"][:] = [1, 1, 2]
    (row,) = records(profile(partial), "peak_allocations")
    assert (row["occurrences"], row["total_bytes"], row["is_recorded"]) == (3, 30, True)
    found: Any = run_tool_xprof("memory_profile", [partial])
    one = found["memoryProfilePerAllocator"]["GPU_0_bfc"]
    assert [special["allocationBytes"] for special in one["specialAllocations"]] == ["20"]


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 4), st.integers(1, 50)), min_size=1, max_size=60
    )
)
@settings(max_examples=30, deadline=None)
def test_deallocations_find_their_allocation_as_a_slow_account_does(
    moves: list[tuple[bool, int, int]],
) -> None:
    events = [
        (is_allocation, at, memory(0, 1, 1, addr=address, allocation_bytes=size, tf_op=f"op{at}"))
        for at, (is_allocation, address, size) in enumerate(moves)
    ]
    one = AllocatorProfile(host(events).allocations or pytest.fail("none"), "GPU_0_bfc", "start_ps")
    first: dict[int, int] = {}
    latest: dict[int, int] = {}
    for at, (is_allocation, address, _) in enumerate(moves):
        if is_allocation:
            first.setdefault(address, at)
            latest[address] = at
        else:
            assert one.freed[at] == first.pop(address, -1)
            latest.pop(address, None)
        assert one.live_at(at).tolist() == sorted(latest.values())


def test_an_allocator_can_be_chosen(three: HostPartial) -> None:
    assert profile(three, allocator="GPU_0_bfc").to_json() == profile(three).to_json()


@pytest.mark.parametrize("points", ["1", "7", "100", "5000"])
def test_no_zoom_loses_an_extreme(points: str) -> None:
    values = [(i * 7919) % 1000 for i in range(3000)]
    values[1234], values[2345] = 5000, 0
    partial = host([(True, 10 * i, memory(0, v, 9000 - v, addr=i)) for i, v in enumerate(values)])
    rows = records(profile(partial, points=points), "timeline")
    assert max(row["max_used_bytes"] for row in rows) == 5000
    assert min(row["min_used_bytes"] for row in rows) == 0
    assert sum(row["events"] for row in rows) == 3000
    middle = records(
        profile(partial, points=points, start_ms="0.001023", end_ms="0.001025"), "timeline"
    )
    inside = [v for i, v in enumerate(values) if 1_023_000 <= 1_000_000 + 10 * i <= 1_025_000]
    assert (max(row["max_used_bytes"] for row in middle), sum(r["events"] for r in middle)) == (
        max(inside),
        len(inside),
    )


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100", "cpu"])
def test_the_planted_peak_comes_back(device: str) -> None:
    pod = Pod(device=device, hosts=1, steps=4, seed=3)
    truth = planted_truth(pod, [ServedHost(0, pod.hostname(0), "", None)])
    peak = truth["program"]["peak_memory_bytes_per_core"]
    result = profile(analyze_host(build_xspace(pod, 0), "h0"))
    rows = records(result, "allocators")
    assert rows
    assert {(row["peak_bytes"], row["lifetime_peak_bytes"]) for row in rows} == {(peak, peak)}
    for row in rows:
        parts = [
            part
            for part in records(result, "peak_allocations")
            if part["allocator"] == row["allocator"]
        ]
        assert sum(part["total_bytes"] for part in parts) == peak


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"allocator": "GPU_9"}, "there are GPU_0_bfc"),
        ({"points": "0"}, "1 to 5000"),
        ({"start_ms": "soon"}, "start_ms must be a number"),
        ({"start_ms": "nan"}, "start_ms must be a number"),
        ({"start_ms": "2", "end_ms": "1"}, "lies after"),
    ],
)
def test_a_bad_parameter_is_named(
    three: HostPartial, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        profile(three, **parameters)


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "INVALID"), (1, "float"), (14, "bfloat16"), (101, "float_ref"), (999, "unknown dtype")],
)
def test_data_types_have_their_names(number: int, name: str) -> None:
    assert type_name(number).startswith(name)
