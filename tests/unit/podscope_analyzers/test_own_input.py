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


@pytest.mark.parametrize("device", ["tpu-v5e", "cpu"])
def test_a_pod_that_waits_for_input_is_said_to(device: str) -> None:
    pod = Pod(device=device, hosts=2, steps=8, seed=4, input_bound=0.5)
    result = overview(*(build_xspace(pod, host) for host in range(2)))
    assert input_share(result) > 0.2
    assert result["bottleneck"]["classification"] == "host"
