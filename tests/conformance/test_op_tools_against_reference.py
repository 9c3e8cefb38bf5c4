"""Framework op stats and kernel stats equal the reference's for every reference capture."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.gpu_kernels import KernelDatabase, host_kernels
from podscope_analyzers.hlo import read_programs
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.framework_view import framework_view
from podscope_analyzers.op_metrics.headline import (
    duty_cycle_ratio,
    eager_ratio,
    op_placement_ratios,
)
from podscope_analyzers.op_metrics.host_databases import device_op_database, host_op_database
from podscope_analyzers.op_metrics.run_environment import host_perf_env, host_run_environment
from podscope_analyzers.peaks import PerfEnv
from podscope_analyzers.prepare import prepare
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.run_environment import RunEnvironment
from podscope_analyzers.xspace import open_xspace

CAPTURES = (
    "gpu_multi_worker",
    "jax_2mb",
    "jax_mh4",
    "mi300_conv08",
    "tf_input_bound",
    "tf_jit",
    "tpu_inference_2",
)


def capture_stats(folder: Path) -> CaptureStats:
    """Everything that the operations' tools need, through each host's state and back."""
    host_ops, device_ops, kernels, environments, peaks = [], [], [], [], []
    for path in sorted(folder.glob("plugins/profile/*/*.xplane.pb")):
        space = prepare(open_xspace(path.read_bytes()))
        programs = read_programs(space)
        host_ops.append(OpDatabase.from_state(host_op_database(space).to_state()))
        device_ops.append(OpDatabase.from_state(device_op_database(space, programs).to_state()))
        kernels.append(KernelDatabase.from_state(host_kernels(space, programs).to_state()))
        environments.append(host_run_environment(space, programs))
        peaks.append(host_perf_env(space))
    stats = SimpleNamespace(
        host_ops=OpDatabase.combine(host_ops, add_cores=False),
        device_ops=OpDatabase.combine(device_ops),
        kernels=KernelDatabase.combine(kernels),
        reference_kernels=KernelDatabase.side_by_side(kernels),
        run_environment=RunEnvironment.combine(environments),
        perf_env=PerfEnv.combine(peaks),
    )
    return cast("CaptureStats", stats)


@pytest.mark.parametrize("tool", ["framework_op_stats", "kernel_stats"])
@pytest.mark.parametrize("capture", CAPTURES)
def test_the_table_equals_the_reference(
    capture: str,
    tool: str,
    reference_dir: Path,
    reference: Callable[[str, str], Any],
    compare: Callable[..., list[str]],
) -> None:
    stats = capture_stats(reference_dir / "profiles" / capture)
    got = json.loads(json.dumps(TOOLS[tool].xprof_json(stats, {})))
    assert compare(reference(capture, tool), got) == []


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_overview_heads_with_the_same_operations_and_percentages(
    capture: str, reference_dir: Path, reference: Callable[[str, str], Any]
) -> None:
    stats = capture_stats(reference_dir / "profiles" / capture)
    analysis, environment = (reference(capture, "overview_page")[i] for i in (0, 2))
    host, device = op_placement_ratios(stats.host_ops, stats.device_ops)
    # On hosts without TPU the reference gives no duty cycle and no idle time.
    percentages = {
        "host_tf_op_percent": host,
        "device_tf_op_percent": device,
        "host_op_time_eager_percent": eager_ratio(stats.host_ops),
        "device_op_time_eager_percent": eager_ratio(stats.device_ops),
    }
    if "TPU" in stats.run_environment.device_type:
        percentages |= {
            "device_duty_cycle_percent": duty_cycle_ratio(stats.device_ops),
            "device_duty_cycle_high_confidence_percent": duty_cycle_ratio(
                stats.device_ops, high_confidence=True
            ),
            "device_idle_time_percent": stats.device_ops.idle_ratio,
            "host_idle_time_percent": stats.host_ops.idle_ratio,
        }
    assert {name: analysis["p"][name] for name in percentages} == {
        name: f"{100 * ratio:.1f}%" for name, ratio in percentages.items()
    }
    view = framework_view(stats.device_ops, with_idle=False)
    top = [
        [
            int(view.column("self_time_ps")[row]) / view.total_op_time_ps,
            view.text("category", row),
            view.text("name", row),
        ]
        for row in view.order_by_self_time()[:10].tolist()
    ]
    expected = [[row["c"][i]["v"] for i in (0, 2, 3)] for row in analysis["rows"]]
    assert [row[1:] for row in top] == [row[1:] for row in expected]
    assert [row[0] for row in top] == pytest.approx([row[0] for row in expected])
    shown = environment["p"]
    assert shown["device_type"] == stats.run_environment.device_type
    assert shown["device_core_count"] == str(stats.run_environment.device_core_count)
    assert shown["is_training"] == str(stats.run_environment.is_training).lower()
