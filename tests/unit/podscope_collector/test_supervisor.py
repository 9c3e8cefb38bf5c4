"""How soon a child that died is there again."""

import os
import sys
from collections.abc import Iterator

import pytest

from podscope_collector import supervisor as module
from podscope_collector.supervisor import ChildSpec, Supervisor


class Clock:
    """Stands in for the time module: passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def supervisor(clock: Clock) -> Iterator[Supervisor]:
    # A child that only waits for its end; its output goes where this process's does.
    found = Supervisor(grace_seconds=5)
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    found.start(ChildSpec("worker", command, dict(os.environ)))
    yield found
    found.stop()


def death_to_start(supervisor: Supervisor, clock: Clock, lived_s: float) -> float:
    """Let the child live so long, kill it, and measure how long nobody is there."""
    clock.now += lived_s
    pid = supervisor.pid("worker")
    assert pid is not None
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    died = clock.now
    supervisor.check()
    while supervisor.pid("worker") is None:
        clock.sleep(0.1)
        supervisor.check()
    return clock.now - died


def test_a_worker_that_dies_again_and_again_is_back_within_seconds(
    supervisor: Supervisor, clock: Clock
) -> None:
    pauses = [death_to_start(supervisor, clock, 0.5) for _ in range(7)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 1
    # A capture of which a host got half a minute outlives any of them.
    assert pauses[-1] < 5


def test_a_worker_that_lived_well_is_back_at_once(supervisor: Supervisor, clock: Clock) -> None:
    for _ in range(5):
        death_to_start(supervisor, clock, 0.5)
    assert death_to_start(supervisor, clock, 15) < 1
