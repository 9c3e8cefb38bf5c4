"""Comparisons over REST, of captures that were imported and analysed in this process."""

import csv
import io
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from podscope.cli import main
from podscope_agent.simulator import Pod
from podscope_analyzers.registry import TOOLS
from podscope_protos.errors import ExitCode

with warnings.catch_warnings():
    # Its own import warns about its own dependency.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

PODS = {
    "even": Pod("tpu-v5e", 2, 8, 3),
    "slow": Pod("tpu-v5e", 2, 8, 4, slow_host=1),
    "gpu": Pod("gpu-h100", 1, 3),
}
HOSTS = [PODS["slow"].hostname(host) for host in range(2)]


@dataclass(frozen=True)
class Served:
    """A service with three captures, by session."""

    client: TestClient
    ids: dict[str, str]
    logs: Path

    def ask(self, session: str, tool: str, **query: str) -> Any:
        return self.client.get(
            f"/api/v1/captures/{self.ids[session]}/tools/{tool}/diff", params=query
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, serving: Any) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served"), PODS) as service:
        yield Served(service.client, service.ids, service.logs)


def test_an_analysed_capture_tells_its_clocks_though_nobody_looked_into_it_before(
    served: Served,
) -> None:
    capture = served.client.get(f"/api/v1/captures/{served.ids['slow']}").json()
    assert (capture["alignment"]["hosts"], capture["alignment"]["error_ns"]) == (2, None)
    check = capture["summary"]["clock_check"]
    assert (check["basis"], check["hosts"], check["promised_ns"]) == ("collective_ends", 2, None)
    # The simulated clocks are right, and one of the hosts is slow.
    assert check["residual_ns"] <= 2
    assert abs(check["skew_ns"] - capture["alignment"]["skew_ns"]) <= 2
    hosts = served.client.get(f"/api/v1/captures/{served.ids['slow']}/hosts").json()["items"]
    assert all(host["window_start_ns"] < host["window_stop_ns"] for host in hosts)


@pytest.mark.parametrize("tool", ["overview_page", "pod_viewer", "op_profile", "memory_viewer"])
def test_the_service_says_what_the_command_says_of_the_same_files(
    served: Served, tool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = served.ask("slow", tool, base=served.ids["even"])
    assert answer.status_code == 200
    runs = ("--run", "even", "--other-run", "slow")
    with pytest.raises(SystemExit) as end:
        main(["diff", str(served.logs), *runs, "--tool", tool, "--json"])
    assert end.value.code == int(ExitCode.DONE)
    told = json.loads(capsys.readouterr().out)
    for name in ("summary", "tables", "basis", "status", "notes"):
        assert answer.json()[name] == told[name]
    assert answer.json()["base"]["scope"]["capture"] == served.ids["even"]


def test_a_slow_host_is_significant_and_csv_has_the_same_rows(served: Served) -> None:
    found = served.ask("slow", "pod_viewer", base=served.ids["even"]).json()
    assert found["summary"]["step_time"]["is_significant"] is True
    answer = served.ask("slow", "pod_viewer", base=served.ids["even"], format="csv", table="steps")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    own = {row["host"]: row["significance"] for row in rows if row["measure"] == "own_work_us"}
    assert own == {HOSTS[0]: "within_noise", HOSTS[1]: "significant"}
    packed = served.ask("slow", "pod_viewer", base=served.ids["even"], format="csv")
    assert packed.headers["content-type"] == "application/zip"


def test_hosts_and_steps_of_one_capture(served: Served) -> None:
    hosts = {"host": HOSTS[1], "base_host": HOSTS[0]}
    for tool in ("pod_viewer", "overview_page", "hlo_stats", "memory_profile"):
        found = served.ask("slow", tool, **hosts).json()
        assert (found["status"], found["notes"]) == ("ok", [])
        assert [found[side]["scope"]["hosts"] for side in ("base", "other")] == [
            [HOSTS[0]],
            [HOSTS[1]],
        ]
    steps = served.ask("even", "overview_page", steps="4-7", base_steps="0-3").json()
    assert steps["summary"]["step_time"]["is_significant"] is False
    assert (steps["base"]["steps"], steps["other"]["steps"]) == ([0, 3], [4, 7])
    found = served.ask("even", "hlo_stats", steps="4-7", base_steps="0-3").json()
    assert set(found["tables"]) == {"steps", "totals"}
    ids = [column["id"] for column in found["tables"]["steps"]["columns"]]
    rows = [dict(zip(ids, row, strict=True)) for row in found["tables"]["steps"]["rows"]]
    assert {(row["base_steps"], row["other_steps"]) for row in rows} == {(4, 4)}
    assert sum(row["base_mean"] for row in rows) == pytest.approx(
        found["summary"]["step_time"]["base_mean"], rel=0.05
    )


def test_the_service_lists_every_tool_with_the_hosts_that_it_has_results_of(served: Served) -> None:
    items = served.client.get(f"/api/v1/captures/{served.ids['slow']}/tools").json()["items"]
    assert [item["name"] for item in items] == list(TOOLS)
    by_name = {item["name"]: item for item in items}
    assert by_name["memory_viewer"]["hosts"] == HOSTS
    assert by_name["overview_page"]["hosts"] == []
    assert (by_name["hlo_stats"]["status"], by_name["kernel_stats"]["status"]) == ("ok", "empty")
    for name in TOOLS:
        route = f"/api/v1/captures/{served.ids['slow']}/tools/{name}"
        assert served.client.get(route).json()["tool"] == name
        if name not in {"graph_viewer", "pod_viewer"}:
            assert served.client.get(route, params={"format": "xprof"}).status_code == 200, name


def test_captures_that_cannot_be_compared_say_why(served: Served) -> None:
    answer = served.ask("gpu", "overview_page", base=served.ids["even"])
    assert answer.status_code == 200
    assert answer.json()["status"] == "not_comparable"
    assert [one["code"] for one in answer.json()["reasons"]] == ["different_device"]


@pytest.mark.parametrize(
    ("tool", "query", "status", "detail"),
    [
        ("hlo_stats", {}, 422, "both sides are the same"),
        ("hlo_stats", {"base_steps": "x"}, 422, "steps 'x' are not understood"),
        ("hlo_stats", {"base_host": "w9"}, 404, "w9"),
        ("hlo_stats", {"base": "01a1fcf8-d4ac-7efa-984a-1a67e445c763"}, 404, "no capture"),
        ("nonsense", {"base_steps": "1"}, 404, "no tool 'nonsense'"),
        ("hlo_stats", {"base_steps": "1", "x": "1"}, 422, "has no parameter 'x'"),
    ],
)
def test_what_cannot_be_asked_is_problem_json(
    served: Served, tool: str, query: dict[str, str], status: int, detail: str
) -> None:
    answer = served.ask("even", tool, **query)
    assert answer.status_code == status
    assert detail in answer.json()["detail"]
