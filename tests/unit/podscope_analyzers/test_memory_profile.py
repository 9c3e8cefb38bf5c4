"""Allocator events with known peaks, and an independent account of random ones."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.allocations import type_name
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


def test_the_timeline_has_least_and_most_at_any_zoom(three: HostPartial) -> None:
    (all_of_it,) = records(profile(three, buckets="1"), "timeline")
    assert (all_of_it["min_used_bytes"], all_of_it["max_used_bytes"]) == (4744, 7000)
    assert (all_of_it["events"], all_of_it["op_name"]) == (3, "mul_grad/Sum")
    rows = records(profile(three, buckets="3"), "timeline")
    assert [row["events"] for row in rows] == [1, 1, 1]
    (freed,) = records(profile(three, begin_ms="0.001045", end_ms="0.001055"), "timeline")
    assert (freed["max_used_bytes"], freed["op_name"]) == (4744, "foo/bar")


def test_the_last_stat_that_names_an_allocator_counts() -> None:
    first: Stats = {"allocator_name": "cpu", "index_on_host": 3, "bytes_allocated": 1}
    second: Stats = {"device_ordinal": 4, "bytes_allocated": 1}
    found: Any = run_tool_xprof("memory_profile", [host([(True, 0, first), (True, 1, second)])])
    assert found["memoryIds"] == ["3", "4"]


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


def test_an_allocator_can_be_chosen(three: HostPartial) -> None:
    assert profile(three, allocator="GPU_0_bfc").to_json() == profile(three).to_json()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"allocator": "GPU_9"}, "there are GPU_0_bfc"),
        ({"buckets": "0"}, "1 to 5000"),
        ({"begin_ms": "soon"}, "begin_ms must be a number"),
        ({"begin_ms": "nan"}, "begin_ms must be a number"),
        ({"begin_ms": "2", "end_ms": "1"}, "lies after"),
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
