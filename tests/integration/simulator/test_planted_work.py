"""FLOPS, bytes, memory, leaks, counters, input stages and transfers come back as planted."""

from typing import Any

import pytest

from podscope_agent.simulator import Pod, ServedHost, build_xspace, planted_truth
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Cell, Scope

STEPS = 9
LEAK_BYTES = 3 << 20
STAGES = {"tpu-v5e": "map", "tpu-v6e": "read", "gpu-h100": "batch", "cpu": "read"}
PODS = {
    device: Pod(
        device,
        1,
        STEPS,
        3,
        input_bound=0.4,
        input_stage=stage,
        leak_bytes=LEAK_BYTES,
        counters=True,
    )
    for device, stage in STAGES.items()
}
SLOWEST = {"map": "ParallelMapV2", "batch": "BatchV2", "read": "TFRecord"}


@pytest.fixture(scope="module", params=sorted(PODS))
def pod(request: pytest.FixtureRequest) -> Pod:
    return PODS[request.param]


@pytest.fixture(scope="module")
def truth(pod: Pod) -> dict[str, Any]:
    return planted_truth(pod, [ServedHost(0, pod.hostname(0), "", None)])


@pytest.fixture(scope="module")
def partial(pod: Pod) -> HostPartial:
    return analyze_host(build_xspace(pod), "h0")


def _rows(partial: HostPartial, tool: str, table: str) -> list[dict[str, Cell]]:
    found = run_tool(tool, [partial], Scope(["h0"])).tables[table]
    ids = [column.id for column in found.columns]
    return [dict(zip(ids, row, strict=True)) for row in found.rows]


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float)
    return cell


def test_work_of_every_operation_and_of_all_is_the_planted_work(
    pod: Pod, truth: dict[str, Any], partial: HostPartial
) -> None:
    if pod.kind.family == "cpu":
        pytest.skip("the CPU's tracer records neither flops nor bytes")
    profile = _rows(partial, "op_profile", "nodes")
    flops = {row["name"]: row["flops"] or 0 for row in profile if row["kind"] == "op"}
    rates = {row["hlo_op_name"]: row for row in _rows(partial, "hlo_stats", "instructions")}
    executions = STEPS * pod.kind.cores_per_host
    for op in truth["program"]["ops"]:
        if op["name"] not in rates:
            # On GPUs the loop is the host's.
            assert op["category"] == "while"
            continue
        row, runs = rates[op["name"]], op["executions_per_step"] * executions
        assert row["occurrences"] == runs, op["name"]
        # What only calls others is no operation of the profile.
        assert flops.get(op["name"], 0) == op["flops"] * runs, op["name"]
        seconds = _number(row["total_time_us"]) / 1e6
        moved = _number(row["measured_memory_bytes_per_second"] or 0.0) * seconds
        assert moved == pytest.approx(op["bytes_accessed"] * runs, rel=1e-9), op["name"]
    planted = truth["program"]["flops_per_core_step"] * executions
    assert sum(map(_number, flops.values())) == planted


def test_the_peak_of_every_allocator_is_the_planted_peak(
    truth: dict[str, Any], partial: HostPartial
) -> None:
    peaks = {row["peak_bytes"] for row in _rows(partial, "memory_profile", "allocators")}
    assert peaks == {truth["program"]["peak_memory_bytes_per_core"]}


def test_a_leak_is_found_with_its_size_and_who_allocates_it(
    truth: dict[str, Any], partial: HostPartial
) -> None:
    leak = truth["program"]["leak"]
    growth = _rows(partial, "memory_profile", "growth")
    assert {row["verdict"] for row in growth} == {"growing"}
    assert {row["growth_per_step_bytes"] for row in growth} == {leak["bytes_per_step"]}
    survivors = _rows(partial, "memory_profile", "survivors")
    assert {row["op_name"] for row in survivors} == {leak["framework_name"]}
    assert {row["allocation_bytes"] for row in survivors} == {leak["bytes_per_step"]}


def test_a_pod_without_a_leak_grows_nowhere() -> None:
    partial = analyze_host(build_xspace(Pod("tpu-v5e", 1, STEPS, 3)), "h0")
    assert "growing" not in {row["verdict"] for row in _rows(partial, "memory_profile", "growth")}
    assert _rows(partial, "memory_profile", "survivors") == []


def test_the_slowest_iterator_is_the_bottleneck(
    pod: Pod, truth: dict[str, Any], partial: HostPartial
) -> None:
    found = run_tool("tf_data_bottleneck_analysis", [partial], Scope(["h0"])).result
    (bottleneck,) = found["bottlenecks"]
    assert bottleneck["iterator_long_name"] == truth["program"]["slowest_iterator"]
    assert bottleneck["iterator"] == SLOWEST[pod.input_stage]


def test_counters_add_up_to_what_was_planted(
    pod: Pod, truth: dict[str, Any], partial: HostPartial
) -> None:
    rows = _rows(partial, "perf_counters", "counters")
    planted = truth["program"]["counters_per_core_step"]
    samples = STEPS * pod.kind.cores_per_host
    assert {row["counter"]: row["total"] for row in rows} == {
        name: value * samples for name, value in planted.items()
    }
    assert {row["samples"] for row in rows} == ({samples} if planted else set())


def test_units_of_a_v6e_are_as_busy_as_planted() -> None:
    pod = Pod("tpu-v6e", 1, STEPS, 3, counters=True)
    truth = planted_truth(pod, [ServedHost(0, pod.hostname(0), "", None)])["program"]
    partial = analyze_host(build_xspace(pod), "h0")
    units = _rows(partial, "utilization_viewer", "units")
    planted = truth["unit_utilization_ratio"]
    assert 0.1 < planted["MXU0"] < 1
    assert 0 < planted["HBM Rd+Wr - core 0"] < 1
    for device in range(pod.kind.cores_per_host):
        found = {row["name"]: row["utilization_ratio"] for row in units if row["device"] == device}
        assert {name: found[name] for name in planted} == pytest.approx(planted, rel=1e-9)
        assert found["No MXU Busy"] == pytest.approx(1 - planted["2 MXU Busy"], rel=1e-9)
        assert found["Vmem Stores"] == 0


SLICES, HOSTS = 2, 4


@pytest.fixture(scope="module")
def sliced() -> tuple[dict[str, Any], list[HostPartial]]:
    pod = Pod("tpu-v5e", HOSTS, STEPS, 3, slices=SLICES)
    truth = planted_truth(pod, [ServedHost(i, pod.hostname(i), "", None) for i in range(HOSTS)])
    return truth, [analyze_host(build_xspace(pod, host), f"h{host}") for host in range(HOSTS)]


def test_transfers_between_slices_are_the_planted_ones(
    sliced: tuple[dict[str, Any], list[HostPartial]],
) -> None:
    truth, partials = sliced
    names = [partial.host for partial in partials]
    tables = run_tool("megascale_stats", partials, Scope(names)).tables
    planted = truth["program"]["slice_transfers"]
    assert [one["transfer_type"] for one in planted] == ["ALL_REDUCE", "ALL_GATHER"]
    per_host = STEPS * truth["pod"]["cores_per_host"]
    for table, hosts, places in (("collectives", HOSTS, 1), ("by_host", 1, HOSTS)):
        ids = [column.id for column in tables[table].columns]
        rows = [dict(zip(ids, row, strict=True)) for row in tables[table].rows]
        assert len(rows) == places * len(planted)
        known = {one["rendezvous"]: one for one in planted}
        for row in rows:
            one = known[str(row["rendezvous"])]
            for name in ("rendezvous", "transfer_type", "send_op", "recv_op", "sent_bytes"):
                assert row[name] == one[name], name
            assert (row["hosts"], row["occurrences"]) == (hosts, per_host * hosts)
            parts = ("slack", "observed", "stall", "send", "send_done", "recv", "recv_done")
            found_ps = {name: _number(row[f"{name}_us"]) * 1e6 for name in parts}
            wanted_ps = {name: one[f"{name}_ps"] for name in parts}
            assert found_ps == pytest.approx(wanted_ps, rel=1e-12, abs=1e-3)
            needed = one["sent_bytes"] / one["slack_ps"] * 1e12
            assert row["required_bytes_per_second"] == pytest.approx(needed, rel=1e-9)
    assert {row[0] for row in tables["by_host"].rows} == set(names)


def test_with_transfers_a_step_is_still_the_sum_of_its_parts(
    sliced: tuple[dict[str, Any], list[HostPartial]],
) -> None:
    truth, partials = sliced
    for partial, host in zip(partials, truth["hosts"], strict=True):
        found: dict[str, float] = {}
        for row in _rows(partial, "hlo_stats", "instructions"):
            category = str(row["category"])
            found[category] = found.get(category, 0.0) + _number(row["total_self_time_us"]) * 1e6
        assert found == pytest.approx(host["category_ps"], rel=1e-12, abs=1)
        assert found["host recv-done"] > 0


def test_a_pod_of_one_slice_has_no_transfers(truth: dict[str, Any], partial: HostPartial) -> None:
    assert truth["program"]["slice_transfers"] == []
    assert run_tool("megascale_stats", [partial], Scope(["h0"])).status == "empty"


def test_a_clock_rate_that_nobody_measured_is_unknown(pod: Pod, partial: HostPartial) -> None:
    for tool in ("op_profile", "roofline_model"):
        told = run_tool(tool, [partial], Scope(["h0"])).result["time_scale_ratio"]
        assert told == (pytest.approx(1) if pod.kind.family == "tpu" else None)
