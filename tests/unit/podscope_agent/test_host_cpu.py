import threading
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from podscope_agent.live.host_cpu import CpuUse, busy_ratio


class Times(NamedTuple):
    """As ``psutil.cpu_times()`` of Linux."""

    user: float = 0.0
    system: float = 0.0
    idle: float = 0.0
    iowait: float = 0.0
    guest: float = 0.0


@pytest.mark.parametrize(
    ("after", "ratio"),
    [
        (Times(user=1, idle=3), 0.25),
        (Times(user=1, system=1, iowait=2), 0.5),
        # A guest's second is the user's second.
        (Times(user=1, idle=1, guest=1), 0.5),
        (Times(user=2), 1.0),
        (Times(), None),
    ],
)
def test_waiting_for_disks_is_not_busy_and_guests_count_once(
    after: Times, ratio: float | None
) -> None:
    assert busy_ratio(Times(), after) == ratio


def test_every_thread_is_told_the_same_share_of_the_last_reading() -> None:
    state: Any = SimpleNamespace(now=0.0, times=Times())
    use = CpuUse(lambda: state.times, lambda: state.now)
    assert use.ratio() is None
    state.now, state.times = 0.5, Times(user=0.1, idle=0.3)
    assert use.ratio() == pytest.approx(0.25)
    state.now, state.times = 10.0, Times(user=5, idle=5)
    got: list[float | None] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: got.append(use.ratio()))
        thread.start()
        thread.join()
    assert got == [0.5, 0.5, 0.5]
    # From the last reading on, not from the beginning.
    state.now, state.times = 20.0, Times(user=5, idle=15)
    assert use.ratio() == 0.0
