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
    longest = max(_rows(told["host_ops"]), key=lambda row: row["self_time_ms"])
    assert longest["operation"] in said
    assert longest["category"].lower() in said
