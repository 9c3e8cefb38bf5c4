from typing import Any

import numpy as np
import pytest

from podscope_analyzers.kernels.iterators import MAX_LEVEL, walk_iterators
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope
from podscope_analyzers.tf_data.bottlenecks import kind_of, steps_for
from podscope_protos.v1 import xplane_pb2

TOOL = "tf_data_bottleneck_analysis"
Event = tuple[str, int, int, dict[str, int]]


def _analyzed(*lines: list[Event], unsigned: bool = False) -> HostPartial:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name="/host:CPU")
    stats = {"id": 1, "parent_id": 2, "element_id": 3}
    for name, key in stats.items():
        plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, name
    known: dict[str, int] = {}
    for number, events in enumerate(lines, start=1):
        line = plane.lines.add(id=number, name=f"thread {number}")
        for name, start, duration, values in events:
            key = known.setdefault(name, len(known) + 1)
            plane.event_metadata[key].id, plane.event_metadata[key].name = key, name
            event = line.events.add(metadata_id=key, offset_ps=start, duration_ps=duration)
            for stat, value in values.items():
                if unsigned and stat == "id":
                    event.stats.add(metadata_id=stats[stat], uint64_value=value)
                else:
                    event.stats.add(metadata_id=stats[stat], int64_value=value)
    partial = analyze_host(space.SerializeToString(), "h0")
    # Stored and read back, as the service does it.
    return HostPartial.from_bytes(partial.to_bytes())


def _reference(partial: HostPartial) -> dict[str, Any]:
    found = run_tool_xprof(TOOL, [partial])
    assert isinstance(found, dict)
    return found


def _result(*partials: HostPartial) -> Any:
    return run_tool(TOOL, partials, Scope([p.host for p in partials])).to_json()


PREFETCH = {"id": 123}
RANGE = {"id": 456, "parent_id": 123}


@pytest.fixture
def prefetched() -> HostPartial:
    """Two calls: the first waits for its element, the second finds it made already."""
    asking: list[Event] = [
        ("Iterator::Prefetch", 0, 100_000_000, PREFETCH),
        ("Iterator::Prefetch::Range", 0, 80_000_000, RANGE),
        ("Iterator::Prefetch", 200_000_000, 20_000_000, PREFETCH),
        ("PrefetchConsume", 210_000_000, 10_000_000, {"element_id": 7}),
    ]
    making: list[Event] = [
        ("PrefetchProduce", 100_000_000, 80_000_000, {"element_id": 7}),
        ("Iterator::Prefetch::Range", 100_000_000, 80_000_000, RANGE),
    ]
    return _analyzed(asking, making)


@pytest.mark.case("2.D1")
def test_a_pipeline_has_the_latencies_of_its_roots_calls(prefetched: HostPartial) -> None:
    pipeline = _reference(prefetched)["tfDataStats"]["vm"]["inputPipelines"]["123"]
    assert pipeline["metadata"] == {"id": "123", "name": "Host:0"}
    assert [pipeline[f"{kind}LatencyPs"] for kind in ("avg", "min", "max")] == [
        "60000000",
        "20000000",
        "100000000",
    ]
    assert pipeline["numSlowCalls"] == "1"


@pytest.mark.case("2.D2")
def test_a_call_waits_for_the_iterator_with_the_most_self_time(prefetched: HostPartial) -> None:
    waiting, _ = _reference(prefetched)["tfDataStats"]["vm"]["inputPipelines"]["123"]["stats"]
    assert waiting["bottleneckIteratorId"] == "456"
    assert waiting["bottleneckIteratorLatencyPs"] == "80000000"
    assert waiting["iteratorStats"]["123"]["selfTimePs"] == "20000000"
    assert waiting["iteratorStats"]["456"]["selfTimePs"] == "80000000"


@pytest.mark.case("2.D3")
def test_an_element_made_before_it_was_asked_for_blocks_nobody(prefetched: HostPartial) -> None:
    _, ready = _reference(prefetched)["tfDataStats"]["vm"]["inputPipelines"]["123"]["stats"]
    assert ready["bottleneckIteratorId"] == "123"
    assert ready["bottleneckIteratorLatencyPs"] == "20000000"
    assert "isBlocking" not in ready["iteratorStats"]["456"]
    assert ready["iteratorStats"]["456"]["startTimePs"] == "100000000"


@pytest.mark.case("2.D4")
def test_a_pipeline_slower_than_50_us_is_input_bound(prefetched: HostPartial) -> None:
    assert _reference(prefetched)["isInputBound"] is True
    result = _result(prefetched)["result"]
    assert result["is_input_bound"] is True
    (row,) = result["bottlenecks"]
    assert (row["pipeline"], row["iterator"], row["max_latency_us"]) == ("Host:0", "Range", 100.0)
    assert row["advice"]


def test_a_pipeline_of_exactly_50_us_is_not_slow() -> None:
    partial = _analyzed([("Iterator::Range", 10, 50_000_000, {"id": 1})])
    assert "isInputBound" not in _reference(partial)
    (row,) = _result(partial)["result"]["bottlenecks"]
    assert (row["is_slow"], row["advice"]) == (False, [])


@pytest.mark.case("2.D5")
def test_a_devices_pipeline_is_no_bottleneck_of_the_host() -> None:
    asking: list[Event] = [
        ("Iterator::Prefetch", 0, 30_000_000, PREFETCH),
        ("Iterator::Prefetch", 100_000_000, 100_000_000, PREFETCH),
    ]
    second: list[Event] = [("Iterator::Prefetch::Generator", 0, 80_000_000, RANGE)]
    partial = _analyzed(asking, second)
    found = _reference(partial)
    pipeline = found["tfDataStats"]["vm"]["inputPipelines"]["123"]
    assert pipeline["metadata"] == {"id": "123", "type": "DEVICE", "name": "Device:0"}
    assert [pipeline[f"{kind}LatencyPs"] for kind in ("avg", "min", "max")] == [
        "65000000",
        "30000000",
        "100000000",
    ]
    assert pipeline["numSlowCalls"] == "1"
    assert "bottleneckAnalysis" not in found
    assert "no tf.data activity" in found["summary"]


@pytest.mark.case("2.D6")
def test_calls_of_one_iterator_add_up() -> None:
    inner = {"id": 456, "parent_id": 123}
    partial = _analyzed(
        [
            ("Iterator::MapAndBatch", 0, 100_000_000, PREFETCH),
            ("Iterator::MapAndBatch::Range", 0, 30_000_000, inner),
            ("Iterator::MapAndBatch::Range", 40_000_000, 30_000_000, inner),
        ]
    )
    (call,) = _reference(partial)["tfDataStats"]["vm"]["inputPipelines"]["123"]["stats"]
    assert call["iteratorStats"]["123"]["selfTimePs"] == "40000000"
    assert call["iteratorStats"]["456"]["selfTimePs"] == "60000000"
    assert call["iteratorStats"]["456"]["numCalls"] == "2"
    assert (call["bottleneckIteratorId"], call["bottleneckIteratorLatencyPs"]) == (
        "456",
        "60000000",
    )


def test_iterators_with_unsigned_ids_share_the_id_0() -> None:
    partial = _analyzed([("Iterator::Range", 5, 60_000_000, {"id": (1 << 63) + 5})], unsigned=True)
    host = _reference(partial)["tfDataStats"]["vm"]
    assert host["iteratorMetadata"] == {"0": {"name": "Range", "longName": "Iterator::Range"}}
    assert list(host["inputPipelines"]) == ["0"]


def test_an_id_is_the_iterators_that_is_called_itself_before_the_devices() -> None:
    calls: list[Event] = [
        ("Iterator::Prefetch::Generator", 0, 10_000_000, {"id": 9, "parent_id": 7}),
        ("Iterator::Batch", 20_000_000, 60_000_000, {"id": 9}),
    ]
    host = _reference(_analyzed(calls))["tfDataStats"]["vm"]
    assert host["iteratorMetadata"] == {
        "9": {"id": "9", "name": "Batch", "longName": "Iterator::Batch"}
    }
    assert host["inputPipelines"]["9"]["metadata"]["name"] == "Host:0"


def test_of_a_devices_buffer_alone_nothing_is_known() -> None:
    calls: list[Event] = [
        ("Iterator::Prefetch::Generator", 0, 10_000_000, {"id": 9, "parent_id": 7})
    ]
    assert _reference(_analyzed(calls))["tfDataStats"] == {"vm": {}}


def test_an_iterator_works_ahead_whatever_its_version() -> None:
    partial = _analyzed([("Iterator::ParallelMapV2", 0, 60_000_000, {"id": 1})])
    (row,) = _result(partial)["result"]["iterators"]["rows"]
    names = [column["id"] for column in _result(partial)["result"]["iterators"]["columns"]]
    assert row[names.index("is_async")] is True
    host = _reference(partial)["tfDataStats"]["vm"]
    assert "isAsync" not in host["iteratorMetadata"]["1"]


def test_hosts_of_one_hostname_are_one_in_the_references_answer() -> None:
    """As TensorFlow 2.15's converter has it."""
    first = _analyzed(
        [
            ("Iterator::Batch", 0, 100_000_000, {"id": 1}),
            ("Iterator::Batch::Map", 10_000_000, 60_000_000, {"id": 5, "parent_id": 1}),
            ("Iterator::Batch", 200_000_000, 30_000_000, {"id": 1}),
            ("Iterator::Map", 300_000_000, 70_000_000, {"id": 2}),
        ]
    )
    second = _analyzed(
        [
            ("Iterator::Prefetch", 0, 300_000_000, {"id": 1}),
            ("Iterator::Prefetch::Range", 10_000_000, 50_000_000, {"id": 6, "parent_id": 1}),
            ("Iterator::Prefetch", 400_000_000, 60_000_000, {"id": 1}),
            ("Iterator::Zip", 600_000_000, 10_000_000, {"id": 3}),
        ]
    )
    found: Any = run_tool_xprof(TOOL, [first, second])
    rows = [
        [row[name] for name in ("inputPipeline", "maxLatencyPs", "iteratorName")]
        for row in found["bottleneckAnalysis"]
    ]
    assert rows == [
        ["Host:0", "300000000", "Map"],
        ["Host:1", "70000000", "Map"],
        ["Host:0", "10000000", "Zip"],
    ]
    (host,) = found["tfDataStats"].values()
    shared = host["inputPipelines"]["1"]
    assert shared["metadata"] == {"id": "1", "name": "Host:0"}
    slow = [shared[name] for name in ("avgLatencyPs", "minLatencyPs", "numSlowCalls")]
    assert slow == ["180000000", "60000000", "2"]
    waited = [call["bottleneckIteratorLatencyPs"] for call in shared["stats"]]
    assert waited == ["60000000", "30000000", "250000000", "60000000"]
    assert host["iteratorMetadata"]["1"]["name"] == "Batch"
    assert sorted(host["iteratorMetadata"]) == ["1", "2", "3", "5", "6"]


def test_a_host_without_tf_data_says_so() -> None:
    partial = _analyzed([("SomethingElse", 0, 10, {})])
    assert _reference(partial)["tfDataStats"] == {"vm": {}}
    shown = _result(partial)
    assert (shown["status"], shown["reasons"][0]["code"]) == ("empty", "no_tf_data")


def test_pipelines_are_numbered_by_their_roots_ids_and_sorted_by_their_slowest_call() -> None:
    partial = _analyzed(
        [
            ("Iterator::Range", 0, 60_000_000, {"id": 9}),
            ("Iterator::Range", 100_000_000, 90_000_000, {"id": 4}),
        ]
    )
    rows = _result(partial)["result"]["bottlenecks"]
    assert [(row["pipeline"], row["max_latency_us"]) for row in rows] == [
        ("Host:0", 90.0),
        ("Host:1", 60.0),
    ]


@pytest.mark.parametrize(
    ("iterator", "kind"),
    [
        ("TFRecord", "slow_source"),
        ("DataService", "data_service"),
        ("ReverbDataset", "slow_remote_source"),
        ("Map", "sequential_transformation"),
        ("ParallelMapV2", "parallel_transformation"),
        ("ParallelInterleaveV4", "parallel_transformation"),
        ("BatchV2", "transformation"),
        ("FixedLengthRecordV2", "slow_source"),
        ("TFRecordV2", "slow_source"),
        ("Batch", "transformation"),
        ("Prefetch", "other"),
    ],
)
def test_advice_is_by_kind_of_iterator(iterator: str, kind: str) -> None:
    assert kind_of(iterator) == kind
    assert all(step.text for step in steps_for(iterator))


def test_a_chain_is_walked_to_a_hundred_levels_below_its_root() -> None:
    count = 130
    visits = walk_iterators(
        np.zeros(1, np.int32),
        np.minimum(np.arange(count + 1), count - 1).astype(np.int32),
        np.arange(1, count, dtype=np.int32),
        np.zeros(count, np.int64),
        np.arange(1000, 1000 - count, -1),
        np.ones(count, np.bool_),
    )
    assert visits.node.tolist() == list(range(MAX_LEVEL + 1))
    assert visits.self_ps.tolist() == [1] * (MAX_LEVEL + 1)


def test_a_walk_of_too_many_paths_is_given_up() -> None:
    # Every node has the next one twice below it: 2**60 paths.
    count = 60
    offsets = np.minimum(2 * np.arange(count + 1), 2 * (count - 1)).astype(np.int32)
    children = np.repeat(np.arange(1, count), 2).astype(np.int32)
    visits = walk_iterators(
        np.zeros(1, np.int32),
        offsets,
        children,
        np.zeros(count, np.int64),
        np.ones(count, np.int64),
        np.ones(count, np.bool_),
        max_visits=10_000,
    )
    assert not visits.is_complete
    assert len(visits.node) == 10_000
