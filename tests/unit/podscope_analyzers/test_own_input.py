"""Whether the verdict on input agrees with the breakdown, on captures worked out by hand."""

from collections.abc import Sequence
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope
from podscope_protos.v1 import xplane_pb2

US = 1_000_000
SCOPE = Scope(["h0"])
Spans = Sequence[tuple[str, int, int]]


def cpu_host(inside: Spans, steps: int = 3) -> bytes:
    """Steps of 100 us, one every 200 us, each with the same annotations; times in us.

    ``work`` fills the rest of a step from the end of the last annotation on.
    """
    begin = max((begin + duration for _, begin, duration in inside), default=0)
    inside = [*inside, ("work", begin, 100 - begin)]
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name="/host:CPU")
    line = plane.lines.add(id=1, name="python")
    for key, name in ((1, "step_num"), (2, "_r")):
        plane.stat_metadata[key].id = key
        plane.stat_metadata[key].name = name
    names: dict[str, int] = {}
    for step in range(steps):
        for name, begin, duration in [("train", 0, 100), *inside]:
            key = names.setdefault(name, len(names) + 1)
            plane.event_metadata[key].id, plane.event_metadata[key].name = key, name
            event = line.events.add(
                metadata_id=key, offset_ps=(200 * step + begin) * US, duration_ps=duration * US
            )
            if name == "train":
                event.stats.add(metadata_id=1, int64_value=step)
                event.stats.add(metadata_id=2, int64_value=1)
    return space.SerializeToString()


def overview(*hosts: bytes) -> dict[str, Any]:
    return dict(run_tool("overview_page", partials(*hosts), SCOPE).result)


def partials(*hosts: bytes) -> list[HostPartial]:
    return [analyze_host(host, f"h{index}") for index, host in enumerate(hosts)]


def input_share(result: dict[str, Any]) -> float:
    return next(float(part["ratio"]) for part in result["breakdown"] if part["category"] == "input")


@pytest.mark.parametrize(
    ("load_us", "classification", "word"),
    [
        (30, "host", "HIGHLY"),
        (20, "host", "HIGHLY"),
        (19, "both", "MODERATELY"),
        (5, "both", "MODERATELY"),
        (4, "device", "NOT"),
        (0, "device", "NOT"),
    ],
)
def test_the_time_of_an_input_annotation_decides_what_a_cpu_job_is_bound_by(
    load_us: int, classification: str, word: str
) -> None:
    host = cpu_host([("load_batch", 0, load_us)] if load_us else [])
    result = overview(host)
    assert input_share(result) == pytest.approx(load_us / 100)
    bound = result["bottleneck"]
    assert bound["classification"] == classification
    assert f"{word} input-bound" in bound["statement"]
    assert f"{load_us}.0%" in bound["statement"]
    pipeline = run_tool("input_pipeline_analyzer", partials(host), SCOPE).result
    assert pipeline["classification"] == classification
    assert pipeline["statement"] == bound["statement"]
    assert pipeline["input_ratio"]["average"] == pytest.approx(load_us / 100)
    said = f"The annotation 'load_batch' counts as input: {load_us}.0% of the step time is spent in"
    assert bound["evidence"] == pipeline["evidence"] == [f"{said} it."] * bool(load_us)


def test_annotations_of_work_on_a_batch_are_no_input() -> None:
    result = overview(cpu_host([("forward_batch", 0, 40), ("eval_batch", 40, 30)]))
    assert input_share(result) == 0
    assert result["bottleneck"]["classification"] == "device"
    assert result["bottleneck"]["evidence"] == []


def test_the_verdict_is_of_all_hosts_and_the_next_step_names_the_annotations() -> None:
    hosts = partials(cpu_host([("next_batch", 0, 40)]), cpu_host([("next_batch", 0, 10)]))
    bound = run_tool("overview_page", hosts, SCOPE).result["bottleneck"]
    assert "25.0%" in bound["statement"]
    assert bound["evidence"][0].startswith("The annotation 'next_batch' counts as input: 25.0%")
    pipeline = run_tool("input_pipeline_analyzer", hosts, SCOPE).result
    assert "annotations" in pipeline["next_step"]


def test_the_reference_still_takes_annotations_for_computation() -> None:
    hosts = partials(cpu_host([("load_batch", 0, 80)]))
    tables: Any = run_tool_xprof("overview_page", hosts)
    assert tables[3]["p"]["bottleneck"] == "device"
    pages: Any = run_tool_xprof("input_pipeline_analyzer", hosts)
    assert "NOT input-bound: only 0.0%" in pages[1]["p"]["input_conclusion"]


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100", "cpu"])
def test_a_pod_that_does_not_wait_for_input_is_not_called_input_bound(device: str) -> None:
    pod = Pod(device=device, hosts=2, steps=8, seed=4)
    hosts = [build_xspace(pod, host) for host in range(2)]
    result = overview(*hosts)
    assert input_share(result) < 0.05
    assert "HIGHLY" not in result["bottleneck"]["statement"]
    assert "MODERATELY" not in result["bottleneck"]["statement"]


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100"])
def test_whether_input_is_waited_for_is_unknown_where_devices_were_not_traced(device: str) -> None:
    space = xplane_pb2.XSpace.FromString(build_xspace(Pod(device=device, hosts=1, steps=8), 0))
    for index in reversed(range(len(space.planes))):
        if space.planes[index].name.startswith("/device:"):
            del space.planes[index]
    of_host = partials(space.SerializeToString())
    told = run_tool("input_pipeline_analyzer", of_host, SCOPE)
    assert told.result["classification"] == "unknown"
    assert "cannot be told" in told.result["statement"]
    assert told.result["input_ratio"] is None
    assert "device_tracer_level 1" in told.result["next_step"]
    assert "no_device_plane" in [reason.code for reason in told.reasons]
    assert (
        run_tool("overview_page", of_host, SCOPE).result["bottleneck"]["statement"]
        == (told.result["statement"])
    )


@pytest.mark.parametrize("device", ["tpu-v5e", "cpu"])
def test_a_pod_that_waits_for_input_is_said_to(device: str) -> None:
    pod = Pod(device=device, hosts=2, steps=8, seed=4, input_bound=0.5)
    result = overview(*(build_xspace(pod, host) for host in range(2)))
    assert input_share(result) > 0.2
    assert result["bottleneck"]["classification"] == "host"


def gpu_host(waits: Spans, kernels: Spans, steps: int = 3) -> bytes:
    """Steps of 100 us, one every 200 us, of one GPU; times within a step, in us.

    Args:
        waits: On a thread of their own where they are calls of an iterator, else below the step.
        kernels: On the GPU, each launched at the start of its step.
    """
    space = xplane_pb2.XSpace(hostnames=["vm"])
    host, device = space.planes.add(name="/host:CPU"), space.planes.add(name="/device:GPU:0", id=1)
    for plane in (host, device):
        for key, name in ((1, "step_num"), (2, "_r"), (3, "correlation_id")):
            plane.stat_metadata[key].id = key
            plane.stat_metadata[key].name = name
    python, reader = host.lines.add(id=1, name="python"), host.lines.add(id=2, name="reader")
    stream = device.lines.add(id=3, name="Stream #1(Compute)")
    names: dict[str, int] = {}

    def event(owner: Any, line: Any, name: str, begin: int, duration: int) -> Any:
        key = names.setdefault(name, len(names) + 1)
        owner.event_metadata[key].id, owner.event_metadata[key].name = key, name
        return line.events.add(
            metadata_id=key, offset_ps=begin * US, duration_ps=max(duration * US, 1)
        )

    for step in range(steps):
        at = 200 * step
        root = event(host, python, "train", at, 100)
        root.stats.add(metadata_id=1, int64_value=step)
        root.stats.add(metadata_id=2, int64_value=1)
        for number, (name, begin, duration) in enumerate(kernels):
            correlation = 100 * step + number + 1
            launch = event(host, python, "cuLaunchKernel", at + number, 1)
            launch.stats.add(metadata_id=3, uint64_value=correlation)
            kernel = event(device, stream, name, at + begin, duration)
            kernel.stats.add(metadata_id=3, uint64_value=correlation)
        for name, begin, duration in waits:
            line = reader if name.startswith("Iterator") else python
            event(host, line, name, at + begin, duration)
    return space.SerializeToString()


@pytest.mark.parametrize(
    ("name", "begin", "duration", "percent"),
    [
        pytest.param("IteratorGetNextOp::DoCompute", 40, 30, 30, id="all the gap"),
        pytest.param("IteratorGetNextOp::DoCompute", 10, 50, 20, id="while a kernel runs it hides"),
        pytest.param("IteratorGetNextOp::DoCompute", 10, 20, 0, id="hidden altogether"),
        pytest.param("next_batch", 45, 10, 10, id="an annotation of the training loop"),
        pytest.param("log_metrics", 40, 30, 0, id="an annotation of something else"),
    ],
)
def test_gpus_that_run_nothing_while_the_host_waits_for_a_batch_wait_for_input(
    name: str, begin: int, duration: int, percent: int
) -> None:
    host = gpu_host([(name, begin, duration)], [("first", 0, 40), ("second", 70, 30)])
    result = overview(host)
    assert input_share(result) == pytest.approx(percent / 100)
    other = next(part["ratio"] for part in result["breakdown"] if part["category"] == "other")
    assert other == pytest.approx(0.3 - percent / 100)
    pipeline = run_tool("input_pipeline_analyzer", partials(host), SCOPE).result
    assert pipeline["input_ratio"]["average"] == pytest.approx(percent / 100)
    assert pipeline["classification"] == ("host" if percent >= 20 else "both")
    assert result["bottleneck"]["evidence"] == [
        f"In {percent}.0% of the step time no GPU of a host ran anything while a thread of the "
        "host waited for the next batch."
    ] * bool(percent)


def test_one_gpu_that_runs_keeps_the_host_from_starving() -> None:
    busy = gpu_host([("IteratorGetNextOp::DoCompute", 0, 100)], [("first", 0, 100)])
    assert input_share(overview(busy)) == 0


def test_the_references_breakdown_of_gpus_is_untouched() -> None:
    host = gpu_host([("IteratorGetNextOp::DoCompute", 40, 30)], [("a", 0, 40), ("b", 70, 30)])
    table = run_tool_xprof("input_pipeline_analyzer", partials(host))
    assert isinstance(table, list)
    labels = [column["id"] for column in table[1]["cols"]]
    cells = [cell["v"] for cell in table[1]["rows"][0]["c"]]
    row = dict(zip(labels, cells, strict=True))
    assert float(row["infeedTimeMs"]) == 0
    assert float(row["otherTimeMs"]) == pytest.approx(0.03)


@pytest.mark.parametrize("planted", [0.06, 0.3, 0.7])
def test_what_simulated_gpus_wait_for_input_is_told(planted: float) -> None:
    pod = Pod(device="gpu-h100", hosts=2, steps=10, seed=4, input_bound=planted)
    result = overview(build_xspace(pod, 0), build_xspace(pod, 1))
    assert input_share(result) == pytest.approx(planted, abs=0.015)
    said = "MODERATELY" if planted < 0.2 else "HIGHLY"
    assert f"{said} input-bound" in result["bottleneck"]["statement"]
