"""Whether what is left of wrong clocks is told, and slow hosts are not taken for it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.clocks import HostClock
from podscope_analyzers.common_ends import CommonEnds, find_common_ends
from podscope_analyzers.pipeline import analyze_host, combine
from podscope_analyzers.steps.database import CORES_PER_HOST, Collectives, StepDatabase

HOSTS, SLOW = 4, 2
MS = 1_000_000_000
WRONG_NS = 100_000


@cache
def _pod(device: str, skew_ms: float = 6.0) -> tuple[Pod, CaptureStats]:
    pod = Pod(device, HOSTS, 8, seed=7, slow_host=SLOW, slow_factor=1.2, clock_skew_ms=skew_ms)
    hosts = [analyze_host(build_xspace(pod, host), f"h{host}") for host in range(HOSTS)]
    return pod, combine(hosts)


def _clocks(pod: Pod, wrong: int | None = None) -> dict[str, HostClock]:
    """All clocks as they are, but for one that was measured wrong."""
    return {
        f"h{host}": HostClock(pod.clock_offset_ns(host) - (WRONG_NS if host == wrong else 0), 0)
        for host in range(HOSTS)
    }


def _found(stats: CaptureStats, clocks: dict[str, HostClock]) -> CommonEnds:
    found = find_common_ends(stats, clocks)
    assert found is not None
    return found


BASES = [("tpu-v5e", "collective_ends"), ("gpu-h100", "collective_ends"), ("cpu", "step_ends")]


@pytest.mark.parametrize(("device", "basis"), BASES)
def test_right_clocks_show_the_same_at_common_ends_though_a_host_is_slow(
    device: str, basis: str
) -> None:
    pod, stats = _pod(device)
    found = _found(stats, _clocks(pod))
    assert found.basis == basis
    assert found.difference_ns == pytest.approx({f"h{host}": 0 for host in range(HOSTS)}, abs=2)
    assert found.residual_ns <= 2
    assert found.ends >= 8


@pytest.mark.parametrize(("device", "basis"), BASES)
def test_a_clock_that_was_measured_wrong_is_told_by_how_much(device: str, basis: str) -> None:
    pod, stats = _pod(device)
    found = _found(stats, _clocks(pod, wrong=1))
    assert found.basis == basis
    assert found.difference_ns["h1"] == pytest.approx(WRONG_NS, abs=2)
    assert found.residual_ns == pytest.approx(WRONG_NS, abs=2)


def test_clocks_that_nobody_measured_are_told_apart_as_planted() -> None:
    pod, stats = _pod("tpu-v5e")
    planted = [pod.clock_offset_ns(host) for host in range(HOSTS)]
    found = _found(stats, {})
    assert found.residual_ns == pytest.approx(max(planted) - min(planted), abs=2)


def test_a_clock_half_a_step_away_may_count_other_steps_and_is_named() -> None:
    pod, stats = _pod("tpu-v5e")
    clocks = _clocks(pod)
    clocks["h3"] = HostClock(pod.clock_offset_ns(3) + 10 * 10**9, 0)
    found = _found(stats, clocks)
    assert found.unplaced == ("h3",)
    assert set(found.difference_ns) == {"h0", "h1", "h2"}
    assert found.residual_ns <= 2


def _meeting(ends_ms: dict[int, list[list[float]]]) -> CaptureStats:
    """Three hosts with these ends by place in the step, of every step by host."""
    _, stats = _pod("tpu-v5e")
    rows = [
        (step, host * CORES_PER_HOST, 1 + place, end)
        for place, steps in ends_ms.items()
        for step, hosts in enumerate(steps)
        for host, end in enumerate(hosts)
    ]
    step, core, identity, end = (np.array(column) for column in zip(*rows, strict=True))
    count = int(step.max()) + 1
    row_step, host = (axis.reshape(-1) for axis in np.indices((count, 3), dtype=np.int64))
    end_ps = np.round(end * MS).astype(np.int64)
    steps = replace(
        StepDatabase.empty("tpu", has_device=True),
        step_numbers=np.arange(count),
        row_step=row_step,
        core_id=host * CORES_PER_HOST,
        host_index=host,
        begin_ps=row_step * 100 * MS,
        duration_ps=np.full(len(row_step), 100 * MS),
        collectives=Collectives(
            step=step,
            core_id=core,
            id=identity,
            begin_ps=end_ps - MS,
            end_ps=end_ps,
            size_bytes=np.zeros(len(step), np.int64),
        ),
    )
    hosts = tuple(
        replace(one, facts=replace(one.facts, time_base_ns=10**18)) for one in stats.hosts[:3]
    )
    return replace(stats, hosts=hosts, all_steps=steps)


def test_the_collective_whose_ends_keep_their_distance_tells() -> None:
    # The first lets its members go one by one, in another order every time. The second is left
    # together: h1's clock is 0.2 ms ahead, h2's 0.1 ms behind, give or take 0.01 ms.
    stats = _meeting(
        {
            0: [[10, 13, 11], [110, 110, 114], [213, 210, 210]],
            1: [[50, 50.2, 49.9], [150, 150.21, 149.9], [250, 250.2, 249.9]],
        }
    )
    found = _found(stats, {})
    assert (found.basis, found.ends) == ("collective_ends", 3)
    assert found.difference_ns == {"h0": 0, "h1": 200_000, "h2": -100_000}
    assert found.residual_ns == 300_000
    # All but one of h1's ends agree: their median deviation is nothing.
    assert found.error_ns == 0


def test_the_error_is_how_much_the_ends_scatter() -> None:
    # h1's ends lie 0.1, 0.2 and 0.3 ms behind the median host's: off by 0.1 ms from their median.
    stats = _meeting({0: [[50, 50.1, 50], [150, 150.2, 150], [250, 250.3, 250]]})
    found = _found(stats, {})
    assert found.difference_ns == {"h0": 0, "h1": 200_000, "h2": 0}
    assert found.error_ns == pytest.approx(2 * 1.4826 * 100_000, abs=1)


def test_a_host_alone_has_nobody_to_compare_with() -> None:
    pod = Pod("tpu-v5e", 1, 8)
    assert find_common_ends(combine([analyze_host(build_xspace(pod, 0), "h0")])) is None
