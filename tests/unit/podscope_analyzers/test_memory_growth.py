"""Memory that grows from step to step, and memory that only looks so."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.memory_growth import MIN_STEPS, rising_p_value
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Scope, ToolResult
from podscope_protos.v1 import xplane_pb2

MIB = 1 << 20
STEP_PS = 1_000_000_000
CAPACITY = 1000 * MIB
Change = tuple[int, int, str]
"""Bytes (negative when freed), address, operation."""


def host(steps: list[list[Change]], resident: int = 100 * MIB) -> HostPartial:
    """A host whose steps allocate and free, on one thread."""
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name="/host:CPU")
    line = plane.lines.add(id=1, name="python")
    for number, name in enumerate(("train", "MemoryAllocation", "MemoryDeallocation"), start=1):
        plane.event_metadata[number].id, plane.event_metadata[number].name = number, name
    ids: dict[str, int] = {}
    used = resident
    for step, changes in enumerate(steps):
        begin = step * STEP_PS
        marker = line.events.add(metadata_id=1, offset_ps=begin, duration_ps=STEP_PS - 1000)
        fill(marker, ids, {"_r": 1, "step_num": step})
        for at, (size, address, op_name) in enumerate(changes):
            used += size
            event = line.events.add(metadata_id=2 if size > 0 else 3, offset_ps=begin + 1000 + at)
            described: dict[str, int | str] = {
                "allocator_name": "GPU_0_bfc",
                "bytes_allocated": used,
                "bytes_available": CAPACITY - used,
                "requested_bytes": abs(size),
                "allocation_bytes": abs(size),
                "addr": address,
            }
            if size > 0:
                described |= {"tf_op": op_name, "region_type": "temp", "shape": f"[{size}]"}
            fill(event, ids, described)
    for name, number in ids.items():
        plane.stat_metadata[number].id, plane.stat_metadata[number].name = number, name
    return analyze_host(space.SerializeToString(), "h0")


def fill(event: Any, ids: dict[str, int], values: dict[str, int] | dict[str, int | str]) -> None:
    for name, value in values.items():
        stat = event.stats.add(metadata_id=ids.setdefault(name, len(ids) + 1))
        if isinstance(value, str):
            stat.str_value = value
        else:
            stat.int64_value = value


def steps_with(kept: Callable[[int], int], count: int = 12) -> list[list[Change]]:
    """Steps that allocate 50 MiB of activations and free them, and keep something besides."""
    steps: list[list[Change]] = []
    for step in range(count):
        changes: list[Change] = []
        size = kept(step)
        if size > 0:
            changes.append((size, 1_000_000 + step, "metrics/append"))
        changes += [(50 * MIB, 7, "layer/activations"), (-50 * MIB, 7, "")]
        steps.append(changes)
    return steps


def profile(partial: HostPartial) -> ToolResult:
    return run_tool("memory_profile", [partial], Scope(["h0"]))


def growth(result: ToolResult) -> dict[str, Any]:
    table = result.tables["growth"]
    (row,) = table.rows
    return dict(zip([column.id for column in table.columns], row, strict=True))


def test_what_every_step_leaves_behind_is_a_leak() -> None:
    result = profile(host(steps_with(lambda _: 2 * MIB)))
    found = growth(result)
    assert found["verdict"] == "growing"
    assert found["steps"] == 10  # The first and the last are not judged.
    assert found["growth_per_step_bytes"] == 2 * MIB
    assert found["last_bytes"] - found["first_bytes"] == 9 * 2 * MIB
    assert found["p_value"] < 0.001
    # 174 MiB are in use at the peak, of 1000.
    assert found["steps_until_full"] == (CAPACITY - 174 * MIB) // (2 * MIB)
    (hint,) = result.result["leak_hints"]
    assert hint["operations"] == ["metrics/append"]
    (left,) = result.tables["survivors"].rows
    assert left[:6] == ["GPU_0_bfc", "metrics/append", 2 * MIB, 9, 9, 18 * MIB]


def test_a_small_leak_under_large_temporary_buffers_is_found() -> None:
    assert growth(profile(host(steps_with(lambda _: 100_000, count=30))))["verdict"] == "growing"


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(lambda _: 0, id="nothing"),
        pytest.param(lambda step: 20 * MIB if step == 0 else 0, id="first step only"),
        pytest.param(lambda step: 8 * MIB if step < 4 else 0, id="warms up and levels off"),
        pytest.param(lambda step: 10 * MIB if step == 6 else 0, id="once in the middle"),
        pytest.param(lambda _: 64, id="less than matters"),
    ],
)
def test_memory_that_levels_off_is_no_leak(kept: Callable[[int], int]) -> None:
    result = profile(host(steps_with(kept)))
    assert growth(result)["verdict"] == "steady"
    assert result.result["leak_hints"] == []


def noisy_steps(seed: int, per_step: int, count: int = 24) -> list[list[Change]]:
    """Caches of a random size live in every step, and are given back in the next."""
    rng = random.Random(seed)
    steps: list[list[Change]] = []
    cached = 0
    for step in range(count):
        now = rng.randint(1, 20 * MIB)
        changes: list[Change] = [(-cached, 5, "")] if cached else []
        changes.append((now, 5, "cache"))
        if per_step:
            changes.append((per_step, 1000 + step, "leak"))
        cached = now
        steps.append([*changes, (30 * MIB, 7, "layer"), (-30 * MIB, 7, "")])
    return steps


@pytest.mark.parametrize("seed", range(30))
def test_noise_is_not_called_a_leak(seed: int) -> None:
    assert growth(profile(host(noisy_steps(seed, 0))))["verdict"] == "steady"


@pytest.mark.parametrize("seed", range(5))
def test_a_leak_above_the_noise_is_found(seed: int) -> None:
    found = growth(profile(host(noisy_steps(seed, 4 * MIB))))
    assert found["verdict"] == "growing"
    assert found["growth_per_step_bytes"] == pytest.approx(4 * MIB, rel=0.2)


def test_of_few_steps_nothing_is_said() -> None:
    found = growth(profile(host(steps_with(lambda _: 2 * MIB, count=MIN_STEPS + 1))))
    assert (found["verdict"], found["p_value"]) == ("too_few_steps", None)


def test_the_trend_tests_probability_is_that_of_all_orders() -> None:
    """The normal approximation of seven levels against every order that they can have."""
    scores = {
        order: sum(order[j] > order[i] for i, j in combinations(range(7), 2)) * 2 - 21
        for order in permutations(range(7))
    }
    counts = Counter(scores.values())
    for order in ((0, 1, 2, 3, 4, 5, 6), (1, 0, 2, 3, 4, 6, 5), (0, 2, 1, 4, 3, 6, 5)):
        as_high = sum(n for score, n in counts.items() if score >= scores[order])
        exact = as_high / len(scores)
        assert rising_p_value(np.array(order)) == pytest.approx(exact, abs=0.01)
    assert rising_p_value(np.array((6, 5, 4, 3, 2, 1, 0))) == 1
    assert rising_p_value(np.zeros(9, np.int64)) == 1


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100"])
def test_a_simulated_run_does_not_leak_and_its_peak_is_the_planted_one(device: str) -> None:
    partial = analyze_host(build_xspace(Pod(device=device, hosts=1, steps=12, seed=2), 0), "h0")
    result = profile(partial)
    assert {row[1] for row in result.tables["growth"].rows} == {"steady"}
    assert result.tables["survivors"].rows == []
    assert result.result["leak_hints"] == []
