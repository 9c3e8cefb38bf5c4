"""Podscope's own analysis of simulated profiles gives the planted numbers, to the picosecond."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from podscope_agent.simulator import Pod, ServedHost, build_xspace, planted_truth
from podscope_analyzers import open_xspace
from podscope_analyzers.hlo.programs import read_programs
from podscope_analyzers.op_metrics.headline import duty_cycle_ratio
from podscope_analyzers.op_metrics.host_databases import device_op_database
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.prepare import prepare
from podscope_analyzers.result import Scope

PODS = {
    "tpu-v5e": Pod("tpu-v5e", hosts=3, steps=6, slow_host=1, input_bound=0.2),
    "tpu-v6e": Pod("tpu-v6e", hosts=2, steps=4, seed=3),
    "gpu-h100": Pod("gpu-h100", hosts=2, steps=4, slow_host=0, input_bound=0.1),
    "cpu": Pod("cpu", hosts=2, steps=5, input_bound=0.3),
}
DEVICE_NAMES = sorted(name for name in PODS if name != "cpu")


def truth_of(pod: Pod) -> dict[str, Any]:
    return planted_truth(pod, [ServedHost(i, pod.hostname(i), "", None) for i in range(pod.hosts)])


@pytest.mark.parametrize("device", sorted(PODS))
def test_every_event_of_a_device_and_of_the_main_thread_is_in_its_step(device: str) -> None:
    pod = PODS[device]
    space = prepare(open_xspace(build_xspace(pod)))
    lines = [
        line
        for plane in space.planes
        for line in plane.lines
        if plane.name.startswith("/device:") or line.name == "python"
        if line.event_count and not line.is_derived
    ]
    assert lines
    for line in lines:
        groups, counts = np.unique(line.group_id, return_counts=True)
        assert groups.tolist() == list(range(pod.steps)), line
        assert len(set(counts.tolist())) == 1, line


@pytest.mark.parametrize("host", [0, 1])
@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_self_times_by_category_are_the_planted_ones(device: str, host: int) -> None:
    pod = PODS[device]
    space = prepare(open_xspace(build_xspace(pod, host)))
    database = device_op_database(space, read_programs(space))
    times: dict[str, int] = defaultdict(int)
    for row in range(database.top_count):
        times[database.text("category", row)] += int(database.top("self_time_ps")[row])
    del times["IDLE"]
    planted = truth_of(pod)["hosts"][host]["category_ps"]
    assert {k: v for k, v in times.items() if v} == {k: v for k, v in planted.items() if v}


@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_each_operation_ran_as_often_as_planted(device: str) -> None:
    pod = PODS[device]
    space = prepare(open_xspace(build_xspace(pod)))
    database = device_op_database(space, read_programs(space))
    counts = {
        database.text("name", row): int(database.top("occurrences")[row])
        for row in range(database.top_count)
    }
    executed = pod.steps * pod.kind.cores_per_host
    for op in truth_of(pod)["program"]["ops"]:
        # The loop has no kernel on a GPU.
        if op["name"] in counts:
            assert counts[op["name"]] == op["executions_per_step"] * executed
        else:
            assert (device, op["category"]) == ("gpu-h100", "while")


@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_flops_and_bytes_are_the_planted_ones(device: str) -> None:
    pod = PODS[device]
    space = prepare(open_xspace(build_xspace(pod)))
    database = device_op_database(space, read_programs(space))
    program = truth_of(pod)["program"]
    executed = pod.steps * pod.kind.cores_per_host
    assert int(database.top("flops").sum()) == program["flops_per_core_step"] * executed
    moved = int(database.top("bytes_accessed").sum())
    assert moved == program["bytes_per_core_step"] * executed


def test_a_core_is_busy_except_when_it_waits_for_input_or_idles() -> None:
    pod = PODS["tpu-v5e"]
    space = prepare(open_xspace(build_xspace(pod)))
    steps = pod.timeline.steps
    span = sum(step.period_ps for step in steps[:-1]) + steps[-1].update_end_ps
    active = sum(step.update_end_ps - step.input_ps[0] for step in steps)
    ratio = duty_cycle_ratio(device_op_database(space, read_programs(space)))
    assert ratio == pytest.approx(active / span, rel=1e-12)


def overview_of(pod: Pod) -> dict[str, Any]:
    hosts = [analyze_host(build_xspace(pod, i), pod.hostname(i)) for i in range(pod.hosts)]
    return dict(
        run_tool("overview_page", hosts, Scope([pod.hostname(i) for i in range(pod.hosts)])).result
    )


@pytest.mark.parametrize("device", sorted(PODS))
@pytest.mark.parametrize("slow_factor", [1.2, 1.5])
def test_the_slow_host_is_named_with_its_cause(device: str, slow_factor: float) -> None:
    pod = Pod(device, hosts=5, steps=8, slow_host=3, slow_factor=slow_factor, seed=9)
    straggler = overview_of(pod)["straggler"]
    assert (straggler["verdict"], straggler["host"]) == ("straggler", pod.hostname(3))
    assert straggler["cause"] == "compute"


@pytest.mark.parametrize("device", sorted(PODS))
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_alone_makes_no_slow_host(device: str, seed: int) -> None:
    pod = Pod(device, hosts=5, steps=8, seed=seed, input_bound=0.2)
    assert overview_of(pod)["straggler"]["verdict"] == "even"


@pytest.mark.parametrize("device", ["tpu-v5e", "cpu"])
def test_the_share_of_the_step_that_waits_for_input_is_the_planted_one(device: str) -> None:
    pod = Pod(device, hosts=3, steps=5, input_bound=0.3)
    steps = truth_of(pod)["steps"]
    waited = sum(host["input_wait_ps"] for step in steps for host in step["hosts"]) / pod.hosts
    planted = waited / sum(step["step_time_ps"] for step in steps)
    breakdown = {part["category"]: part["ratio"] for part in overview_of(pod)["breakdown"]}
    assert breakdown["input"] == pytest.approx(planted, rel=1e-6)


@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_the_rate_of_flops_is_the_planted_one(device: str) -> None:
    pod = PODS[device]
    truth = truth_of(pod)
    # The rate is over the time between the first and the last operation, without the last gap.
    seconds = sum(step["period_ps"] for step in truth["steps"]) / 1e12
    planted = truth["program"]["flops_per_core_step"] * pod.steps / seconds
    measured = overview_of(pod)["utilization"]["flops_per_second"]
    assert measured == pytest.approx(planted, rel=2e-3)
