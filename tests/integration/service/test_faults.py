"""Workers and brokers that die in the middle lose nothing, and nothing hangs."""

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
