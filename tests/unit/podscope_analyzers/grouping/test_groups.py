"""Groups of events of hosts, and of what they launch."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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

from podscope_analyzers.grouping.groups import Groups
from podscope_analyzers.prepare import prepare


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
