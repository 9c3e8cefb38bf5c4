import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podscope_agent.simulator import Pod, write_pod

Podscope = Callable[..., Any]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs "even" and "slow" of two TPU hosts, and "gpu" of one GPU host."""
    folder = tmp_path_factory.mktemp("logs")
    for session, pod in {
        "even": Pod("tpu-v5e", 2, 6, 3),
        "slow": Pod("tpu-v5e", 2, 6, 4, slow_host=1),
        "again": Pod("tpu-v5e", 2, 6, 3),
        "gpu": Pod("gpu-h100", 1, 3),
    }.items():
        list(write_pod(pod, folder, session))
    return folder


def _run(logs: Path, session: str) -> Path:
    return logs / "plugins" / "profile" / session


def test_two_run_folders_say_whether_the_step_is_slower(podscope: Podscope, logs: Path) -> None:
    ended = podscope(_run(logs, "even"), _run(logs, "slow"))
    assert ended.code == 0
    assert "slower (95 % interval" in ended.out
    assert "Device compute" in ended.out
    back = podscope(_run(logs, "slow"), _run(logs, "even"))
    assert "faster (95 % interval" in back.out


def test_json_csv_and_one_table(podscope: Podscope, logs: Path) -> None:
    asked = (logs, "--run", "even", "--other-run", "slow", "--tool", "op_profile")
    found = podscope(*asked, "--json").json()
    assert (found["tool"], found["status"], found["basis"]) == ("op_profile", "ok", "step")
    assert [found[side]["scope"]["session"] for side in ("base", "other")] == ["even", "slow"]
    rows = list(csv.DictReader(io.StringIO(podscope(*asked, "--csv", "--table", "ops").out)))
    table = found["tables"]["ops"]
    assert [row["name"] for row in rows] == [row[0] for row in table["rows"]]
    places = [
        (row["significance"] == "within_noise", -abs(float(row["change_us"]))) for row in rows
    ]
    assert places == sorted(places)
    shown = podscope(*asked, "--table", "ops").out
    assert shown.count("\n") > len(rows)
    assert "ops: " in shown


def test_two_hosts_of_one_capture_and_two_ranges_of_steps(podscope: Podscope, logs: Path) -> None:
    hosts = ("--host", "sim-tpu-v5e-0000", "--other-host", "sim-tpu-v5e-0001")
    found = podscope(_run(logs, "slow"), *hosts, "--tool", "pod_viewer", "--json").json()
    assert [found[side]["scope"]["hosts"] for side in ("base", "other")] == [[hosts[1]], [hosts[3]]]
    own = next(row for row in found["tables"]["steps"]["rows"] if row[1] == "own_work_us")
    assert own[-2] == "significant"
    steps = ("--steps", "0-2", "--other-steps", "3-5", "--tool", "pod_viewer")
    found = podscope(_run(logs, "even"), *steps, "--json").json()
    assert (found["base"]["steps"], found["other"]["steps"]) == ([0, 2], [3, 5])


def test_what_did_not_change_has_no_sign(podscope: Podscope, logs: Path) -> None:
    same = podscope(_run(logs, "even"), _run(logs, "again"))
    assert "in both." in same.out
    hosts = ("--host", "sim-tpu-v5e-0000", "--other-host", "sim-tpu-v5e-0001")
    shown = podscope(_run(logs, "slow"), *hosts, "--tool", "overview_page").out
    for text in (same.out, shown):
        assert " 0.0%" in text
        assert re.findall(r"(?<!\w)[-+]0[.,0]*%?(?=\s)", text) == []


def test_a_brief_table_says_how_sure_a_change_is_and_a_whole_one_all_that_is_known(
    podscope: Podscope, logs: Path
) -> None:
    asked = (_run(logs, "even"), _run(logs, "slow"), "--tool", "hlo_stats")
    brief = podscope(*asked).out
    assert "significance" in brief
    assert "p_value" not in brief
    assert "p_value" in podscope(*asked, "--table", "instructions").out


def test_steps_that_a_capture_does_not_have_exit_1_and_name_those_it_has(
    podscope: Podscope, logs: Path
) -> None:
    steps = ("--steps", "0-2", "--other-steps", "30-40", "--tool", "pod_viewer")
    ended = podscope(_run(logs, "even"), *steps)
    assert ended.code == 1
    assert "The other lists no step from 30 to 40" in ended.out
    assert "It lists steps 0 to 5" in ended.out
    memory = podscope(_run(logs, "even"), *steps[:4], "--tool", "memory_viewer")
    assert memory.code == 1
    assert memory.out.count("does not tell steps apart") == 1


def test_what_cannot_be_compared_exits_1_and_says_why(podscope: Podscope, logs: Path) -> None:
    ended = podscope(_run(logs, "even"), _run(logs, "gpu"))
    assert ended.code == 1
    assert "The base ran on TPU v5 Lite, the other on Nvidia GPU" in ended.out
    table = podscope(_run(logs, "even"), _run(logs, "gpu"), "--csv")
    assert (table.code, table.out) == (1, "")
    assert "The base ran on TPU v5 Lite" in table.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "both sides are the same"),
        (("--other-steps", "x"), "steps 'x' are not understood"),
        (("--other-steps", "4-2"), "steps '4-2' are not understood"),
        (("--other-run", "slow", "--tool", "hlo_stat"), "did you mean 'hlo_stats'"),
        (("--other-run", "slow", "--param", "x"), "write key=value"),
        (("--other-run", "slow", "--csv", "--json"), "not allowed with"),
        (("--other-run", "slow", "--url", "http://127.0.0.1:9"), "captures have ids"),
    ],
)
def test_wrong_usage_exits_2(
    podscope: Podscope, logs: Path, args: tuple[str, ...], message: str
) -> None:
    ended = podscope(_run(logs, "even"), *args)
    assert ended.code == 2
    assert message in ended.err


def test_an_unknown_table_names_the_nearest(podscope: Podscope, logs: Path) -> None:
    asked = (_run(logs, "even"), _run(logs, "slow"), "--table", "step")
    assert "did you mean 'steps'" in podscope(*asked).err
    assert "did you mean 'steps'" in podscope(*asked, "--csv").err
