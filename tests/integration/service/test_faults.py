"""Workers and brokers that die in the middle lose nothing, and nothing hangs."""

import csv
import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import grpc
import pytest

from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XEvent, XLine, XPlane

pytestmark = pytest.mark.slow


def test_a_capture_of_a_killed_worker_goes_on_in_the_next_one(
    start: Callable[..., Any], pod: list[str]
) -> None:
    podscope = start(PODSCOPE_COLLECTOR_WORK_LEASE="3")
    capture_id = podscope.capture(pod, duration_ms=6_000)
    deadline = time.monotonic() + 300
    while podscope.get(f"/captures/{capture_id}/hosts")["items"][0]["state"] != "capturing":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    podscope.child("worker", "capture,maintenance").kill()
    capture = podscope.ended(capture_id, 90)
    assert (capture["state"], capture["analysis"]["state"]) == ("complete", "done")
    hosts = podscope.get(f"/captures/{capture_id}/hosts")["items"]
    assert {(host["state"], host["attempts"]) for host in hosts} == {("done", 2)}
    tries = podscope.get(f"/captures/{capture_id}/attempts")["items"]
    assert [(one["host"], one["number"], one["reason"]) for one in tries] == [
        (host["host"], number, reason)
        for host in hosts
        for number, reason in ((1, "interrupted"), (2, None))
    ]


def test_hosts_that_are_done_when_the_worker_is_killed_are_kept_and_not_captured_again(
    start: Callable[..., Any], hanging_pod: list[str]
) -> None:
    podscope = start(PODSCOPE_COLLECTOR_WORK_LEASE="3")
    # The lease of the dead worker is longer than what a host is given: too late to begin again.
    capture_id = podscope.capture(hanging_pod, duration_ms=300, attempts=5, timeout_ms=2_500)

    def hosts() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = podscope.get(f"/captures/{capture_id}/hosts")["items"]
        return found

    deadline = time.monotonic() + 300
    before = hosts()
    while [host["state"] for host in before][:2] != ["done", "done"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        before = hosts()
    podscope.child("worker", "capture,maintenance").kill()
    capture = podscope.ended(capture_id, 60)

    assert (capture["state"], capture["hosts_done"]) == ("partial", 2)
    assert capture["analysis"]["state"] == "done"
    after = hosts()
    assert (after[2]["state"], after[2]["reason"]) == ("failed", "interrupted")
    kept = ("state", "attempts", "bytes", "sha256", "file", "finished_at")
    for old, new in zip(before[:2], after[:2], strict=True):
        assert {name: new[name] for name in kept} == {name: old[name] for name in kept}
        assert new["attempts"] == 1
        stored = (podscope.data_dir / "profiles" / new["file"]).read_bytes()
        assert hashlib.sha256(stored).hexdigest() == new["sha256"]


def test_a_broker_that_dies_during_a_capture_loses_nothing(
    start: Callable[..., Any], pod: list[str]
) -> None:
    podscope = start()
    capture_id = podscope.capture(pod, duration_ms=3_000)
    deadline = time.monotonic() + 300
    while podscope.get(f"/captures/{capture_id}/hosts")["items"][0]["state"] != "capturing":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    broker = podscope.broker()
    broker.kill()
    broker.wait(120)
    capture = podscope.ended(capture_id, 120)
    assert (capture["state"], capture["analysis"]["state"]) == ("complete", "done")
    assert podscope.broker().pid != broker.pid
    again = podscope.ended(podscope.capture(pod), 90)
    assert (again["state"], again["analysis"]["state"]) == ("complete", "done")


def test_a_cancelled_capture_frees_its_hosts_at_once(
    start: Callable[..., Any], pod: list[str]
) -> None:
    podscope = start()
    capture_id = podscope.capture(pod, duration_ms=60_000)
    deadline = time.monotonic() + 300
    while podscope.get(f"/captures/{capture_id}/hosts")["items"][0]["state"] != "capturing":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert podscope.http.post(f"/api/v1/captures/{capture_id}/cancel").status_code == 202
    cancelled = podscope.ended(capture_id, 20)
    assert cancelled["state"] == "cancelled"
    hosts = podscope.get(f"/captures/{capture_id}/hosts")["items"]
    assert {(host["state"], host["reason"]) for host in hosts} == {("cancelled", "cancelled")}
    assert podscope.ended(podscope.capture(pod), 90)["state"] == "complete"
    again = podscope.http.post(f"/api/v1/captures/{capture_id}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


@contextmanager
def damaged_host() -> Iterator[str]:
    """A profiler server of whose profile one event ends in the middle of a number."""
    line = XLine(name="main", events=[XEvent(offset_ps=1, duration_ps=1)]).SerializeToString()
    line += b"\x22\x02\x08\xff"
    plane = XPlane(name="/host:CPU").SerializeToString() + b"\x1a" + bytes([len(line)]) + line
    space = b"\x0a" + bytes([len(plane)]) + plane
    answer = wire.ProfileResponse(xspace=space).SerializeToString()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    profile = grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(methods.PROFILER_SERVICE, {"Profile": profile}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_a_profile_that_is_found_damaged_by_its_analysis_fails_its_host_alone(
    start: Callable[..., Any], pod: list[str]
) -> None:
    podscope = start()
    with damaged_host() as address:
        capture_id = podscope.capture([pod[0], address])
        capture = podscope.ended(capture_id)
    assert (capture["state"], capture["hosts_done"]) == ("partial", 1)
    assert capture["analysis"]["state"] == "done"
    good, bad = podscope.get(f"/captures/{capture_id}/hosts")["items"]
    assert good["state"] == "done"
    assert (bad["state"], bad["reason"], bad["file"]) == ("failed", "corrupt", None)
    assert "plane '/host:CPU', line 'main'" in bad["message"]
    profiles = podscope.data_dir / "profiles"
    session = profiles / "plugins" / "profile" / capture["session"]
    assert [path.name for path in session.iterdir()] == [f"{good['host']}.xplane.pb"]
    assert (profiles / ".podscope" / "rejected" / capture["session"] / bad["host"]).is_file()
    missing = podscope.get(f"/captures/{capture_id}/tools/pod_viewer")["scope"]["missing_hosts"]
    assert missing == [{"host": bad["host"], "reason": "corrupt"}]


def test_a_retry_captures_only_the_host_that_was_lost(
    start: Callable[..., Any],
    pod: list[str],
    closed_port: int,
    host_on: Callable[[int], AbstractContextManager[list[str]]],
) -> None:
    podscope = start()
    capture_id = podscope.capture([*pod, f"127.0.0.1:{closed_port}"])
    first = podscope.ended(capture_id)
    assert (first["state"], first["hosts_done"]) == ("partial", 3)
    done = podscope.get(f"/captures/{capture_id}/hosts")["items"][:3]
    with host_on(closed_port):
        answer = podscope.http.post(f"/api/v1/captures/{capture_id}/retry")
        assert answer.status_code == 202, answer.text
        second = podscope.ended(capture_id)
    assert (second["state"], second["session"]) == ("complete", first["session"])
    assert second["analysis"]["hosts_done"] == 4
    hosts = podscope.get(f"/captures/{capture_id}/hosts")["items"]
    assert hosts[:3] == done
    attempts = podscope.get(f"/captures/{capture_id}/attempts")["items"]
    assert [(a["host"], a["number"], a["state"]) for a in attempts[3:]] == [
        (hosts[3]["host"], 1, "failed"),
        (hosts[3]["host"], 2, "done"),
    ]
    everyone = podscope.get(f"/captures/{capture_id}/tools/pod_viewer")
    assert everyone["scope"]["missing_hosts"] == []


def _retry_with_a_killed_worker(
    podscope: Any, capture_id: str, moment: Callable[[], bool]
) -> dict[str, Any]:
    """Retry the lost host, kill the worker of the analyses at a moment, wait for the end."""
    answer = podscope.http.post(f"/api/v1/captures/{capture_id}/retry")
    assert answer.status_code == 202, answer.text
    deadline = time.monotonic() + 300
    while not moment():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    podscope.child("worker", "ingest,analyze").kill()
    ended: dict[str, Any] = podscope.ended(capture_id, 120)
    return ended


@pytest.mark.parametrize("moment", ["captured", "merged"])
def test_a_late_host_is_merged_into_the_results_though_its_worker_is_killed(
    start: Callable[..., Any],
    pod: list[str],
    closed_port: int,
    host_on: Callable[[int], AbstractContextManager[list[str]]],
    moment: str,
) -> None:
    podscope = start(PODSCOPE_COLLECTOR_WORK_LEASE="3")
    capture_id = podscope.capture([*pod, f"127.0.0.1:{closed_port}"])
    first = podscope.ended(capture_id)
    tools = f"/captures/{capture_id}/tools"
    before = podscope.get(f"{tools}/overview_page")
    names = [host["host"] for host in podscope.get(f"/captures/{capture_id}/hosts")["items"]]
    assert before["scope"]["hosts"] == names[:3]
    folder = podscope.data_dir / "profiles" / ".podscope" / "pods" / first["session"]
    kept = sorted(folder.iterdir())
    assert len(kept) == 1

    def is_captured() -> bool:
        hosts = podscope.get(f"/captures/{capture_id}/hosts")["items"]
        return bool(hosts[3]["state"] == "done")

    def is_merged() -> bool:
        return len(list(folder.iterdir())) > 1

    with host_on(closed_port):
        moments = {"captured": is_captured, "merged": is_merged}
        second = _retry_with_a_killed_worker(podscope, capture_id, moments[moment])

    assert second["analysis"]["state"] == "done"
    for tool in ("overview_page", "pod_viewer", "framework_op_stats"):
        after = podscope.get(f"{tools}/{tool}")
        assert after["scope"]["hosts"] == names
        assert after["scope"]["missing_hosts"] == []
    overview = podscope.get(f"{tools}/overview_page")
    assert overview["result"]["run_environment"]["host_count"] == 4
    # Merged, not made anew; a worker that died in between may have left a file that nobody uses.
    files = sorted(folder.iterdir())
    assert set(kept) < set(files)
    query = {"format": "csv", "table": "steps"}
    table = podscope.http.get(f"/api/v1{tools}/pod_viewer", params=query).text
    assert {row["host"] for row in csv.DictReader(table.splitlines())} == set(names)
