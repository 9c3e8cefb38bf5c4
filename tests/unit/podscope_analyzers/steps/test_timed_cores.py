"""SparseCores whose operations are of no step."""

import numpy as np
import pytest

from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_analyzers.steps import StepDatabase
from podscope_analyzers.steps.timed_cores import BUSY, with_timed_cores
from podscope_protos.v1 import xplane_pb2

SPARSE = 1_000_005
MS = 10**9


def tensor_core_steps(*spans: tuple[int, int]) -> StepDatabase:
    begin, duration = np.array(spans, np.int64).reshape(-1, 2).T
    count = len(begin)
    state = StepDatabase.empty("tpu", has_device=True).to_state()
    return StepDatabase.from_state(
        state
        | {
            "step_numbers": np.arange(count),
            "row_step": np.arange(count),
            "core_id": np.ones(count, np.int64),
            "host_index": np.zeros(count, np.int64),
            "begin_ps": begin,
            "duration_ps": duration,
            "name_code": np.zeros(count, np.int64),
            "breakdown_ps": duration.reshape(-1, 1),
            "in_breakdown": np.ones((count, 1), np.bool_),
        }
    )


def spans(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def test_such_a_core_worked_in_a_step_as_long_as_it_was_active_meanwhile() -> None:
    steps = tensor_core_steps((0, 90), (100, 90), (200, 90))
    # Half of the first lies behind the step, the second spans the pause, the last is whole.
    found = with_timed_cores(steps, {SPARSE: spans((85, 95), (180, 210), (250, 260))})
    assert found.core_id.tolist() == [1, SPARSE] * 3
    assert found.row_step.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.begin_ps.tolist() == [0, 0, 100, 100, 200, 200]
    assert found.duration_ps.tolist() == [90] * 6
    assert found.time_ps(BUSY).tolist() == [0, 5, 0, 10, 0, 20]
    assert found.time_ps("IDLE").tolist() == [90, 85, 90, 80, 90, 70]


def test_a_core_that_never_worked_is_in_no_step() -> None:
    steps = tensor_core_steps((0, 90))
    assert with_timed_cores(steps, {SPARSE: spans()}) is steps


def test_without_steps_of_a_tensor_core_there_is_nothing_to_be_in() -> None:
    steps = tensor_core_steps()
    assert with_timed_cores(steps, {SPARSE: spans((0, 5))}) is steps


@pytest.mark.parametrize(("first_step", "has_steps"), [(0, True), (0, False), (20 * MS, True)])
def test_a_sparse_core_hides_no_step_of_the_tensor_core(first_step: int, has_steps: bool) -> None:
    """Four steps of 90 ms, in each 45 ms of convolution, and 10 ms of a gather beside it."""
    space = xplane_pb2.XSpace(hostnames=["host"])
    for name in ("/device:TPU:0", "/device:TPU:0 SparseCore 0"):
        sparse = "Sparse" in name
        plane = space.planes.add(name=name, id=5 if sparse else 1)
        for key, stat in enumerate(("program_id", "symbol_id", "hlo_category"), start=1):
            plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, stat
        for key, text in enumerate(("step", "gather" if sparse else "convolution"), start=1):
            plane.event_metadata[key].id, plane.event_metadata[key].name = key, text
        op = plane.event_metadata[2]
        op.stats.add(metadata_id=1, uint64_value=7)
        op.stats.add(metadata_id=2, uint64_value=1)
        op.stats.add(metadata_id=3, str_value=op.name)
        steps = plane.lines.add(id=1, name="Sparse Core Steps" if sparse else "Steps")
        ops = plane.lines.add(id=2, name="Sparse Core Ops" if sparse else "XLA Ops")
        for step in range(4):
            begin = step * 100 * MS
            if has_steps or not sparse:
                shift = first_step if sparse else 0
                steps.events.add(metadata_id=1, offset_ps=begin + shift, duration_ps=90 * MS)
            ops.events.add(metadata_id=2, offset_ps=begin, duration_ps=(10 if sparse else 45) * MS)
    partial = analyze_host(space.SerializeToString(), "host")
    tables = run_tool_xprof("input_pipeline_analyzer", [partial], {})
    assert isinstance(tables, list)
    table = tables[1]
    assert [row["c"][1]["v"] for row in table["rows"]] == [45.0] * 4
    properties = table["p"]
    assert properties["sc_compute_ms_average"] == "10.00"
    assert properties["sc_idle_ms_average"] == "80.00"
    assert properties["sc_step_time_ms_average"] == "90.0"
