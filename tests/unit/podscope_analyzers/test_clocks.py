"""Whether the pod viewer corrects the hosts' clocks, on pods whose clocks are off as planted."""

from functools import cache
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.clocks import HostClock
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Scope

HOSTS, SLOW = 4, 2
# Far more than a step takes to reach a collective, and less than half of a step.
SKEW_MS = 6.0
ERROR_NS = 20_000


@cache
def _pod(device: str, skew_ms: float = SKEW_MS) -> tuple[Pod, tuple[HostPartial, ...]]:
    pod = Pod(device, HOSTS, 8, seed=7, slow_host=SLOW, slow_factor=1.2, clock_skew_ms=skew_ms)
    # Stored and read back, as the service has them.
    hosts = (analyze_host(build_xspace(pod, host), f"h{host}") for host in range(HOSTS))
    return pod, tuple(HostPartial.from_bytes(host.to_bytes()) for host in hosts)


def _told(device: str, clocks: dict[str, HostClock], skew_ms: float = SKEW_MS) -> dict[str, Any]:
    _, hosts = _pod(device, skew_ms)
    scope = Scope([host.host for host in hosts], clocks=clocks)
    return dict(run_tool("pod_viewer", hosts, scope).result)


def _measured(device: str, error_ns: int = ERROR_NS, skew_ms: float = SKEW_MS) -> Any:
    pod, _ = _pod(device, skew_ms)
    return {f"h{host}": HostClock(pod.clock_offset_ns(host), error_ns) for host in range(pod.hosts)}


def _arrivals(told: dict[str, Any]) -> dict[str, tuple[float, str]]:
    names = [column["id"] for column in told["hosts"]["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in told["hosts"]["rows"]]
    return {row["host"]: (row["arrival_lateness_us"], row["arrival_basis"]) for row in rows}


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100"])
def test_lateness_by_corrected_clocks_is_that_by_durations(device: str) -> None:
    by_durations = _arrivals(_told(device, {}))
    told = _told(device, _measured(device))
    by_clocks = _arrivals(told)
    late, basis = by_clocks[f"h{SLOW}"]
    assert basis == "clocks"
    assert late == pytest.approx(by_durations[f"h{SLOW}"][0], rel=0.01)
    assert max(by_clocks, key=lambda host: by_clocks[host][0]) == f"h{SLOW}"
    (straggler,) = told["straggler"]["stragglers"]
    assert straggler["host"] == f"h{SLOW}"
    assert straggler["arrival"]["basis"] == "clocks"
    assert straggler["arrival"]["error_us"] == pytest.approx(2 * ERROR_NS / 1e3)
    assert straggler["arrival"]["matched_by"] == ("id" if device == "tpu-v5e" else "kind")
    (said,) = [one for one in straggler["evidence"] if "arrives" in one]
    assert "right to within 0.04 ms" in said
    assert ("matched by kind and order" in said) is (device == "gpu-h100")
    assert told["clocks"]["used_host_count"] == told["clocks"]["host_count"] == HOSTS


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100"])
def test_raw_clocks_would_blame_the_host_whose_clock_is_ahead(device: str) -> None:
    pod, _ = _pod(device)
    ahead = max(range(HOSTS), key=pod.clock_offset_ns)
    assert ahead != SLOW
    raw = {f"h{host}": HostClock(0, ERROR_NS) for host in range(HOSTS)}
    found = _arrivals(_told(device, raw))
    assert max(found, key=lambda host: found[host][0]) == f"h{ahead}"
    # The verdict itself is of work, and no clock changes it.
    assert _told(device, raw)["straggler"]["host"] == f"h{SLOW}"


def test_an_offset_with_a_large_error_is_not_used() -> None:
    told = _told("tpu-v5e", _measured("tpu-v5e", error_ns=10**9))
    assert {basis for _, basis in _arrivals(told).values()} == {"durations"}
    arrivals = told["arrivals"]
    basis = [column["id"] for column in arrivals["columns"]].index("basis")
    assert {row[basis] for row in arrivals["rows"]} == {"durations"}
    assert told["clocks"]["largest_error_us"] == pytest.approx(1e6)


def test_clocks_that_are_seconds_off_are_corrected_too() -> None:
    told = _told("tpu-v5e", _measured("tpu-v5e", skew_ms=5000.0), skew_ms=5000.0)
    found = _arrivals(told)
    assert found[f"h{SLOW}"][1] == "clocks"
    assert found[f"h{SLOW}"][0] == pytest.approx(
        _arrivals(_told("tpu-v5e", {}))[f"h{SLOW}"][0], rel=0.01
    )


def test_every_arrival_is_told_with_its_collective_the_latest_first() -> None:
    told = _told("tpu-v5e", _measured("tpu-v5e"))
    names = [column["id"] for column in told["arrivals"]["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in told["arrivals"]["rows"]]
    assert [row["lateness_us"] for row in rows] == sorted(
        (row["lateness_us"] for row in rows), reverse=True
    )
    assert rows[0]["host"] == f"h{SLOW}"
    assert all(
        row["error_us"] <= row["lateness_us"] / 3 for row in rows if row["basis"] == "clocks"
    )
