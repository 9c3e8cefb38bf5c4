"""Whether our tables equal those of the released reference, on captures made here."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.pipeline import analyze_host, run_tool_xprof

pytestmark = pytest.mark.interop

ABC = ("m:1", "x", "y:z")
CAPTURES: dict[str, list[tuple[Any, ...]]] = {
    **{f"plain {seed}": [("plain", seed)] for seed in range(3)},
    **{f"few {seed}": [("plain", seed, 5)] for seed in range(3)},
    **{f"batches {seed}": [("batching", seed)] for seed in range(3)},
    **{f"batches of models {seed}": [("batching", seed, 90, ABC)] for seed in range(3)},
    "many": [("plain", 7, 900, ("one",))],
    "marked": [("marked",)],
    "two hosts": [("plain", 5, 20), ("plain", 6, 30, ("m2", "q"))],
    "two hosts with batches": [("batching", 5, 20), ("batching", 6, 30, ("m2", "q"))],
}


def differences(expected: Any, got: Any, path: str = "") -> list[str]:
    if isinstance(expected, dict) and isinstance(got, dict):
        keys = sorted({*expected, *got})
        return [x for k in keys for x in differences(expected.get(k), got.get(k), f"{path}.{k}")]
    if isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            return [f"{path}: {len(expected)} and {len(got)} items"]
        pairs = enumerate(zip(expected, got, strict=True))
        return [x for i, (one, other) in pairs for x in differences(one, other, f"{path}[{i}]")]
    if isinstance(expected, float) and isinstance(got, float):
        if math.isclose(expected, got, rel_tol=1e-9, abs_tol=1e-12):
            return []
        return [f"{path}: {expected} and {got}"]
    return [] if expected == got else [f"{path}: {expected!r} and {got!r}"]


def _in_order(tables: list[Any]) -> list[Any]:
    """The reference numbers tensor patterns in no defined order."""
    for table in tables:
        if [column["id"] for column in table.get("cols", ())][:2] == ["id", "tensor_pattern"]:
            table["rows"].sort(key=lambda row: row["c"][1]["v"])
            for row in table["rows"]:
                row["c"][0]["v"] = 0.0
    return tables


def _both(raws: Sequence[bytes], tool: str, folder: Path, **options: str) -> tuple[Any, Any]:
    convert = pytest.importorskip("xprof.convert.raw_to_tool_data")
    paths = []
    for index, raw in enumerate(raws):
        paths.append(folder / f"h{index}.xplane.pb")
        paths[-1].write_bytes(raw)
    told, _ = convert.xspace_to_tool_data([str(path) for path in paths], tool, options)
    hosts = [analyze_host(raw, f"h{index}") for index, raw in enumerate(raws)]
    got = json.loads(json.dumps(run_tool_xprof(tool, hosts, options), allow_nan=False))
    return json.loads(told), got


@pytest.mark.parametrize("name", CAPTURES)
def test_requests_batches_and_tensors_equal_the_references(
    name: str, server: Callable[..., bytes], tmp_path: Path
) -> None:
    raws = [server(*arguments) for arguments in CAPTURES[name]]
    expected, got = _both(raws, "inference_profile", tmp_path)
    assert len(expected) > 1
    assert differences(_in_order(expected), _in_order(got)) == []


@pytest.mark.parametrize("name", ["plain 0", "batches 0", "two hosts"])
def test_the_latency_table_of_the_overview_equals_the_references(
    name: str, server: Callable[..., bytes], tmp_path: Path
) -> None:
    raws = [server(*arguments) for arguments in CAPTURES[name]]
    expected, got = _both(raws, "overview_page", tmp_path)
    assert len(expected[4]["rows"]) == 6
    assert differences(expected[4], got[4]) == []


def test_levels_of_roots_that_programs_give_number_the_groups_as_there(
    serving_host: Callable[[], Any], tmp_path: Path
) -> None:
    host = serving_host()
    for index, level in enumerate((-1, 0, -2, 2, 1)):
        model = {"_r": level, "model_id": f"m{level}"}
        host.event(f"predict{level}", 100 + 200 * index, 100, model)
    host.event("SessionRun", 5000, 10, {"model_id": 2.5, "_r": 1})
    host.event("SessionRun", 5100, 10, {"model_id": 3, "_r": 1})
    expected, got = _both([host.bytes()], "inference_profile", tmp_path)
    assert [row["c"][0]["v"] for row in expected[0]["rows"]] == ["2.5", "3", "m-1"]
    assert differences(expected, got) == []
