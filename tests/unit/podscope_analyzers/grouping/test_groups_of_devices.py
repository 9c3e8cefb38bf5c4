"""Groups of events of devices."""

import pytest
from tests.unit.podscope_analyzers.grouping.found_groups import (
    GPU,
    HOST,
    SPARSE,
    TPU,
    SpaceMaker,
    all_groups,
    group_names,
    groups_by_event,
)

from podscope_analyzers.prepare import prepare


@pytest.mark.case("T11", "T13")
def test_cores_without_a_host_are_numbered_in_lock_step(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space(
            {
                TPU: {
                    "Steps": [("1", 1000, 1000)],
                    "XLA Ops": [
                        ("op", 1010, 100, {"_pt": 14, "_p": 1}),
                        ("op", 1500, 100, {"_pt": 14, "_p": 2}),
                    ],
                },
                SPARSE: {
                    "Sparse Core Steps": [("a", 1100, 400), ("b", 1600, 400)],
                    "Sparse Core Ops": [
                        ("x", 1110, 100, {"_ct": 14, "_c": 1}),
                        ("x", 1610, 100, {"_ct": 14, "_c": 2}),
                    ],
                },
            }
        )
    )
    assert all_groups(space) == {0}
    plane = space.plane(SPARSE)
    assert plane is not None
    steps = plane.line("Sparse Core Steps")
    assert steps is not None
    assert steps.columns().start_ps.tolist() == [1100]
    assert steps.columns().duration_ps.tolist() == [900]


@pytest.mark.case("T13")
def test_step_k_of_every_core_is_one_group(make_space: SpaceMaker) -> None:
    """On two cores."""
    steps = [("1", 100, 200, {"step_num": 1}), ("2", 300, 200, {"step_num": 2})]
    cores = {
        f"/device:TPU:{core}": {
            "Steps": steps,
            "XLA Modules": [("module", 105, 194), ("module", 305, 194)],
            "XLA Ops": [("op", 110, 190), ("op", 310, 190)],
        }
        for core in range(2)
    }
    space = prepare(make_space(cores))
    for core in cores:
        found = groups_by_event(space, core)
        assert (found["1"], found["2"]) == ([0], [1])
        assert found["module"] == [0, 1]
    assert group_names(space) == ["1", "2"]


def test_sparse_cores_that_nothing_links_are_of_no_step(make_space: SpaceMaker) -> None:
    """Whether a TensorCore is there or not."""
    steps = [("1", 100, 200), ("2", 300, 200)]
    sparse = {"Sparse Core Steps": steps, "Sparse Core Ops": [("x", 110, 190), ("x", 310, 190)]}
    space = prepare(make_space({TPU: {"Steps": steps}, SPARSE: sparse}))
    assert groups_by_event(space, TPU) == {"1": [0], "2": [1]}
    assert groups_by_event(space, SPARSE) == {"1": [-1], "2": [-1], "x": [-1, -1]}
    alone = prepare(make_space({SPARSE: sparse}))
    assert all_groups(alone) == {-1}


def test_of_several_lines_of_steps_the_last_filled_one_groups(make_space: SpaceMaker) -> None:
    """There should be one."""
    lines = {
        "Steps": [("all", 0, 400)],
        "XLA Ops": [("op", 110, 80), ("op", 310, 80)],
        "second": [("1", 100, 100), ("2", 300, 100)],
        "third": [],
    }
    space = make_space({TPU: lines}, line_names={"second": "Steps", "third": "Steps"})
    assert groups_by_event(prepare(space), TPU)["op"] == [0, 1]


@pytest.mark.case("T9")
def test_a_device_loop_has_a_group_of_its_own(make_space: SpaceMaker) -> None:
    """The module reaches beyond the step, so the host's loop does not claim it."""
    launch = {"run_id": 1, "queue_id": 0, "device_ordinal": 0}
    space = prepare(
        make_space(
            {
                HOST: {
                    "executor": [("ExecutorState::Process", 100, 10, {"id": 1, "iter_num": 99})],
                    "runtime": [
                        ("TpuExecuteOp", 120, 20, {"id": 1, "iter_num": 99}),
                        ("DoEnqueueProgram", 125, 5, launch),
                    ],
                },
                TPU: {
                    "XLA Modules": [("module", 900, 1200, {"run_id": 1, "queue_id": 0})],
                    "Steps": [("s", 1000, 1000)],
                    "XLA Ops": [("op", 1010, 100, {"_pt": 14, "_p": 7})],
                },
                SPARSE: {
                    "Sparse Core Steps": [("sc", 1100, 800)],
                    "Sparse Core Ops": [("scop", 1200, 100, {"_ct": 14, "_c": 7})],
                },
            }
        )
    )
    assert set(map(tuple, groups_by_event(space, HOST).values())) == {(0,)}
    found = groups_by_event(space, TPU) | groups_by_event(space, SPARSE)
    del found["module"]
    assert found == {"s": [1], "op": [1], "sc": [1], "scop": [1]}


@pytest.mark.case("S6", "S7")
def test_gpu_events_without_a_group_take_the_last_one_seen(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space(
            {
                HOST: {
                    "main": [
                        ("train", 0, 100, {"_r": 1, "step_num": 0}),
                        ("launch", 10, 10, {"correlation_id": 1}),
                        ("train", 200, 100, {"_r": 1, "step_num": 1}),
                        ("launch", 210, 10, {"correlation_id": 2}),
                    ]
                },
                GPU: {
                    "stream": [
                        ("op1", 0, 100, {"correlation_id": 1}),
                        ("op2", 200, 300, {"correlation_id": 2}),
                        ("op3", 600, 100),
                    ]
                },
            }
        )
    )
    plane = space.plane(GPU)
    assert plane is not None
    assert plane.lines[0].group_id.tolist() == [0, 1, 1]
    steps = plane.line("Steps")
    assert steps is not None
    assert steps.is_derived
    columns = steps.columns()
    assert [plane.event_metadata.names[row] for row in columns.metadata] == ["0", "1"]
    assert columns.start_ps.tolist() == [0, 200]
    assert columns.duration_ps.tolist() == [100, 500]
    codes, names = steps.step_names()
    assert [names[code] for code in codes] == ["train 0", "train 1"]


@pytest.mark.case("S13")
def test_a_framework_op_on_a_tpu_ends_at_a_long_gap(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space(
            {TPU: {"XLA Ops": [("a", 0, 100), ("b", 200, 300), ("c", 1501, 300)]}},
            metadata={name: {"tf_op": "mul:Mul"} for name in "abc"},
        )
    )
    plane = space.plane(TPU)
    assert plane is not None
    line = plane.line("Framework Ops")
    assert line is not None
    assert line.columns().start_ps.tolist() == [0, 1501]
    assert line.columns().duration_ps.tolist() == [500, 300]


@pytest.mark.case("S14")
def test_lines_of_a_tpu_are_sorted(make_space: SpaceMaker) -> None:
    cores = {
        f"/device:TPU:{core}": {"XLA Ops": [("op", 200 * i, 100) for i in range(9, -1, -1)]}
        for core in range(4)
    }
    space = prepare(make_space(cores, metadata={"op": {"tf_op": "mul:Mul"}}))
    for plane in space.planes:
        ops, framework = plane.line("XLA Ops"), plane.line("Framework Ops")
        assert ops is not None
        assert framework is not None
        assert ops.columns().start_ps.tolist() == [200 * i for i in range(10)]
        assert framework.columns().duration_ps.tolist() == [1900]
