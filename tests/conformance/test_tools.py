"""Whether our tables equal the reference's on real captures."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.partials import PARTS, HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_analyzers.registry import TOOLS as REGISTRY

CAPTURES = (
    "gpu_multi_worker",
    "jax_2mb",
    "jax_mh4",
    "mi300_conv08",
    "tf_input_bound",
    "tf_jit",
    "tpu_inference_2",
)
TF_DATA_CAPTURES = ("jax_2mb", "tf_input_bound", "tf_jit")
TOOLS = (
    "overview_page",
    "input_pipeline_analyzer",
    "framework_op_stats",
    "kernel_stats",
    "hlo_stats",
    "op_profile",
    "roofline_model",
    "pod_viewer",
    "inference_profile",
)
# What the reference has no answer for: captures without any program.
WITH_PROGRAMS = ("jax_2mb", "jax_mh4", "mi300_conv08", "tf_jit", "tpu_inference_2")


def stored(partial: HostPartial) -> HostPartial:
    """The partial with its parts, written and read back."""
    read = HostPartial.from_bytes(partial.to_bytes())
    for part in PARTS:
        read = read.with_part(part, partial.part_to_bytes(part))
    return read


@pytest.fixture(scope="session")
def partials(reference_dir: Path) -> Callable[[str], Sequence[HostPartial]]:
    """The partials of a capture's hosts, computed once."""

    @cache
    def load(capture: str) -> Sequence[HostPartial]:
        files = sorted((reference_dir / "profiles" / capture).rglob("*.xplane.pb"))
        # Stored and read back, as the service does it.
        return [
            stored(analyze_host(f.read_bytes(), f.name.removesuffix(".xplane.pb"))) for f in files
        ]

    return load


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_table_equals_the_references(
    tool: str,
    capture: str,
    partials: Callable[[str], Sequence[HostPartial]],
    reference: Callable[[str, str], Any],
    compare: Callable[..., list[str]],
) -> None:
    hosts = partials(capture)
    if REGISTRY[tool].scope == "host" or REGISTRY[tool].first_host_in_xprof:
        hosts = hosts[:1]
    got = json.loads(json.dumps(run_tool_xprof(tool, hosts), allow_nan=False))
    assert compare(reference(capture, tool), got) == []


@pytest.mark.parametrize("capture", WITH_PROGRAMS)
def test_the_memory_of_the_largest_program_equals_the_references(
    capture: str,
    partials: Callable[[str], Sequence[HostPartial]],
    reference: Callable[[str, str], Any],
    reference_dir: Path,
    compare: Callable[..., list[str]],
) -> None:
    module = json.loads((reference_dir / "golden" / "windows.json").read_text())[capture]["module"]
    expected = reference(capture, "memory_viewer")
    named: tuple[dict[str, str], ...] = ({}, {"module_name": module})
    for parameters in named:
        got = run_tool_xprof("memory_viewer", partials(capture), parameters)
        got = json.loads(json.dumps(got, allow_nan=False))
        by_size = got["maxHeapBySize"]
        assert [got["maxHeap"][place] for place in got["bySizeToMaxHeap"]] == by_size
        assert [by_size[place] for place in got["maxHeapToBySize"]] == got["maxHeap"]
        # Its order of equal sizes is undefined, and colours are our own.
        assert compare(in_size_order(expected), in_size_order(got), ignore=is_free) == []


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_allocators_equal_the_references(
    capture: str,
    partials: Callable[[str], Sequence[HostPartial]],
    reference: Callable[[str, str], Any],
    compare: Callable[..., list[str]],
) -> None:
    expected = reference(capture, "memory_profile")
    got = json.loads(json.dumps(run_tool_xprof("memory_profile", partials(capture))))
    assert compare(with_what_is_defined(expected), with_what_is_defined(got)) == []


def with_what_is_defined(profile: dict[str, Any]) -> dict[str, Any]:
    """Of equal allocations at the peak it is free which one is named: its time, step, address."""
    for allocator in profile["memoryProfilePerAllocator"].values():
        for snapshot in allocator["memoryProfileSnapshots"]:
            del snapshot["timeOffsetPs"], snapshot["aggregationStats"]
            del snapshot["activityMetadata"]["address"]
    return profile


def is_free(path: str) -> bool:
    return path.endswith("].color") or path in (".bySizeToMaxHeap", ".maxHeapToBySize")


def in_size_order(viewer: dict[str, Any]) -> dict[str, Any]:
    by_size = viewer["maxHeapBySize"]
    sizes = [one["logicalBufferSizeMib"] for one in by_size]
    assert sizes == sorted(sizes, reverse=True)
    ordered = sorted(by_size, key=lambda one: (-one["logicalBufferSizeMib"], one["numbered"]))
    return {**viewer, "maxHeapBySize": ordered}


@pytest.mark.parametrize("capture", TF_DATA_CAPTURES)
def test_tf_data_pipelines_equal_the_references(
    capture: str,
    partials: Callable[[str], Sequence[HostPartial]],
    reference: Callable[[str, str], Any],
    compare: Callable[..., list[str]],
) -> None:
    tool = "tf_data_bottleneck_analysis"
    got = json.loads(json.dumps(run_tool_xprof(tool, partials(capture)), allow_nan=False))
    assert compare(reference(capture, tool), got) == []
