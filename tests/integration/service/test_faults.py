"""Workers and brokers that die in the middle lose nothing, and nothing hangs."""

import hashlib
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def test_a_capture_of_a_killed_worker_ends_interrupted_and_the_next_one_succeeds(
    start: Callable[..., Any], pod: list[str]
) -> None:
    podscope = start(PODSCOPE_COLLECTOR_WORK_LEASE="3")
    capture_id = podscope.capture(pod, duration_ms=20_000)
    deadline = time.monotonic() + 30
    while podscope.get(f"/captures/{capture_id}/hosts")["items"][0]["state"] != "capturing":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    podscope.child("worker", "capture,maintenance").kill()
    capture = podscope.ended(capture_id, 30)
    assert capture["state"] == "failed"
    hosts = podscope.get(f"/captures/{capture_id}/hosts")["items"]
    assert {(host["state"], host["reason"]) for host in hosts} == {("failed", "interrupted")}

    # The supervisor has started another; targets may be busy with the abandoned capture.
    again = podscope.ended(podscope.capture(pod, attempts=10), 90)
    assert again["state"] == "complete"
    assert again["analysis"]["state"] == "done"


def test_hosts_that_are_done_when_the_worker_is_killed_are_kept_and_not_captured_again(
    start: Callable[..., Any], hanging_pod: list[str]
) -> None:
    podscope = start(PODSCOPE_COLLECTOR_WORK_LEASE="3")
    capture_id = podscope.capture(hanging_pod, duration_ms=300, attempts=5)

    def hosts() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = podscope.get(f"/captures/{capture_id}/hosts")["items"]
        return found

    deadline = time.monotonic() + 30
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
    deadline = time.monotonic() + 30
    while podscope.get(f"/captures/{capture_id}/hosts")["items"][0]["state"] != "capturing":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    broker = podscope.broker()
    broker.kill()
    broker.wait(10)
    capture = podscope.ended(capture_id, 120)
    assert (capture["state"], capture["analysis"]["state"]) == ("complete", "done")
    assert podscope.broker().pid != broker.pid
    again = podscope.ended(podscope.capture(pod), 90)
    assert (again["state"], again["analysis"]["state"]) == ("complete", "done")
