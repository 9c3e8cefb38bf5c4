"""Whether the input pipeline tells who waits for input, in which steps and by how much."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers import input_shares
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Scope
from podscope_protos.v1 import xplane_pb2

DEVICES = ("tpu-v5e", "gpu-h100", "cpu")


@cache
def _told(device: str, slow_host: int | None = 1) -> dict[str, Any]:
    pod = Pod(
        device=device,
        hosts=3,
        steps=7,
        seed=1,
        slow_host=slow_host,
        slow_part="input",
        input_bound=0.3,
    )
    hosts = [analyze_host(build_xspace(pod, host), f"h{host}") for host in range(3)]
    return dict(run_tool("input_pipeline_analyzer", hosts, Scope(["h0", "h1", "h2"])).result)


def _rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["id"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


@pytest.mark.parametrize("device", DEVICES)
def test_the_core_that_waits_longest_is_named_with_its_share(device: str) -> None:
    told = _told(device)
    cores = _rows(told["cores"])
    assert cores[0]["host"] == "h1"
    assert len(cores) == told["core_count"]
    named = [said for said in told["evidence"] if "h1 waits for input" in said]
    assert len(named) == 1
    assert f"{cores[0]['input_ratio']:.1%}" in named[0]
    assert all(step["input_host"] == "h1" for step in _rows(told["series"]))


@pytest.mark.parametrize("device", DEVICES)
def test_nobody_is_named_where_all_wait_alike(device: str) -> None:
    told = _told(device, slow_host=None)
    assert not any("waits for input in" in said for said in told["evidence"])
    ratios = [core["input_ratio"] for core in _rows(told["cores"])]
    assert ratios == pytest.approx([0.3] * len(ratios), abs=0.03)


@pytest.mark.parametrize("device", DEVICES)
def test_ranges_hold_the_shares_and_the_parts_make_the_step(device: str) -> None:
    told = _told(device)
    series = _rows(told["series"])
    assert series
    for step in series:
        assert step["least_input_ratio"] <= step["input_ratio"] <= step["most_input_ratio"]
        parts = [
            step[f"{name}_ms"]
            for name in ("device_compute", "device_to_device", "collectives", "host_compute")
        ] + [
            step[f"{name}_ms"]
            for name in ("kernel_launch", "input", "output", "compilation", "other")
        ]
        assert sum(parts) == pytest.approx(step["duration_ms"], rel=1e-9)
    for core in _rows(told["cores"]):
        assert core["step_count"] == len(series)
        assert core["least_step_time_ms"] <= core["step_time_ms"] <= core["most_step_time_ms"]
        assert core["least_input_ratio"] <= core["input_ratio"] <= core["most_input_ratio"]


@pytest.mark.parametrize("device", DEVICES)
def test_the_ratio_is_the_one_that_the_statement_names(device: str) -> None:
    told = _told(device)
    ratios = [step["input_ratio"] for step in _rows(told["series"])]
    assert told["input_ratio"]["average"] == pytest.approx(float(np.mean(ratios)))
    said = float(told["statement"].split("input-bound: ")[1].split("%")[0]) / 100
    assert told["input_ratio"]["average"] == pytest.approx(said, abs=0.002)


def test_of_many_cores_those_that_wait_longest_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = _rows(_told("tpu-v5e")["cores"])
    monkeypatch.setattr(input_shares, "MAX_CORES", 2)
    _told.cache_clear()
    told = _told("tpu-v5e")
    assert told["core_count"] == len(every)
    assert _rows(told["cores"]) == every[:2]
    _told.cache_clear()


def test_without_steps_there_is_nothing_to_range_over() -> None:
    empty = analyze_host(xplane_pb2.XSpace(hostnames=["vm"]).SerializeToString(), "h0")
    told = run_tool("input_pipeline_analyzer", [empty], Scope(["h0"])).result
    assert (told["series"]["rows"], told["cores"]["rows"]) == ([], [])
    assert told["input_ratio"] is None
    assert told["next_step"].startswith("Annotate the steps")


@pytest.mark.parametrize("device", DEVICES)
def test_the_longest_input_operation_is_named(device: str) -> None:
    told = _told(device)
    (said,) = [one for one in told["evidence"] if "input operations" in one]
    # In Prefetch the training thread waits for those that work.
    working = [op for op in _rows(told["host_ops"]) if not op["operation"].endswith("::Prefetch")]
    longest = max(working, key=lambda row: row["self_time_ms"])
    assert f" in {longest['operation']} (" in said
    assert longest["category"].lower() in said


def test_a_pod_that_waits_on_one_host_alone_is_not_sent_elsewhere() -> None:
    pod = Pod("tpu-v5e", hosts=16, steps=4, seed=1, slow_host=5, slow_part="input")
    hosts = [analyze_host(build_xspace(pod, host), f"h{host:02}") for host in range(16)]
    told = run_tool("input_pipeline_analyzer", hosts, Scope(["h00"])).result
    assert told["classification"] == "device"
    assert told["statement"].endswith("One waits far longer than the others.")
    assert told["next_step"].startswith("Look at the input of the one that waits longest")
    assert "of h05 waits for input in" in told["evidence"][-1]


def test_waiting_for_prefetched_data_is_no_stage_that_input_time_goes_to() -> None:
    # The readers are what is slow; the training thread waits in Prefetch as long as they take.
    pod = Pod("tpu-v5e", steps=4, input_bound=0.3, input_stage="read")
    told = run_tool(
        "input_pipeline_analyzer", [analyze_host(build_xspace(pod, 0), "h0")], Scope(["h0"])
    ).result
    ops = _rows(told["host_ops"])
    assert ops[0]["operation"].endswith("::Prefetch")
    working = [op for op in ops if not op["operation"].endswith("::Prefetch")]
    read = next(op for op in working if op["operation"].endswith("::TFRecord"))
    share = read["self_time_ms"] / sum(op["self_time_ms"] for op in working)
    (said,) = told["evidence"]
    assert said == (
        "Of the self time of the hosts' input operations, waiting for prefetched data aside, "
        f"{share:.1%} is advanced file read, most of it in {read['operation']} ({share:.1%})."
    )
