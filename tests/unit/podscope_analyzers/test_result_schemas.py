"""Whether every tool's result is what its published schema says."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.diff import Side, compare
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Loss, MissingHost, Scope, ToolResult
from podscope_protos.v1 import xplane_pb2

COMPARISON = "comparison"
LISTING_STEPS = {
    "framework_op_stats": ("tpu-v5e", "gpu-h100", "cpu"),
    "hlo_stats": ("tpu-v5e", "gpu-h100", "cpu"),
    "kernel_stats": ("gpu-h100",),
    "op_profile": ("tpu-v5e", "gpu-h100", "cpu"),
    "roofline_model": ("tpu-v5e", "gpu-h100"),
}
SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "schema"


@cache
def _partials(device: str) -> tuple[HostPartial, ...]:
    if device == "nothing":
        space = xplane_pb2.XSpace(hostnames=["vm"])
        return (analyze_host(space.SerializeToString(), "h0"),)
    pod = Pod(device=device, hosts=3, steps=7, seed=1, slow_host=1)
    return tuple(analyze_host(build_xspace(pod, host), f"h{host}") for host in range(3))


def _validator(tool: str) -> Any:
    schema = json.loads((SCHEMAS / f"{tool}.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_every_tool_has_a_schema_and_every_schema_a_tool() -> None:
    assert {path.stem for path in SCHEMAS.glob("*.json")} == {*TOOLS, COMPARISON}


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100", "cpu", "nothing"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_result_keeps_to_the_schema_of_its_tool(tool: str, device: str) -> None:
    hosts = _partials(device)
    scope = Scope(
        [partial.host for partial in hosts], missing_hosts=[MissingHost("h9", "deadline")]
    )
    result = run_tool(tool, hosts, scope)
    shown = json.loads(json.dumps(result.to_json(), allow_nan=False))
    errors = [f"{e.json_path}: {e.message:.200}" for e in _validator(tool).iter_errors(shown)]
    assert errors == []
    assert set(result.tables) <= set(shown["result"])


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100", "cpu", "nothing"])
@pytest.mark.parametrize("tool", LISTING_STEPS)
def test_times_of_steps_keep_to_the_schema(tool: str, device: str) -> None:
    hosts = _partials(device)
    result = run_tool(tool, hosts, Scope(["h0"]), {"step_times": "1"})
    shown = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert list(_validator(tool).iter_errors(shown)) == []
    has_some = device in LISTING_STEPS[tool]
    assert bool(shown["result"]["step_times"]["rows"]) == has_some


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    "devices", [("tpu-v5e", "tpu-v5e"), ("gpu-h100", "gpu-h100"), ("cpu", "nothing")]
)
def test_a_comparison_keeps_to_its_schema(tool: str, devices: tuple[str, str]) -> None:
    sides = []
    for device in devices:
        hosts = _partials(device)
        scope = Scope([partial.host for partial in hosts])
        sides.append(Side(run_tool(tool, hosts, scope), run_tool("overview_page", hosts, scope)))
    shown = json.loads(json.dumps(compare(*sides).to_json(), allow_nan=False))
    errors = [f"{e.json_path}: {e.message:.200}" for e in _validator(COMPARISON).iter_errors(shown)]
    assert errors == []
    assert shown["version"] == 1
    assert not _validator(COMPARISON).is_valid({**shown, "extra": 1})


def test_losses_are_in_the_schema_too() -> None:
    result = run_tool("pod_viewer", _partials("cpu"), Scope(["h0"]))
    lossy = ToolResult(
        **{**vars(result), "losses": [Loss("h0", "/device:TPU:0", "events_dropped", 12)]}
    )
    assert _validator("pod_viewer").is_valid(lossy.to_json())


@pytest.mark.parametrize("tool", TOOLS)
def test_a_schema_refuses_what_is_not_in_it(tool: str) -> None:
    shown = run_tool(tool, _partials("cpu"), Scope(["h0"])).to_json()
    assert not _validator(tool).is_valid({**shown, "extra": 1})
    assert not _validator(tool).is_valid({**shown, "result": {**shown["result"], "extra": 1}})
    del shown["status"]
    assert not _validator(tool).is_valid(shown)


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100"])
def test_the_planted_slow_host_is_named(device: str) -> None:
    hosts = _partials(device)
    found = run_tool("pod_viewer", hosts, Scope(["h0"])).result["straggler"]
    assert (found["host"], found["stragglers"][0]["cause"]) == ("h1", "compute")


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100", "cpu"])
@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_named_in_an_even_pod(device: str, seed: int) -> None:
    pod = Pod(device=device, hosts=4, steps=8, seed=seed)
    hosts = [analyze_host(build_xspace(pod, host), f"h{host}") for host in range(4)]
    found = run_tool("pod_viewer", hosts, Scope(["h0"])).result["straggler"]
    assert (found["verdict"], found["host"]) == ("even", None)


@pytest.mark.parametrize("device", ["tpu-v5e", "cpu"])
def test_a_planted_wait_for_input_is_the_bottleneck(device: str) -> None:
    pod = Pod(device=device, hosts=2, steps=8, seed=4, input_bound=0.5)
    hosts = [analyze_host(build_xspace(pod, host), f"h{host}") for host in range(2)]
    for tool in ("overview_page", "input_pipeline_analyzer"):
        found = run_tool(tool, hosts, Scope(["h0"])).result
        verdict = found["bottleneck"] if tool == "overview_page" else found
        assert verdict["classification"] == "host"
        assert "HIGHLY input-bound" in verdict["statement"]
