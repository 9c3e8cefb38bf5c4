"""Whether our tables equal the reference's on real captures."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool_xprof

CAPTURES = (
    "gpu_multi_worker",
    "jax_2mb",
    "jax_mh4",
    "mi300_conv08",
    "tf_input_bound",
    "tf_jit",
    "tpu_inference_2",
)
TOOLS = (
    "overview_page",
    "input_pipeline_analyzer",
    "framework_op_stats",
    "kernel_stats",
    "pod_viewer",
)


@pytest.fixture(scope="session")
def partials(reference_dir: Path) -> Callable[[str], Sequence[HostPartial]]:
    """The partials of a capture's hosts, computed once."""

    @cache
    def load(capture: str) -> Sequence[HostPartial]:
        files = sorted((reference_dir / "profiles" / capture).rglob("*.xplane.pb"))
        # Stored and read back, as the service does it.
        return [
            HostPartial.from_bytes(
                analyze_host(f.read_bytes(), f.name.removesuffix(".xplane.pb")).to_bytes()
            )
            for f in files
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
    got = json.loads(json.dumps(run_tool_xprof(tool, partials(capture)), allow_nan=False))
    assert compare(reference(capture, tool), got) == []
