"""XProf and podscope open simulated profiles, and the numbers of both are the planted ones."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podscope_agent.simulator import Pod, ServedHost, planted_truth, session_name, write_pod
from podscope_agent.simulator.hlo import op_text
from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_analyzers.registry import TOOLS

Report = Callable[..., Any]

PODS = {
    "tpu-v5e": Pod("tpu-v5e", hosts=3, steps=7, slow_host=1, input_bound=0.2),
    "tpu-v6e": Pod("tpu-v6e", hosts=2, steps=4, seed=3),
    "gpu-h100": Pod("gpu-h100", hosts=2, steps=4, slow_host=0, input_bound=0.1, events=9_000),
    "cpu": Pod("cpu", hosts=3, steps=5, slow_host=2, input_bound=0.3),
}
DEVICE_COMPUTE, COLLECTIVES, HOST_COMPUTE, INPUT, OTHERS = "1", "3", "4", "6", "9"
COPY_US = 5.0
"""Copy of a batch to a GPU."""


@pytest.fixture(scope="module", params=sorted(PODS))
def pod(request: pytest.FixtureRequest) -> Pod:
    return PODS[request.param]


@pytest.fixture(scope="module")
def truth(pod: Pod) -> dict[str, Any]:
    hosts = [ServedHost(i, pod.hostname(i), "", None) for i in range(pod.hosts)]
    return planted_truth(pod, hosts)


@pytest.fixture(
    scope="module", params=[pytest.param("xprof", marks=pytest.mark.interop), "podscope"]
)
def report(
    request: pytest.FixtureRequest, pod: Pod, tmp_path_factory: pytest.TempPathFactory
) -> Report:
    """A reader's answer for a tool about a log folder of this pod; ``first_host`` limits it."""
    folder = tmp_path_factory.mktemp("logs")
    for _ in write_pod(pod, folder):
        pass
    run = folder / "plugins" / "profile" / session_name(pod)
    return ask_xprof(run) if request.param == "xprof" else ask_podscope(run)


def ask_xprof(run: Path) -> Report:
    convert = pytest.importorskip("xprof.convert.raw_to_tool_data")

    def ask(tool: str, *, first_host: bool = False, **parameters: str) -> Any:
        # What one tool caches decides what the next one sees: every tool starts cold.
        for cached in run.glob("*op_stats*"):
            cached.unlink()
        paths = sorted(str(path) for path in run.glob("*.xplane.pb"))
        paths = paths[:1] if first_host else paths
        convert.xspace_to_tool_names(paths)
        for cached in run.glob("*op_stats*"):
            cached.unlink()
        answer, _ = convert.xspace_to_tool_data(
            paths, tool, {"use_saved_result": False, **parameters}
        )
        return json.loads(answer)

    return ask


def ask_podscope(run: Path) -> Report:
    partials = [
        analyze_host(path.read_bytes(), path.name.removesuffix(".xplane.pb"))
        for path in sorted(run.glob("*.xplane.pb"))
    ]

    def ask(tool: str, *, first_host: bool = False, **parameters: str) -> Any:
        if tool not in TOOLS:
            pytest.skip(f"podscope has no {tool} yet")
        chosen = partials[:1] if first_host else partials
        # The reference is told a host by a parameter, ours gets that host's partial.
        parameters.pop("host", None)
        return json.loads(json.dumps(run_tool_xprof(tool, chosen, parameters)))

    return ask


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["id"] for column in table["cols"]]
    return [
        dict(zip(names, (cell["v"] for cell in row["c"]), strict=True)) for row in table["rows"]
    ]


def expected_breakdown(
    pod: Pod, truth: dict[str, Any], step: int, host: int, core: int
) -> dict[str, float]:
    """Microseconds per generic category that follow from the truth of one step."""
    planted = truth["steps"][step]
    own = planted["hosts"][host]
    compute, waited = own["own_compute_ps"], own["collective_wait_ps"]
    transfer, update = planted["collective_transfer_ps"], planted["update_ps"]
    if pod.kind.family == "tpu":
        times = {
            DEVICE_COMPUTE: compute[core] + update,
            COLLECTIVES: transfer + waited[core],
            INPUT: own["input_wait_ps"],
            OTHERS: planted["idle_ps"],
        }
    elif pod.kind.family == "gpu":
        # Of what GPUs do at the same time, computing outranks communicating. Copies made by a
        # tracer that calls them MemcpyH2D count as computing.
        assert pod.program.lead is not None
        lead = pod.program.lead.weight_ps + int(COPY_US * 1e6)
        times = {
            DEVICE_COMPUTE: lead + max(compute) + update,
            COLLECTIVES: transfer + min(waited),
            OTHERS: own["input_wait_ps"] - lead,
        }
    else:
        times = {
            HOST_COMPUTE: compute[0] + waited[0] + transfer + update,
            INPUT: own["input_wait_ps"],
            OTHERS: planted["idle_ps"],
        }
    return {key: value / 1e6 for key, value in times.items()}


def test_the_pod_viewer_shows_the_planted_times(
    pod: Pod, truth: dict[str, Any], report: Report
) -> None:
    steps = report("pod_viewer")["podStatsSequence"]["podStatsMap"]
    assert len(steps) == pod.steps
    cores = pod.kind.cores_per_host if pod.kind.family == "tpu" else 1
    for index, step in enumerate(steps):
        records = step["podStatsPerCore"]
        assert len(records) == pod.hosts * cores
        for key, record in records.items():
            host, local = divmod(int(key), 1000)
            core = (local - 2) // 8 if pod.kind.family == "tpu" else 0
            assert record["hostName"] == pod.hostname(host)
            total = truth["steps"][index]["step_time_ps"] / 1e6
            assert record["totalDurationUs"] == pytest.approx(total, abs=1e-5)
            expected = expected_breakdown(pod, truth, index, host, core)
            found = {k: v for k, v in record["stepBreakdownUs"].items() if v}
            assert found == pytest.approx(expected, abs=1e-5), (index, host, core)


def test_the_overview_names_the_devices_and_the_step_time(
    pod: Pod, truth: dict[str, Any], report: Report
) -> None:
    overview = report("overview_page")
    environment = overview[2]["p"]
    assert environment["host_count"] == str(pod.hosts)
    assert environment["is_training"] == "true"
    assert overview[6]["rows"] == []
    family = pod.kind.family
    types = {"gpu": "Nvidia GPU (Hopper)", "cpu": "CPU"}
    assert environment["device_type"] == types.get(family, pod.kind.type_string)
    devices = 0 if family == "cpu" else pod.hosts * pod.kind.cores_per_host
    assert environment["device_core_count"] == str(devices)
    times = [step["step_time_ps"] / 1e9 for step in truth["steps"]]
    if family != "tpu" and len(times) > 5:
        times = times[1:-1]
    average = float(overview[1]["p"]["steptime_ms_average"])
    assert average == pytest.approx(sum(times) / len(times), abs=0.06)
    if family == "tpu":
        percent = truth["program"]["matrix_unit_utilization_percent"]
        assert overview[0]["p"]["mxu_utilization_percent"] == f"{percent:.1f}%"
        duty = overview[0]["p"]["device_duty_cycle_percent"]
        assert float(duty.rstrip("%")) == pytest.approx(expected_duty_cycle(pod), abs=0.06)


def expected_duty_cycle(pod: Pod) -> float:
    """Share of the time between the first and last op in which a core does not wait for input."""
    steps = pod.timeline.steps
    span = sum(step.period_ps for step in steps[:-1]) + steps[-1].update_end_ps
    active = sum(
        step.update_end_ps - step.input_ps[host] for step in steps for host in range(pod.hosts)
    )
    return 100 * active / (span * pod.hosts)


def test_self_times_and_flops_per_category_are_the_planted_ones(
    pod: Pod, truth: dict[str, Any], report: Report
) -> None:
    if pod.kind.family == "cpu":
        pytest.skip("a CPU has no device operations")
    table = rows(report("hlo_stats", first_host=True))
    times: dict[str, float] = defaultdict(float)
    flops = 0.0
    for row in table:
        times[row["category"]] += row["total_self_time"]
        flops += row["model_flop_rate"] * row["total_time"] * 1e3
    times.pop("IDLE", None)
    planted = {k: v / 1e6 for k, v in truth["hosts"][0]["category_ps"].items() if v}
    assert dict(times) == pytest.approx(planted, rel=1e-6, abs=1e-3)
    program = truth["program"]
    executed = pod.steps * pod.kind.cores_per_host
    assert flops == pytest.approx(program["flops_per_core_step"] * executed, rel=1e-6)
    if pod.kind.family == "tpu":
        # Of the loop, its body counts.
        moved = sum(
            row["hbm_bw"] * 1.073741824 * row["total_time"] * 1e3
            for row in table
            if row["category"] != "while"
        )
        assert moved == pytest.approx(program["bytes_per_core_step"] * executed, rel=1e-9)
    counts = {row["hlo_op_name"]: row["occurrences"] for row in table}
    for op in program["ops"]:
        if op["name"] in counts:
            assert counts[op["name"]] == op["executions_per_step"] * executed


def leaves(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Operations of an op profile, not what they fuse."""
    for child in node["children"]:
        if "xla" in child and "duplicate" not in child["name"]:
            yield child
        else:
            yield from leaves(child)


def test_the_op_profile_has_the_planted_work(
    pod: Pod, truth: dict[str, Any], report: Report
) -> None:
    if pod.kind.family == "cpu":
        pytest.skip("a CPU has no device operations")
    program = truth["program"]
    executed = pod.hosts * pod.steps * pod.kind.cores_per_host
    profile = report("op_profile")
    root = profile["byProgramExcludeIdle"]
    assert root["metrics"]["rawFlops"] == program["flops_per_core_step"] * executed
    planted = {op["name"]: op for op in program["ops"]}
    found = {leaf["name"]: leaf for leaf in leaves(root)}
    for name, leaf in found.items():
        op, runs = planted[name], planted[name]["executions_per_step"] * executed
        assert leaf["metrics"]["occurrences"] == runs
        assert leaf["metrics"]["rawFlops"] == op["flops"] * runs
        # Of a GPU's collectives the cost analysis counts what is read alone.
        if pod.kind.family == "tpu" or op["category"] != "all-reduce":
            moved = leaf["metrics"]["rawBytesAccessedArray"][0]
            assert moved == pytest.approx(op["bytes_accessed"] * runs, rel=1e-9)
        assert leaf["xla"]["category"] == op["category"]
    # What calls others is not shown by itself.
    assert set(planted) - set(found) == {"while"}
    times = sum(sum(host["category_ps"].values()) for host in truth["hosts"])
    assert root["metrics"]["rawTime"] == times


def test_every_step_of_the_roofline_has_the_planted_work(
    pod: Pod, truth: dict[str, Any], report: Report
) -> None:
    if pod.kind.family == "cpu":
        pytest.skip("a CPU has no device operations")
    program, cores = truth["program"], pod.hosts * pod.kind.cores_per_host
    records = [
        row
        for row in rows(report("roofline_model")[0])
        if row["category"] == "Program" and row["include_infeed_outfeed"]
    ]
    total, *steps = records
    done = pod.steps * cores
    flops = program["flops_per_core_step"] * done
    assert total["measured_flop_rate"] * total["total_time"] * 1e3 == pytest.approx(flops, rel=1e-9)
    intensity = program["flops_per_core_step"] / program["bytes_per_core_step"]
    assert total["operational_intensity"] == pytest.approx(intensity, rel=1e-9)
    if pod.kind.family == "gpu":
        # Operations of GPUs are not told apart by step.
        assert all(step["measured_flop_rate"] == 0 for step in steps)
        assert [step["step"] for step in steps] == ["Average", *map(str, range(pod.steps))]
        return
    average, *steps = steps
    times = [step["step_time_ps"] * cores / 1e6 for step in truth["steps"]]
    assert [step["total_time"] for step in steps] == pytest.approx(times, rel=1e-9)
    assert average["total_time"] == pytest.approx(sum(times) / len(times), rel=1e-9)
    for step in steps:
        flops = program["flops_per_core_step"] * cores
        assert step["measured_flop_rate"] * step["total_time"] * 1e3 == pytest.approx(flops)
        moved = step["hbm_bw"] * 1.073741824 * step["total_time"] * 1e3
        assert moved == pytest.approx(program["bytes_per_core_step"] * cores)


def test_operations_are_written_as_xla_prints_them(pod: Pod, report: Report) -> None:
    """XProf prints a GPU's expressions from the HLO proto: ours must be the same text."""
    if pod.kind.family != "gpu":
        pytest.skip("elsewhere the tracer's own text is shown")
    shown = {r["hlo_op_name"]: r["hlo_op_expression"] for r in rows(report("hlo_stats"))}
    shown.pop("IDLE", None)
    # The loop has no kernel of its own.
    ops = [op for op in pod.program.ops if op.kind != "while"]
    assert shown == {op.name: op_text(pod.program, op) for op in ops}
    assert any("/*index=5*/" in text for text in shown.values())


def test_the_framework_operations_of_all_hosts_add_up(
    pod: Pod, truth: dict[str, Any], report: Report
) -> None:
    if pod.kind.family == "cpu":
        pytest.skip("a CPU has no device operations")
    with_idle = rows(report("framework_op_stats")[0])
    device = [r for r in with_idle if r["host_or_device"] == "Device" and r["type"] != "IDLE"]
    total = sum(row["total_self_time"] for row in device)
    planted = sum(sum(host["category_ps"].values()) for host in truth["hosts"]) / 1e6
    assert total == pytest.approx(planted, rel=1e-6)


def test_the_input_pipeline_is_as_input_bound_as_was_planted(
    pod: Pod, truth: dict[str, Any], report: Report
) -> None:
    if pod.kind.family == "gpu":
        pytest.skip("XProf attributes no input to GPU steps, only to host threads")
    steps = report("input_pipeline_analyzer", first_host=True)[1]["p"]
    waited = [step["hosts"][0]["input_wait_ps"] for step in truth["steps"]]
    total = [step["step_time_ps"] for step in truth["steps"]]
    if pod.kind.family == "tpu":
        shares = [100 * w / t for w, t in zip(waited, total, strict=True)]
        average = float(steps["infeed_percent_average"])
        assert average == pytest.approx(sum(shares) / len(shares), abs=0.06)
    else:
        waited_ms = float(steps["infeed_time_ms_avg"])
        assert waited_ms == pytest.approx(sum(waited) / len(waited) / 1e9, abs=0.06)


def test_memory_is_what_the_allocators_were_made_to_say(
    pod: Pod, truth: dict[str, Any], report: Report
) -> None:
    allocators = report("memory_profile", first_host=True)["memoryProfilePerAllocator"]
    assert len(allocators) == pod.kind.cores_per_host
    for allocator in allocators.values():
        summary = allocator["profileSummary"]
        peak = truth["program"]["peak_memory_bytes_per_core"]
        assert int(summary["peakStats"]["peakBytesInUse"]) == peak
        assert int(summary["memoryCapacity"]) == pod.kind.memory_bytes


def test_the_program_opens_in_the_memory_and_graph_viewers(
    pod: Pod, truth: dict[str, Any], report: Report
) -> None:
    module = truth["program"]["module"]
    memory = report("memory_viewer", first_host=True, module_name=module, host=pod.hostname(0))
    assert memory["moduleName"] == "jit_train_step"
    assert memory["peakHeapMib"] > memory["entryComputationParametersMib"] > 0
    assert memory["maxHeap"]


def test_the_kernels_of_a_gpu_are_listed(pod: Pod, report: Report) -> None:
    if pod.kind.family != "gpu":
        pytest.skip("only GPUs have kernels")
    kernels = rows(report("kernel_stats"))
    names = {row["kernel_name"] for row in kernels}
    assert any(name.startswith("nccl") for name in names)
    # The hosts' rows stand next to each other, they are not merged.
    matmul = [row for row in kernels if row["kernel_name"] == "gemm_fusion_dot_1"]
    executed = pod.steps * pod.kind.cores_per_host * pod.program.size.microbatches
    assert [row["occurrences"] for row in matmul] == [executed] * pod.hosts
    assert {row["registers_per_thread"] for row in matmul} == {168}
    assert {row["block_dim"] for row in matmul} == {"384,1,1"}
    with_tensor_cores = {r["kernel_name"] for r in kernels if r["is_kernel_using_tensor_core"]}
    assert len(with_tensor_cores) == 1
    assert "xmma_gemm" in with_tensor_cores.pop()


def test_the_trace_viewer_opens_the_profile(pod: Pod, report: Report) -> None:
    trace = report("trace_viewer", first_host=True)
    names = {event.get("name") for event in trace["traceEvents"]}
    assert "PjitFunction(train_step)" in names
    assert {f"train {step}" for step in range(pod.steps)} <= names


def test_the_files_are_where_tensorboard_finds_them(pod: Pod, tmp_path: Path) -> None:
    paths = [path for _, path, _ in write_pod(pod, tmp_path) if path is not None]
    assert len(paths) == pod.hosts
    assert all(path.match("plugins/profile/*/*.xplane.pb") for path in paths)
