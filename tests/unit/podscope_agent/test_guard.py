import grpc
import pytest
from prometheus_client import generate_latest

from podscope_agent.guard import Budget, OverheadGuard
from podscope_agent.live.exporter import AgentMetrics, LiveFigures
from podscope_agent.rpc import RpcFailure


def refusal(guard: OverheadGuard, duration_s: float) -> str:
    with pytest.raises(RpcFailure) as failure:
        guard.admit(duration_s)
    assert failure.value.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    return failure.value.details


def test_without_limits_everything_is_admitted() -> None:
    guard = OverheadGuard(Budget(max_duration_s=0))
    guard.ended(3600)
    guard.admit(10_000)


def test_a_long_window_is_refused_with_the_limit() -> None:
    guard = OverheadGuard(Budget(max_duration_s=5))
    guard.admit(5)
    assert "allows (5 s)" in refusal(guard, 5.1)


def test_captures_are_kept_apart_and_the_wait_is_told() -> None:
    guard = OverheadGuard(Budget(min_interval_s=60))
    guard.admit(1)
    guard.ended(1)
    assert "60 s apart; try again in 60 s" in refusal(guard, 1)


def test_the_share_of_an_hour_counts_what_was_captured_and_what_is_to_be() -> None:
    # One per cent of an hour is 36 s.
    guard = OverheadGuard(Budget(max_time_ratio=0.01))
    guard.admit(36)
    guard.ended(30)
    guard.admit(6)
    assert refusal(guard, 6.1) == (
        "30.0 s of the last hour were captured, and this agent may capture 36 s of each; capture "
        "shorter, or try again in 3600 s"
    )
    assert "longer than the 36 s of each hour" in refusal(guard, 37)


def test_what_would_be_refused_is_told_and_costs_nothing() -> None:
    guard = OverheadGuard(Budget(min_free_disk_bytes=500 << 20), lambda: 90 << 20)
    assert guard.refusal(1) == "90 MiB of disk are free, and this agent keeps 500 MiB free"
    assert OverheadGuard(Budget()).refusal(1) == ""


def test_a_host_short_of_memory_or_disk_is_left_alone() -> None:
    assert "of memory" in refusal(OverheadGuard(Budget(min_free_memory_bytes=1 << 60)), 1)
    guard = OverheadGuard(Budget(min_free_disk_bytes=2 << 20), lambda: 1 << 20)
    assert "1 MiB of disk are free, and this agent keeps 2 MiB free" in refusal(guard, 1)
    OverheadGuard(Budget(min_free_disk_bytes=1 << 20), lambda: 1 << 20).admit(1)


def test_what_captures_may_take_and_have_taken_is_exported() -> None:
    guard = OverheadGuard(Budget(max_time_ratio=0.01))
    metrics = AgentMetrics(LiveFigures("h", []))
    metrics.count_spending(lambda: guard.budget_s, lambda: guard.spent_s, lambda: None)
    guard.ended(2)
    guard.ended(0.5)
    text = generate_latest(metrics.registry).decode()
    assert "podscope_profiling_budget_seconds 36.0" in text
    assert "podscope_profiling_spent_seconds_total 2.5" in text
    assert OverheadGuard(Budget()).budget_s is None
