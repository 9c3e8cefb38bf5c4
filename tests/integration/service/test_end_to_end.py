"""A capture from the API through broker, workers and storage into rows, and back out."""

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TOOLS = ("overview_page", "pod_viewer", "framework_op_stats")


SERVERS = pytest.param("servers", marks=[pytest.mark.postgres, pytest.mark.redis])


@pytest.mark.parametrize("variant", ["embedded", SERVERS])
def test_a_capture_is_taken_stored_analysed_and_shown(
    variant: str, start: Callable[..., Any], pod: list[str], request: pytest.FixtureRequest
) -> None:
    variables = {}
    if variant == "servers":
        variables["PODSCOPE_COLLECTOR_DATABASE_URL"] = request.getfixturevalue("postgres_url")
        variables["PODSCOPE_BROKER_URL"] = request.getfixturevalue("redis_url")
    podscope = start(**variables)
    nobody = "127.0.0.1:1"
    capture_id = podscope.capture([*pod, nobody], labels={"run": "llm-7b"})

    # Live status follows to the end and then stops by itself.
    events: list[tuple[str, Any]] = []
    with podscope.http.stream("GET", f"/api/v1/captures/{capture_id}/events", timeout=90) as stream:
        name = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                events.append((name, json.loads(line.removeprefix("data: "))))
    capture = podscope.get(f"/captures/{capture_id}")
    assert events[-1] == ("capture", capture)

    assert (capture["state"], capture["run"]) == ("partial", "llm-7b")
    assert (capture["hosts_done"], capture["hosts_total"]) == (3, 4)
    assert capture["analysis"] == {
        "state": "done",
        "hosts_done": 3,
        "hosts_total": 3,
        "error": None,
    }
    summary = capture["summary"]
    # Hosts take eight steps each; on a busy machine their windows may begin a step or two apart.
    assert 1 <= summary["step_count"] <= 8
    assert summary["step_time_ms"] > 0
    assert 0 < summary["duty_cycle_ratio"] <= 1

    hosts = podscope.get(f"/captures/{capture_id}/hosts")["items"]
    assert [host["target"] for host in hosts] == [*pod, nobody]
    assert [host["state"] for host in hosts] == ["done"] * 3 + ["failed"]
    assert hosts[3]["reason"] in {"unreachable", "refused"}
    for host in hosts[:3]:
        file = podscope.data_dir / "profiles" / host["file"]
        folder = f"plugins/profile/{capture['session']}"
        assert host["file"] == f"{folder}/{host['host']}.xplane.pb"
        answer = podscope.http.get(f"/api/v1/captures/{capture_id}/hosts/{host['host']}/xspace")
        assert answer.content == file.read_bytes()
        assert hashlib.sha256(answer.content).hexdigest() == host["sha256"]

    tools = {tool["name"]: tool for tool in podscope.get(f"/captures/{capture_id}/tools")["items"]}
    for tool in TOOLS:
        assert (tools[tool]["state"], tools[tool]["status"]) == ("done", "ok")
        result = podscope.get(f"/captures/{capture_id}/tools/{tool}")
        assert result["tool"] == tool
        assert result["scope"]["capture"] == capture_id
        assert result["scope"]["hosts"] == [host["host"] for host in hosts[:3]]
        assert [m["host"] for m in result["scope"]["missing_hosts"]] == [hosts[3]["host"]]
        assert podscope.get(f"/captures/{capture_id}/tools/{tool}", format="xprof")
    one = podscope.get(f"/captures/{capture_id}/tools/framework_op_stats", host=hosts[1]["host"])
    assert one["scope"]["hosts"] == [hosts[1]["host"]]
    # A tool that works on a part: its stored answer, and one computed for a parameter.
    url = f"/captures/{capture_id}/tools/memory_viewer"
    memory = podscope.get(url)
    assert (memory["status"], memory["scope"]["hosts"]) == (
        "ok",
        [min(h["host"] for h in hosts[:3])],
    )
    (program,) = {row[0] for row in memory["result"]["programs"]["rows"]}
    again = podscope.get(url, host=hosts[1]["host"], module_name=program, small_buffer_bytes="0")
    assert again["scope"]["hosts"] == [hosts[1]["host"]]
    assert again["result"]["summary"]["peak_bytes"] == memory["result"]["summary"]["peak_bytes"]
    buffers = [len(one["result"]["peak_buffers"]["rows"]) for one in (memory, again)]
    assert buffers[0] < buffers[1]
    assert podscope.get(url, format="xprof")["moduleName"] == program.partition("(")[0]
    page = podscope.http.get(
        f"/api/v1{url}", params={"format": "xprof", "view_memory_allocation_timeline": "true"}
    )
    assert page.headers["content-type"].startswith("text/html")
    assert "sandbox" in page.headers["content-security-policy"]
    assert page.text.startswith("<!DOCTYPE html>")
    query = {"format": "csv", "table": "steps"}
    csv = podscope.http.get(
        f"/api/v1/captures/{capture_id}/tools/pod_viewer",
        params=query,
    )
    assert csv.headers["content-type"].startswith("text/csv")
    assert len(csv.text.splitlines()) >= 1 + 3 * summary["step_count"]

    metrics = podscope.http.get("/metrics").text
    assert 'podscope_captures_total{result="partial",trigger="api"} 1.0' in metrics
    assert 'podscope_capture_hosts_total{reason="",result="done"} 3.0' in metrics
    for host in hosts[:3]:
        labels = f'accelerator="{summary["device_type"]}",host="{host["host"]}",run="llm-7b"'
        assert f"podscope_device_duty_cycle_ratio{{{labels}}}" in metrics
        assert f"podscope_device_flops_per_second{{{labels}}}" in metrics
        count = f'podscope_step_duration_seconds_count{{host="{host["host"]}",run="llm-7b"}}'
        steps = float(metrics.partition(f"{count} ")[2].partition("\n")[0])
        assert summary["step_count"] <= steps <= 8
    exemplars = podscope.http.get(
        "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    ).text
    assert f'# {{capture_id="{capture_id}"}}' in exemplars


def test_a_schedule_captures_by_itself(start: Callable[..., Any], pod: list[str]) -> None:
    podscope = start()
    body = {"targets": pod[:1], "duration_ms": 200, "every_s": 2, "labels": {"run": "nightly"}}
    schedule = podscope.http.post("/api/v1/schedules", json=body)
    assert schedule.status_code == 201, schedule.text
    schedule_id = schedule.json()["id"]
    items: list[Any] = []
    deadline = time.monotonic() + 300
    while len(items) < 2:
        assert time.monotonic() < deadline, podscope.log.read_text()
        time.sleep(0.2)
        found = podscope.get("/captures", run="nightly")["items"]
        items = [capture for capture in found if capture["state"] == "complete"]
    assert items[0]["trigger"] == "schedule"
    assert items[0]["schedule_id"] == schedule_id
    assert podscope.http.delete(f"/api/v1/schedules/{schedule_id}").status_code == 204
    assert podscope.get("/schedules")["items"] == []
