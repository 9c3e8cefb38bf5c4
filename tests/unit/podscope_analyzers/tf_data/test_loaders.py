"""Grain and PyTorch's DataLoader, by what they annotate."""

from collections.abc import Sequence
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Scope, ToolResult
from podscope_analyzers.tf_data.loaders import stage_of
from podscope_protos.v1 import xplane_pb2

US = 1_000_000
TORCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


Call = tuple[str, int, int] | tuple[str, int, int, dict[str, str]]


def shown(*lines: Sequence[Call]) -> ToolResult:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name="/host:CPU")
    names: dict[str, int] = {}
    stats: dict[str, int] = {}
    for number, events in enumerate(lines, start=1):
        line = plane.lines.add(id=number, name=f"thread {number}")
        for name, begin, duration, *told in events:
            key = names.setdefault(name, len(names) + 1)
            plane.event_metadata[key].id, plane.event_metadata[key].name = key, name
            event = line.events.add(
                metadata_id=key, offset_ps=begin * US, duration_ps=duration * US
            )
            for stat, text in told[0].items() if told else ():
                at = stats.setdefault(stat, len(stats) + 1)
                plane.stat_metadata[at].id, plane.stat_metadata[at].name = at, stat
                event.stats.add(metadata_id=at, str_value=text)
    partial = analyze_host(space.SerializeToString(), "h0")
    # Stored and read back, as the service does it.
    read = HostPartial.from_bytes(partial.to_bytes())
    return run_tool("tf_data_bottleneck_analysis", [read], Scope(["h0"]))


def rows(result: ToolResult, table: str) -> list[dict[str, Any]]:
    found = result.tables[table]
    names = [column.id for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows]


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        (TORCH, ("torch", "_MultiProcessingDataLoaderIter.__next__")),
        ("$dataloader.py:733 __next__", ("torch", "__next__")),
        ("grain/map/decode", ("grain", "map/decode")),
        ("Grain::Batch", ("grain", ":Batch")),
        ("$data_loader.py:499 __next__", ("grain", "__next__")),
        ("grainy", None),
        ("$my_dataloader.py:3 __next__", None),
        ("$dataloader.py:12 helper", None),
        ("train", None),
    ],
)
def test_loaders_are_recognised_by_name(name: str, stage: tuple[str, str] | None) -> None:
    assert stage_of(name) == stage


def test_self_times_of_stages_add_up_to_the_call() -> None:
    result = shown(
        [
            ("grain/next", 0, 100),
            ("grain/read", 10, 60),
            ("other", 12, 10),
            ("grain/decode", 75, 20),
            ("grain/next", 200, 40),
            ("grain/read", 200, 40),
        ]
    )
    found = {row["stage"]: row for row in rows(result, "loaders")}
    assert {stage: row["self_time_us"] for stage, row in found.items()} == {
        "next": 20,
        "next > read": 100,
        "next > decode": 20,
    }
    assert sum(row["self_time_us"] for row in found.values()) == found["next"]["total_time_us"]
    assert (found["next"]["calls"], found["next"]["slow_calls"]) == (2, 1)
    (worst,) = result.result["loader_bottlenecks"]
    assert (worst["loader"], worst["stage"], worst["is_slow"]) == ("grain", "read", True)
    assert any("worker_count" in text for text in worst["advice"])
    assert result.result["is_input_bound"] is True


def grain(name: str, category: str, dataset: str = "") -> dict[str, str]:
    """The stats that Grain gives its annotations."""
    told = {"_ipl_stage_name": name, "_ipl_stage_cat": category}
    return told | ({"_ipl_dataset_name": dataset} if dataset else {})


BATCH = grain("BatchDatasetIterator(batch_size=8)", "preprocessing")
PREFETCH = grain("PrefetchDatasetIterator(threads=2)", "prefetch")
AHEAD = grain("PrefetchDatasetIterator(threads=2)", "preprocessing", "MapMapDataset(f)")
SOURCE = grain("RangeMapDataset(start=0, stop=9)", "read")


def test_what_grain_itself_annotates_is_recognised() -> None:
    main: list[Call] = [
        ("_BatchDatasetIterator.__next__", 0, 100, BATCH),
        ("RangeMapDataset.__getitem__", 10, 70, SOURCE),
        ("train", 120, 30, {"step_num": "1"}),
    ]
    result = shown(main)
    (worst,) = result.result["loader_bottlenecks"]
    assert (worst["loader"], worst["call"], worst["calls"]) == ("grain", "BatchDatasetIterator", 1)
    assert (worst["stage"], worst["stage_self_time_us"]) == ("RangeMapDataset", 70)
    assert worst["waits_for"] is None
    assert "ReadOptions" in worst["advice"][0]
    assert "grain's BatchDatasetIterator on h0 takes 0.1 ms" in result.result["summary"]


@pytest.mark.parametrize("stage", ["", " ", "(threads=2)"])
def test_an_annotation_of_no_stage_is_none(stage: str) -> None:
    result = shown([("step", 0, 100, grain(stage, "read"))])
    assert result.result["loader_bottlenecks"] == []


def test_a_stage_that_waits_for_prefetching_threads_is_not_the_bottleneck() -> None:
    main: list[Call] = [
        ("_BatchDatasetIterator.__next__", 0, 100, BATCH),
        ("PrefetchDatasetIterator.__next__", 5, 90, PREFETCH),
    ]
    # Two threads make elements: 40 + 50 us, of which the source takes 5 and 10.
    threads: list[list[Call]] = [
        [("Prefetch._getitem", 0, 40, AHEAD), ("RangeMapDataset.__getitem__", 1, 5, SOURCE)],
        [("Prefetch._getitem", 0, 50, AHEAD), ("RangeMapDataset.__getitem__", 1, 10, SOURCE)],
    ]
    result = shown(main, *threads)
    (worst,) = result.result["loader_bottlenecks"]
    assert (worst["call"], worst["waits_for"]) == (
        "BatchDatasetIterator",
        "PrefetchDatasetIterator",
    )
    assert (worst["stage"], worst["stage_self_time_us"]) == ("MapMapDataset", 75)
    assert "worker_count" in worst["advice"][0]
    stages = [row["stage"] for row in rows(result, "loaders")]
    assert stages.count("MapMapDataset > RangeMapDataset") == 2
    # Without who takes the elements, the threads are all that is known.
    assert [one["call"] for one in shown(*threads).result["loader_bottlenecks"]] == [
        "MapMapDataset",
        "MapMapDataset",
    ]


def test_a_loader_in_one_process_is_told_to_take_workers() -> None:
    (worst,) = shown([(SINGLE, 0, 5000)]).result["loader_bottlenecks"]
    assert "num_workers=0" in worst["advice"][0]
    (worst,) = shown([(TORCH, 0, 5000)]).result["loader_bottlenecks"]
    assert "num_workers=0" not in worst["advice"][0]


def test_a_fast_loader_needs_no_advice_and_threads_are_apart() -> None:
    result = shown([(TORCH, 0, 50)], [(TORCH, 10, 30)])
    found = result.result["loader_bottlenecks"]
    assert [(one["thread"], one["is_slow"], one["advice"]) for one in found] == [
        ("thread 1", False, []),
        ("thread 2", False, []),
    ]
    assert result.result["is_input_bound"] is False
    assert result.status == "ok"


@pytest.mark.parametrize("device", ["tpu-v5e", "cpu"])
def test_the_planted_bottleneck_of_the_pipeline_comes_back(device: str) -> None:
    """The simulator's producer spends most of a batch in its source."""
    pod = Pod(device=device, hosts=1, steps=6, seed=4, input_bound=0.5)
    partial = analyze_host(build_xspace(pod, 0), "h0")
    result = run_tool("tf_data_bottleneck_analysis", [partial], Scope(["h0"]))
    (found,) = result.result["bottlenecks"]
    assert (found["iterator"], found["iterator_kind"]) == ("TFRecord", "slow_source")
    assert found["is_slow"] is True
    critical = {row["iterator"] for row in rows(result, "iterators") if row["is_critical"]}
    assert critical == {"Root", "Prefetch", "BatchV2", "ParallelMapV2", "TFRecord"}
