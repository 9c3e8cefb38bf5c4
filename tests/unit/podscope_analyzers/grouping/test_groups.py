"""Groups of events."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podscope_analyzers import XSpace
from podscope_analyzers.grouping.contexts import CONTEXT_STATS, LineContexts, line_contexts
from podscope_analyzers.grouping.event_types import node_types
from podscope_analyzers.grouping.groups import Groups
from podscope_analyzers.prepare import prepare
from podscope_analyzers.prepared import PreparedSpace

SpaceMaker = Callable[..., XSpace]
HOST = "/host:CPU"
GPU = "/device:GPU:0"
TPU = "/device:TPU:0"
SPARSE = "/device:TPU:0 SparseCore 0"


def groups_by_event(space: PreparedSpace, plane: str | None = None) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for each in space.planes:
        if plane is not None and each.name != plane:
            continue
        for line in each.lines:
            if line.is_derived:
                continue
            columns = line.columns()
            for row, group in zip(columns.metadata, line.group_id, strict=True):
                found.setdefault(each.event_metadata.names[int(row)], []).append(int(group))
    return found


def all_groups(space: PreparedSpace) -> set[int]:
    return {g for groups in groups_by_event(space).values() for g in groups}


def group_names(space: PreparedSpace) -> list[str]:
    assert isinstance(space.groups, Groups)
    return [space.groups.name(g) for g in range(len(space.groups))]


@pytest.mark.case("T1")
@pytest.mark.parametrize(
    "root",
    [
        pytest.param(
            ("TraceContext", 0, 100, {"graph_type": "train", "step_num": 123}), id="TraceContext"
        ),
        pytest.param(("train", 0, 100, {"_r": 1, "step_num": 123}), id="named root"),
    ],
)
def test_a_step_reaches_from_the_root_to_the_kernel(make_space: SpaceMaker, root: Any) -> None:
    space = prepare(
        make_space(
            {
                HOST: {
                    "main": [root, ("FunctionRun", 10, 90, {"id": 0, "_pt": 1, "_p": 0})],
                    "executor": [
                        ("ExecutorState::Process", 20, 80, {"id": 0, "_ct": 1, "_c": 0}),
                        ("matmul", 30, 70, {"correlation_id": 100}),
                    ],
                },
                GPU: {"stream": [("kernel", 200, 300, {"correlation_id": 100})]},
            }
        )
    )
    assert group_names(space) == ["train 123"]
    assert all_groups(space) == {0}


@pytest.mark.case("T2", "T14")
def test_an_iteration_of_a_loop_is_named_by_its_number(make_space: SpaceMaker) -> None:
    """An event that nothing links gets no group."""
    stats = {"id": 0, "iter_num": 10}
    space = prepare(
        make_space(
            {
                HOST: {
                    "a": [("ExecutorState::Process", 5, 10, stats)],
                    "b": [
                        ("ExecutorState::Process", 20, 80, stats),
                        ("matmul", 30, 70, {"correlation_id": 100}),
                    ],
                },
                "/device:CUSTOM:0": {
                    "stream": [("kernel", 200, 300, {"correlation_id": 100})],
                    "Tensor Core Sync Flag": [("flag", 200, 300, {"raw_value": 5})],
                },
            }
        )
    )
    found = groups_by_event(space)
    assert group_names(space) == ["10"]
    assert found.pop("flag") == [-1]
    assert found == {"ExecutorState::Process": [0, 0], "matmul": [0], "kernel": [0]}


@pytest.mark.case("T3")
def test_iterations_of_loops_are_numbered_by_time(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space(
            {
                HOST: {
                    "A": [
                        ("ExecutorState::Process", 220, 80, {"id": 1, "iter_num": 0}),
                        ("ExecutorState::Process", 320, 80, {"id": 1, "iter_num": 1}),
                    ],
                    "B": [
                        ("ExecutorState::Process", 20, 80, {"id": 0, "iter_num": 10}),
                        ("ExecutorState::Process", 120, 80, {"id": 0, "iter_num": 11}),
                    ],
                }
            }
        )
    )
    assert group_names(space) == ["10", "11", "0", "1"]
    assert groups_by_event(space)["ExecutorState::Process"] == [2, 3, 0, 1]


@pytest.mark.case("T4")
def test_eager_execution_is_told_from_functions(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space(
            {
                HOST: {
                    "a": [("launch", 10, 90, {"correlation_id": 100})],
                    "b": [
                        ("EagerExecute", 0, 100),
                        ("launch", 10, 90, {"correlation_id": 200}),
                    ],
                    "c": [
                        ("EagerExecute", 0, 100, {"is_func": 0}),
                        ("launch", 10, 90, {"correlation_id": 300}),
                        ("a/add:Add", 20, 10),
                    ],
                    "d": [
                        ("EagerExecute", 0, 100, {"is_func": 1}),
                        ("launch", 10, 90, {"correlation_id": 400}),
                        ("a/add:Add", 20, 10),
                    ],
                },
                GPU: {
                    "stream": [
                        ("kernel", 200 + i, 1, {"correlation_id": 100 * i}) for i in range(1, 5)
                    ]
                },
            }
        )
    )
    gpu, host = space.plane(GPU), space.host_plane
    assert gpu is not None
    assert host is not None
    assert gpu.lines[0].is_eager.tolist() == [0, 0, 1, 0]
    assert [line.is_eager.tolist() for line in host.lines] == [
        [-1],
        [-1, -1],
        [-1, -1, 1],
        [-1, -1, 0],
    ]


@pytest.mark.case("T5")
@pytest.mark.parametrize(
    ("produced", "consumed", "expected"),
    [(456, 456, 0), (456, 789, -1), (2**64 - 1, 2**64 - 2, -1), (2**64 - 1, 2**64 - 1, 0)],
)
def test_a_context_links_threads(
    make_space: SpaceMaker, produced: int, consumed: int, expected: int
) -> None:
    space = prepare(
        make_space(
            {
                HOST: {
                    "main": [
                        ("TraceContext", 0, 100, {"_r": 1}),
                        ("FunctionRun", 10, 90, {"_pt": 123, "_p": produced}),
                    ],
                    "other": [("ExecutorState::Process", 20, 80, {"_ct": 123, "_c": consumed})],
                }
            }
        )
    )
    assert groups_by_event(space) == {
        "TraceContext": [0],
        "FunctionRun": [0],
        "ExecutorState::Process": [expected],
    }


@pytest.mark.case("T6")
def test_asynchronous_events_are_apart(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space(
            {
                HOST: {
                    "main": [
                        ("parent", 0, 100, {"_r": 1}),
                        ("async", 10, 200, {"_a": 1}),
                        ("child", 20, 80),
                    ]
                }
            }
        )
    )
    assert groups_by_event(space) == {"parent": [0], "async": [-1], "child": [0]}


@pytest.mark.case("T7")
def test_a_batch_has_the_requests_as_parents(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space(
            {
                HOST: {
                    "requests": [
                        ("BatchingSessionRun", 0, 100, {"_r": 1}),
                        ("Schedule", 0, 100, {"_pt": 4, "_p": 123}),
                        ("BatchingSessionRun", 200, 100, {"_r": 1}),
                        ("Schedule", 200, 100, {"_pt": 4, "_p": 123}),
                    ],
                    "batches": [("ProcessBatch", 200, 100, {"_r": 2, "_ct": 4, "_c": 123})],
                }
            }
        )
    )
    assert isinstance(space.groups, Groups)
    assert len(space.groups) == 3
    assert space.groups.relations() == {(1, 0), (2, 0)}
    assert groups_by_event(space) == {
        "BatchingSessionRun": [1, 2],
        "Schedule": [1, 2],
        "ProcessBatch": [0],
    }


@pytest.mark.case("T8")
def test_steps_of_one_group_become_one_step(make_space: SpaceMaker) -> None:
    spans = [(1000, 10), (1015, 100), (1125, 50), (1180, 25)]

    def launch(run: int) -> Mapping[str, int]:
        return {"run_id": run, "queue_id": 0, "device_ordinal": 0}

    space = prepare(
        make_space(
            {
                HOST: {
                    "main": [
                        ("train", 100, 10, {"_r": 1, "step_num": 1}),
                        *(("DoEnqueueProgram", 101 + r, 1, launch(r)) for r in range(2, 6)),
                    ]
                },
                TPU: {
                    "XLA Modules": [
                        ("module", *span, {"run_id": 2 + i, "queue_id": 0})
                        for i, span in enumerate(spans)
                    ],
                    "Steps": [
                        (
                            str(i),
                            *span,
                            {"device_offset_ps": span[0], "device_duration_ps": span[1]},
                        )
                        for i, span in enumerate(spans)
                    ],
                    "XLA Ops": [
                        ("op", *span, {"_pt": 14, "_p": i}) for i, span in enumerate(spans)
                    ],
                },
                SPARSE: {
                    "Sparse Core Steps": [
                        (
                            str(i),
                            *span,
                            {
                                "device_offset_ps": span[0],
                                "device_duration_ps": span[1],
                                "step_idle_time_ps": 5,
                            },
                        )
                        for i, span in enumerate(spans)
                    ],
                    "Sparse Core Ops": [
                        ("op", *span, {"_ct": 14, "_c": i}) for i, span in enumerate(spans)
                    ],
                },
            }
        )
    )
    assert group_names(space) == ["train 1"]
    assert all_groups(space) == {0}
    for plane_name, line_name in ((TPU, "Steps"), (SPARSE, "Sparse Core Steps")):
        plane = space.plane(plane_name)
        assert plane is not None
        line = plane.line(line_name)
        assert line is not None
        columns = line.columns(("device_offset_ps", "device_duration_ps", "step_idle_time_ps"))
        assert (columns.start_ps.tolist(), columns.duration_ps.tolist()) == ([1000], [205])
        assert columns.stat("device_offset_ps").ints().tolist() == [1000]
        assert columns.stat("device_duration_ps").ints().tolist() == [205]
        if plane_name == SPARSE:
            assert columns.stat("step_idle_time_ps").ints().tolist() == [20]
        codes, names = line.step_names()
        assert [names[code] for code in codes] == ["train 1"]


@pytest.mark.case("T10")
@pytest.mark.parametrize(("stats", "expected"), [({"_pid": 1000}, 1), ({}, -1)])
def test_contexts_cross_processes_only_when_they_say_so(
    make_space: SpaceMaker, stats: dict[str, int], expected: int
) -> None:
    first, second = "Host CPUs", "Host CPUs [2000]"
    space = prepare(
        make_space(
            {
                first: {
                    "a": [
                        ("root1", 0, 10, {"_r": 1}),
                        ("root2", 10, 100, {"_r": 1}),
                        ("producer", 10, 90, {"_pt": 123, "_p": 456}),
                    ]
                },
                second: {"b": [("consumer", 20, 80, {"_ct": 123, "_c": 456, **stats})]},
            },
            plane_stats={first: {"process_id": 1000}, second: {"process_id": 2000}},
        )
    )
    assert groups_by_event(space) == {
        "root1": [0],
        "root2": [1],
        "producer": [1],
        "consumer": [expected],
    }


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


@pytest.mark.case("T12")
def test_a_launch_within_a_step_groups_all_its_cores(make_space: SpaceMaker) -> None:
    launch = {"run_id": 1, "queue_id": 0, "device_ordinal": 0}
    space = prepare(
        make_space(
            {
                HOST: {
                    "main": [
                        ("root", 0, 200, {"_r": 1}),
                        ("DoEnqueueProgram", 10, 5, launch),
                    ]
                },
                TPU: {
                    "XLA Modules": [("module", 1000, 1000, {"run_id": 1, "queue_id": 0})],
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
    assert all_groups(space) == {0}


@pytest.mark.case("W17")
def test_a_title_takes_the_number_of_an_event_around_it(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space(
            {HOST: {"main": [("loop", 0, 100, {"step_num": 7}), ("train", 10, 50, {"_r": 1})]}}
        )
    )
    assert group_names(space) == ["train 7"]


def test_loops_outside_the_executor_leave_everything_ungrouped(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space({HOST: {"main": [("train", 0, 100, {"_r": 1}), ("ParallelForOp", 10, 50)]}})
    )
    assert all_groups(space) == {-1}


def test_a_file_that_was_grouped_keeps_its_groups(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space({HOST: {"main": [("train", 0, 100, {"_r": 1, "group_id": 7}), ("x", 10, 5)]}})
    )
    assert groups_by_event(space) == {"train": [7], "x": [-1]}


def contexts_of(space: XSpace) -> LineContexts:
    plane = space.planes[0]
    columns = plane.lines[0].columns(CONTEXT_STATS & plane.stat_names)
    return line_contexts(node_types(plane.event_metadata.names)[columns.metadata], columns)


@pytest.mark.case("U1")
def test_batches_are_roots_above_requests(make_space: SpaceMaker) -> None:
    found = contexts_of(
        make_space({HOST: {"main": [("ProcessBatch", 0, 10), ("BatchingSessionRun", 20, 10)]}})
    )
    assert found.roots.values.tolist() == [2, 1]


@pytest.mark.case("U2")
@pytest.mark.parametrize(
    ("iterations", "equal"),
    [pytest.param((456, 456), True, id="equal"), pytest.param((456, 789), False, id="other")],
)
def test_an_executor_launches_what_has_its_iteration(
    make_space: SpaceMaker, iterations: tuple[int, int], equal: bool
) -> None:
    found = contexts_of(
        make_space(
            {
                HOST: {
                    "main": [
                        (
                            "ExecutorState::Process",
                            100,
                            100,
                            {"id": 123, "iter_num": iterations[0]},
                        ),
                        ("TpuExecuteOp", 200, 100, {"id": 123, "iter_num": iterations[1]}),
                    ]
                }
            }
        )
    )
    assert found.producer_types.values.tolist() == [1]
    assert found.consumer_types.values.tolist() == [1]
    assert (found.producer_ids.values[0] == found.consumer_ids.values[0]) == equal


@pytest.mark.case("U2")
def test_without_iterations_nothing_is_implied(make_space: SpaceMaker) -> None:
    found = contexts_of(
        make_space(
            {
                HOST: {
                    "main": [
                        ("ExecutorState::Process", 100, 100, {"id": 123}),
                        ("TpuExecuteOp", 200, 100, {"id": 123}),
                    ]
                }
            }
        )
    )
    assert not len(found.producer_types.events)
    assert not len(found.consumer_types.events)


@pytest.mark.case("U3")
def test_run_ids_of_the_host_are_cut_to_27_bits(make_space: SpaceMaker) -> None:
    found = contexts_of(
        make_space(
            {
                HOST: {
                    "main": [
                        ("DoEnqueueProgram", 0, 1, {"run_id": 582974244}),
                        ("CompleteCallbacks", 2, 1, {"run_id": 582974244}),
                        ("TpuExecuteOp", 4, 1, {"run_id": 46103332}),
                        ("DoEnqueueContinuationProgram", 6, 1),
                    ]
                }
            }
        )
    )
    assert found.run_ids.events.tolist() == [0, 1, 2]
    assert found.run_ids.values.tolist() == [46103332, 46103332, 46103332]


@pytest.mark.case("U4")
@pytest.mark.parametrize("reverse", [False, True])
def test_regions_lie_between_their_start_and_stop(make_space: SpaceMaker, reverse: bool) -> None:
    pairs = [(400, 500), (200, 300)] if reverse else [(200, 300)]
    events = [
        event
        for start, stop in pairs
        for event in (
            ("ThreadpoolListener::StartRegion", start, 0, {"_c": 123}),
            ("ThreadpoolListener::StopRegion", stop, 0, {"_c": 123}),
        )
    ]
    space = prepare(make_space({HOST: {"pool": events}}))
    plane = space.host_plane
    assert plane is not None
    columns = plane.lines[0].columns(("_c",))
    names = [plane.event_metadata.names[row] for row in columns.metadata]
    regions = [i for i, name in enumerate(names) if name == "ThreadpoolListener::Region"]
    expected = sorted(start for start, _ in pairs)
    assert columns.start_ps[regions].tolist() == expected
    assert columns.duration_ps[regions].tolist() == [100] * len(pairs)
    assert np.all(np.diff(columns.start_ps) >= 0)
    assert not columns.stat("_c").present()[regions].any()
    assert plane.lines[0].event_stats(regions[0]) == {}


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


spans = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(0, 2), st.integers(0, 2)),
    min_size=1,
    max_size=12,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(st.lists(spans, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_lines_changes_no_group(
    make_space: SpaceMaker, lines: list[list[tuple[int, int, int, int]]], random: Any
) -> None:
    # Roots start at times of their own, so that no tie decides their order.
    planes: dict[str, list[Any]] = {}
    for at, line in enumerate(lines):
        events = sorted(
            (1000 * start + 100 * at + i, 1000 * duration, produced, consumed)
            for i, (start, duration, produced, consumed) in enumerate(line)
        )
        planes[f"line {at}"] = [
            (
                f"e{at}-{start}",
                start,
                duration,
                {"_r": 1}
                if consumed == 0
                else {"_ct": 9, "_c": consumed, "_pt": 9, "_p": produced},
            )
            for start, duration, produced, consumed in events
        ]
    straight = groups_by_event(prepare(make_space({HOST: planes})))
    shuffled = list(planes.items())
    random.shuffle(shuffled)
    assert groups_by_event(prepare(make_space({HOST: dict(shuffled)}))) == straight


def test_what_a_dataset_runs_hides_the_roots_within_it(make_space: SpaceMaker) -> None:
    run = ("InstantiatedCapturedFunction::Run", 0, 50, {"_r": 1, "id": 3})
    space = prepare(
        make_space(
            {
                HOST: {
                    "dataset": [run, ("TraceContext", 10, 20, {"_r": 1})],
                    "main": [("train", 60, 90, {"_r": 1, "step_num": 4})],
                }
            }
        )
    )
    # Neither what tf.data runs nor a root of its level within it is a group.
    assert group_names(space) == ["train 4"]
    assert groups_by_event(space)["TraceContext"] == [-1]
