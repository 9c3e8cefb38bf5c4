"""Two processes of a host have one number for different programs; every reader tells them apart."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from podscope_agent.merge import ProcessXSpace, merge_xspaces
from podscope_agent.simulator import Pod, session_name, write_pod
from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_protos.v1.xplane_pb2 import XSpace

Table = list[dict[str, Any]]
Reader = Callable[[Path, str], Any]
ONE, OTHER = b"train_step", b"check_step"


def ask_podscope(file: Path, tool: str) -> Any:
    partial = analyze_host(file.read_bytes(), "host")
    return json.loads(json.dumps(run_tool_xprof(tool, [partial], {})))


def ask_xprof(file: Path, tool: str) -> Any:
    convert = pytest.importorskip("xprof.convert.raw_to_tool_data")
    assert tool in convert.xspace_to_tool_names([str(file)])
    answer, _ = convert.xspace_to_tool_data([str(file)], tool, {"use_saved_result": False})
    return json.loads(answer)


@pytest.fixture(params=[pytest.param("xprof", marks=pytest.mark.interop), "podscope"])
def ask(request: pytest.FixtureRequest) -> Reader:
    return ask_xprof if request.param == "xprof" else ask_podscope


@pytest.fixture(scope="module", params=["gpu-h100", "tpu-v5e"])
def files(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """Profiles of two processes, with programs of one number, and the merged one."""
    folder = tmp_path_factory.mktemp("profiles")
    pod = Pod(request.param, hosts=1, steps=3)
    for _ in write_pod(pod, folder):
        pass
    [written] = (folder / "plugins" / "profile" / session_name(pod)).glob("*.xplane.pb")
    one = written.read_bytes()
    profiles = {"one": one, "other": one.replace(ONE, OTHER)}
    processes = [
        ProcessXSpace(n, profile, name) for n, (name, profile) in enumerate(profiles.items())
    ]
    profiles["merged"] = merge_xspaces(processes).joined()
    paths = {name: folder / name / "host.xplane.pb" for name in profiles}
    for name, path in paths.items():
        path.parent.mkdir()
        path.write_bytes(profiles[name])
    return paths


def ops(table: Mapping[str, Any]) -> "Counter[tuple[str, str, int]]":
    """Operations by what the program says of them."""
    names = [column["id"] for column in table["cols"]]
    rows = [dict(zip(names, (c.get("v") for c in r["c"]), strict=True)) for r in table["rows"]]
    return Counter(
        (row["hlo_op_name"], row["tf_op_name"], row["occurrences"])
        for row in rows
        if row["hlo_op_name"] != "IDLE"
    )


def test_every_operation_is_of_its_own_program(files: Mapping[str, Path], ask: Reader) -> None:
    one, other, merged = (ops(ask(files[name], "hlo_stats")) for name in ("one", "other", "merged"))
    assert any(ONE.decode() in op for _, op, _ in one)
    assert any(OTHER.decode() in op for _, op, _ in other)
    assert merged == one + other


def test_the_tree_of_operations_has_both_programs(files: Mapping[str, Path], ask: Reader) -> None:
    tree = json.dumps(ask(files["merged"], "op_profile"))
    assert "jit_train_step(" in tree
    assert "jit_check_step(" in tree


def test_the_merged_profile_says_nothing_of_it(files: Mapping[str, Path]) -> None:
    assert not XSpace.FromString(files["merged"].read_bytes()).warnings
