"""The routes of XProf's server: what its web pages and scripts ask, in the shapes they read."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.pipeline import analyze_host, run_tool_xprof

PODS = {"run_b": Pod("tpu-v5e", 2, 6, 3), "run_a": Pod("gpu-h100", 1, 4)}
HOSTS = [PODS["run_b"].hostname(host) for host in range(2)]
ALL = "ALL_HOSTS"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, serving: Any) -> Iterator[Any]:
    with serving(tmp_path_factory.mktemp("xprof"), PODS) as service:
        yield service


def _get(served: Any, route: str, **query: str) -> Any:
    return served.client.get(f"/data/plugin/profile/{route}", params=query)


def test_runs_are_the_captures_sessions_backwards(served: Any) -> None:
    found = _get(served, "runs")
    assert found.headers["content-type"] == "application/json"
    assert [name.rpartition("-")[0] or name for name in found.json()] == ["run_b", "run_a"]


def _run(served: Any, name: str) -> str:
    return str(next(run for run in _get(served, "runs").json() if run.startswith(name)))


def test_tools_of_a_run_are_those_with_something_to_show(served: Any) -> None:
    tpu = _get(served, "run_tools", run=_run(served, "run_b")).json()
    gpu = _get(served, "run_tools", run=_run(served, "run_a")).json()
    assert {"overview_page", "op_profile", "memory_viewer", "roofline_model"} <= set(tpu)
    assert "kernel_stats" in gpu
    assert "kernel_stats" not in tpu


@pytest.mark.parametrize(
    ("tool", "names"),
    [
        ("overview_page", [ALL]),
        ("pod_viewer", [ALL]),
        ("framework_op_stats", [ALL, *HOSTS]),
        ("input_pipeline_analyzer", [ALL, *HOSTS]),
        ("hlo_stats", HOSTS),
        ("op_profile", HOSTS),
        ("memory_viewer", HOSTS),
    ],
)
def test_hosts_of_a_tool_are_those_that_xprof_lists(
    served: Any, tool: str, names: list[str]
) -> None:
    found = _get(served, "hosts", run=_run(served, "run_b"), tag=tool).json()
    assert found == [{"hostname": name} for name in names]


def test_a_single_host_is_listed_by_its_name_for_every_tool(served: Any) -> None:
    found = _get(served, "hosts", run=_run(served, "run_a"), tag="overview_page").json()
    assert found == [{"hostname": PODS["run_a"].hostname(0)}]


def test_modules_version_and_config_are_as_xprofs_pages_read_them(served: Any) -> None:
    pod = PODS["run_b"]
    modules = _get(served, "module_list", run=_run(served, "run_b"))
    assert modules.text == pod.program.module_name
    assert modules.headers["content-type"].startswith("text/plain")
    assert _get(served, "version").text == "2.24.2"
    assert _get(served, "config").json() == {
        "enableTabNameLabel": False,
        "hideCaptureProfileButton": True,
        "srcPathPrefix": None,
    }


@pytest.mark.parametrize(
    ("tool", "query"),
    [
        ("overview_page", {"host": ALL}),
        ("overview_page", {"host": HOSTS[0]}),
        ("pod_viewer", {}),
        ("framework_op_stats", {"host": ALL, "tqx": "out:json", "use_saved_result": "true"}),
        ("hlo_stats", {"host": HOSTS[1]}),
        ("hlo_stats", {"hosts": HOSTS[1]}),
        ("op_profile", {"host": HOSTS[0], "group_by": "category"}),
        ("memory_viewer", {"host": HOSTS[0], "module_name": "", "memory_space": "0"}),
    ],
)
def test_data_is_xprofs_answer_of_the_same_hosts(
    served: Any, tool: str, query: dict[str, str]
) -> None:
    pod = PODS["run_b"]
    named = query.get("host") or query.get("hosts") or ALL
    chosen = range(2) if named == ALL or tool == "overview_page" else [HOSTS.index(named)]
    partials = [
        analyze_host(build_xspace(pod, host, pod.steps_window()), pod.hostname(host))
        for host in chosen
    ]
    parameters = {k: v for k, v in query.items() if k in {"group_by", "memory_space"}}
    found = _get(served, "data", run=_run(served, "run_b"), tag=tool, **query)
    assert found.status_code == 200
    assert found.json() == run_tool_xprof(tool, partials, parameters)


def test_a_table_is_given_as_csv_with_xprofs_labels(served: Any) -> None:
    asked = {"run": _run(served, "run_b"), "tag": "hlo_stats", "host": HOSTS[0]}
    table = _get(served, "data", **asked).json()
    found = _get(served, "data_csv", **asked)
    assert found.headers["content-type"].startswith("text/csv")
    assert "hlo_stats.csv" in found.headers["content-disposition"]
    header, *rows = csv.reader(io.StringIO(found.text))
    assert header == [column["label"] for column in table["cols"]]
    assert len(rows) == len(table["rows"])
    at = header.index("HLO op name")
    assert [row[at] for row in rows] == [row["c"][at]["v"] for row in table["rows"]]
    assert _get(served, "data", **asked, tqx="out:csv;").text == found.text


def test_a_run_whose_name_is_of_another_script_is_given_as_csv(
    tmp_path: Path, serving: Any
) -> None:
    with serving(tmp_path, {"日本": Pod("gpu-h100", 1, 4)}) as service:
        (run,) = _get(service, "runs").json()
        assert run.startswith("日本")
        asked = {"run": run, "tag": "kernel_stats"}
        found = _get(service, "data_csv", **asked)
        assert found.status_code == 200
        assert found.text == _get(service, "data", **asked, tqx="out:csv;").text
        name = found.headers["content-disposition"]
        assert name == 'attachment; filename="' + run.replace("日本", "__") + '_kernel_stats.csv"'


@pytest.mark.parametrize(
    ("route", "query", "status", "words"),
    [
        ("data", {"run": "run_b", "tag": "nonsense"}, 404, "No Data"),
        ("data", {"run": "nowhere", "tag": "hlo_stats"}, 404, "no run 'nowhere'"),
        ("data", {"run": "run_b", "tag": "hlo_stats", "host": "w9"}, 404, "w9"),
        ("run_tools", {"run": "nowhere"}, 404, "no run 'nowhere'"),
        ("data_csv", {"run": "run_b", "tag": "op_profile"}, 400, "is no table"),
        ("data", {"run": "run_b", "tag": "graph_viewer", "type": "graph"}, 422, "node_name"),
    ],
)
def test_errors_are_a_line_of_text(
    served: Any, route: str, query: dict[str, str], status: int, words: str
) -> None:
    asked = {**query, "run": query["run"].replace("run_b", _run(served, "run_b"))}
    found = _get(served, route, **asked)
    assert found.status_code == status
    assert found.headers["content-type"].startswith("text/plain")
    assert words in found.text
