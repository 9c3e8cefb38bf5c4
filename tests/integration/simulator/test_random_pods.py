"""Peaks, leaks, bottlenecks, counters and transfers of random pods come back as planted."""

import random
from typing import Any

import pytest

from podscope_agent.simulator import Pod, ServedHost, build_xspace, planted_truth
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Cell, Scope


def _random_pod(seed: int) -> Pod:
    rng = random.Random(seed)
    device = ("tpu-v6e", "gpu-h100", "tpu-v5e", "cpu")[seed % 4]
    hosts = rng.choice((2, 4))
    return Pod(
        device,
        hosts,
        rng.randint(9, 14),
        seed,
        input_bound=rng.uniform(0.05, 0.6),
        input_stage=rng.choice(("read", "map", "batch")),
        leak_bytes=rng.choice((0, rng.randint(1 << 20, 1 << 26))),
        counters=rng.random() < 0.7,
        slices=2 if device.startswith("tpu") and rng.random() < 0.7 else 1,
        noise=rng.uniform(0, 0.1),
    )


def _rows(found: Any, table: str) -> list[dict[str, Cell]]:
    ids = [column.id for column in found.tables[table].columns]
    return [dict(zip(ids, row, strict=True)) for row in found.tables[table].rows]


@pytest.mark.parametrize("seed", range(8))
def test_what_was_planted_in_a_random_pod_comes_back(seed: int) -> None:
    pod = _random_pod(seed)
    told = planted_truth(pod, [ServedHost(i, pod.hostname(i), "", None) for i in range(pod.hosts)])
    program = told["program"]
    partials = [analyze_host(build_xspace(pod, host), f"h{host}") for host in range(pod.hosts)]
    scope = Scope([partial.host for partial in partials])
    first = Scope(["h0"])

    memory = run_tool("memory_profile", partials[:1], first)
    peaks = {row["peak_bytes"] for row in _rows(memory, "allocators")}
    assert peaks == {program["peak_memory_bytes_per_core"]}
    grown = {
        (row["verdict"], row["growth_per_step_bytes"])
        for row in _rows(memory, "growth")
        if row["verdict"] == "growing"
    }
    assert grown == ({("growing", pod.leak_bytes)} if pod.leak_bytes else set())

    found: Any = run_tool("tf_data_bottleneck_analysis", partials, scope).result["bottlenecks"]
    assert {one["iterator_long_name"] for one in found} == {program["slowest_iterator"]}
    assert sorted(one["host"] for one in found) == sorted(scope.hosts)

    counted = _rows(run_tool("perf_counters", partials[:1], first), "counters")
    per_step = program["counters_per_core_step"]
    samples = pod.steps * pod.kind.cores_per_host
    assert {row["counter"]: row["total"] for row in counted} == {
        name: value * samples for name, value in per_step.items()
    }
    units = _rows(run_tool("utilization_viewer", partials[:1], first), "units")
    shares = {row["name"]: row["utilization_ratio"] for row in units}
    planted = program["unit_utilization_ratio"]
    assert {name: shares[name] for name in planted} == pytest.approx(planted, rel=1e-9)

    transfers = _rows(run_tool("megascale_stats", partials, scope), "collectives")
    assert {(row["rendezvous"], row["transfer_type"], row["sent_bytes"]) for row in transfers} == {
        (one["rendezvous"], one["transfer_type"], one["sent_bytes"])
        for one in program["slice_transfers"]
    }
    slack = {one["rendezvous"]: one["slack_ps"] / 1e6 for one in program["slice_transfers"]}
    assert {row["rendezvous"]: row["slack_us"] for row in transfers} == pytest.approx(slack)
