"""Lines that are made of others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from podscope_analyzers import XSpace
from podscope_analyzers.derived.offloads import transfer_name
from podscope_analyzers.prepare import prepare
from podscope_analyzers.prepared import PreparedPlane, PreparedSpace
from podscope_analyzers.xspace import open_xspace
from podscope_protos.v1 import xplane_pb2

SpaceMaker = Callable[..., XSpace]
Rows = list[tuple[str, int, int]]
HOST = "/host:CPU"
GPU = "/device:GPU:0"
TPU = "/device:TPU:0"
STREAM = "Stream #1(Compute)"
KERNEL = {"kernel_details": "regs:32"}
SCOPES = "Framework Name Scope"
OPS = "Framework Ops"
MODULES = "XLA Modules"
SOURCE = "Source code"


def plane_of(space: PreparedSpace, name: str) -> PreparedPlane:
    plane = space.plane(name)
    assert plane is not None
    return plane


def rows_of(plane: PreparedPlane) -> dict[str, Rows]:
    """Name, start and duration of the events of each derived line."""
    found = {}
    table = plane.event_metadata
    lines = [line for line in plane.lines if line.is_derived and line.name != "Steps"]
    for line in [*lines, *plane.derived_lines]:
        columns = line.columns()
        found[line.name] = [
            (table.display_names[row] or table.names[row], start, duration)
            for row, start, duration in zip(
                columns.metadata.tolist(),
                columns.start_ps.tolist(),
                columns.duration_ps.tolist(),
                strict=True,
            )
        ]
    return found


def kernels(*events: tuple[int, int, Mapping[str, Any]]) -> list[Any]:
    return [
        (f"op{number}", start, duration, {**KERNEL, **stats})
        for number, (start, duration, stats) in enumerate(events, start=1)
    ]


def on_stream(make_space: SpaceMaker, events: Sequence[Any]) -> dict[str, Rows]:
    """The derived lines of stream 7, by what comes before its number."""
    space = make_space({GPU: {STREAM: events}}, line_ids={STREAM: 7})
    found = rows_of(plane_of(prepare(space), GPU))
    assert all(name.endswith(" - from #7") for name in found)
    return {name.removesuffix(" - from #7"): rows for name, rows in found.items()}


def on_core(make_space: SpaceMaker, events: Sequence[tuple[str, int, int]]) -> dict[str, Rows]:
    """The derived lines of a core that ran operations of these framework names."""
    space = make_space(
        {TPU: {"XLA Ops": [(f"op {at}", *event[1:]) for at, event in enumerate(events)]}},
        metadata={f"op {at}": {"tf_op": event[0]} for at, event in enumerate(events)},
    )
    return rows_of(plane_of(prepare(space), TPU))


@pytest.mark.case("S1")
def test_an_empty_space_has_no_derived_lines(make_space: SpaceMaker) -> None:
    for plane in prepare(make_space({GPU: {}, TPU: {}, HOST: {}})).planes:
        assert plane.lines == plane.derived_lines == ()


@pytest.mark.case("S2")
@pytest.mark.parametrize("scope", [{}, {"scope_range_id": 10}])
def test_kernels_of_one_program_are_one_run_of_it(
    make_space: SpaceMaker, scope: Mapping[str, int]
) -> None:
    program = {"hlo_module": "Module", **scope}
    found = on_stream(make_space, kernels((0, 100, program), (200, 300, program)))
    assert found == {MODULES: [("Module", 0, 500)]}


@pytest.mark.case("S3")
def test_another_scope_begins_another_run(make_space: SpaceMaker) -> None:
    program = {"hlo_module": "Module"}
    found = on_stream(
        make_space,
        kernels(
            (0, 100, {**program, "scope_range_id": 10}),
            (200, 300, {**program, "scope_range_id": 20}),
        ),
    )
    assert found == {MODULES: [("Module", 0, 100), ("Module", 200, 300)]}


@pytest.mark.case("S4")
def test_nothing_follows_from_kernels_that_name_nothing(make_space: SpaceMaker) -> None:
    graph = ("graph", 500, 100, {"cuda_graph_exec_id": 1})
    assert on_stream(make_space, [*kernels((0, 100, {}), (200, 300, {})), graph]) == {}


@pytest.mark.case("S5")
def test_a_graph_launch_extends_the_framework_operation(make_space: SpaceMaker) -> None:
    op = {"tf_op": "mul:Mul"}
    graph = ("graph", 500, 100, {"cuda_graph_exec_id": 1, **op})
    found = on_stream(make_space, [*kernels((0, 100, op), (200, 300, op)), graph])
    assert found == {OPS: [("Mul", 0, 600)]}


def grouped_kernels(make_space: SpaceMaker, *more: Any) -> PreparedPlane:
    op = {"tf_op": "mul:Mul"}
    space = make_space(
        {
            HOST: {
                "main": [
                    ("train", 0, 10, {"_r": 1, "step_num": 0}),
                    ("launch", 5, 1, {"correlation_id": 1, "device_id": 0}),
                    ("train", 20, 30, {"_r": 1, "step_num": 1}),
                    ("launch", 25, 1, {"correlation_id": 2, "device_id": 0}),
                    ("launch", 27, 4, {"correlation_id": 3, "device_id": 0}),
                    ("cuLaunch", 40, 9, {"correlation_id": 4, "device_id": 0}),
                    ("elsewhere", 41, 1, {"correlation_id": 5, "device_id": 1}),
                ]
            },
            GPU: {
                STREAM: [
                    *kernels(
                        (0, 100, {**op, "correlation_id": 1}),
                        (200, 300, {**op, "correlation_id": 2}),
                    ),
                    *more,
                ]
            },
        },
        line_ids={STREAM: 7},
    )
    return plane_of(prepare(space), GPU)


@pytest.mark.case("S6")
def test_a_step_ends_what_could_go_on(make_space: SpaceMaker) -> None:
    plane = grouped_kernels(make_space)
    steps = plane.line("Steps")
    assert steps is not None
    codes, names = steps.step_names()
    assert [names[code] for code in codes] == ["train 0", "train 1"]
    assert rows_of(plane)["Framework Ops - from #7"] == [("Mul", 0, 100), ("Mul", 200, 300)]
    (line,) = [line for line in plane.derived_lines if line.name.startswith(OPS)]
    assert line.group_id.tolist() == [0, 1]


@pytest.mark.case("S7")
def test_a_late_kernel_joins_the_last_step(make_space: SpaceMaker) -> None:
    plane = grouped_kernels(make_space, ("op3", 600, 100, KERNEL))
    assert plane.lines[0].group_id.tolist() == [0, 1, 1]


def test_launches_of_a_step_are_counted_for_its_device(make_space: SpaceMaker) -> None:
    # Of the second step: 1 ps at 25 and 4 ps at 27; the driver's own call is none.
    plane = grouped_kernels(make_space)
    assert rows_of(plane)["Launch Stats"] == [
        ("Launch Stats for train 0", 5, 1),
        ("Launch Stats for train 1", 25, 6),
    ]
    line = plane.derived_lines[0]
    assert line.group_id.tolist() == [0, 1]
    assert line.event_stats(1) == {
        "num_launches": 2,
        "max_launch_time_us": 4e-6,
        "avg_launch_time_us": 2e-6,
    }
    longest = line.columns(("max_launch_time_us",)).stat("max_launch_time_us")
    assert longest.doubles().tolist() == [1e-6, 4e-6]


@pytest.mark.case("A5", "A6")
@pytest.mark.parametrize(("launches", "span"), [([(5, 3)], (5, 3)), ([(0, 4), (5, 3)], (0, 8))])
def test_launches_span_from_the_first_begin_to_the_last_end(
    make_space: SpaceMaker, launches: list[tuple[int, int]], span: tuple[int, int]
) -> None:
    calls = [
        ("launch", start, duration, {"correlation_id": 1, "device_id": 0})
        for start, duration in launches
    ]
    space = make_space(
        {HOST: {"main": [("train", 0, 10, {"_r": 1, "step_num": 0}), *calls]}, GPU: {STREAM: []}}
    )
    (line,) = plane_of(prepare(space), GPU).derived_lines
    columns = line.columns()
    assert (columns.start_ps[0], columns.duration_ps[0]) == span


@pytest.mark.case("S8")
def test_scopes_of_one_operation_span_all_its_kernels(make_space: SpaceMaker) -> None:
    op = {"tf_op": "scope1/scope2/mul:Mul"}
    found = on_stream(make_space, kernels((0, 100, op), (200, 300, op)))
    assert found == {
        SCOPES: [("scope1", 0, 500), ("scope2", 0, 500)],
        OPS: [("Mul", 0, 500)],
    }


@pytest.mark.case("S9")
def test_an_inner_scope_of_equal_span_is_a_nanosecond_shorter(make_space: SpaceMaker) -> None:
    found = on_core(make_space, [("scope1/scope2/mul:Mul", 0, 10_000)])
    assert found == {
        OPS: [("Mul", 0, 10_000)],
        SCOPES: [("scope1", 0, 10_000), ("scope2", 0, 9_000)],
    }


@pytest.mark.case("S10")
def test_a_scope_lasts_while_its_operations_follow_each_other(make_space: SpaceMaker) -> None:
    found = on_core(make_space, [("a/b/c/Add:Add", 0, 10_000), ("a/d/Mul:Mul", 20_000, 30_000)])
    assert found[SCOPES] == [
        ("a", 0, 50_000),
        ("b", 0, 10_000),
        ("c", 0, 9_000),
        ("d", 20_000, 30_000),
    ]


@pytest.mark.case("S11")
def test_deep_scopes_shrink_as_far_as_the_innermost_lasts(make_space: SpaceMaker) -> None:
    found = on_core(
        make_space,
        [
            ("a/b/c/d/e/Add:Add", 0, 10_000),
            ("a/b/c/d/f/Sub:Sub", 10_000, 2_000),
            ("a/g/Mul:Mul", 20_000, 30_000),
        ],
    )
    assert found[SCOPES] == [
        ("a", 0, 50_000),
        ("b", 0, 12_000),
        ("c", 0, 11_000),
        ("d", 0, 11_000),
        ("e", 0, 10_000),
        ("f", 10_000, 1_000),
        ("g", 20_000, 30_000),
    ]


@pytest.mark.case("S12")
def test_every_stream_has_lines_of_its_own(make_space: SpaceMaker) -> None:
    one, other = {"tf_op": "s1/s1b/mul:Mul1"}, {"tf_op": "s2/s2b/mul:Mul2"}
    space = make_space(
        {
            GPU: {
                "stream 0": kernels((0, 100, one), (200, 300, one)),
                "stream 1": kernels((50, 850, other)),
            }
        },
        line_ids={"stream 0": 0, "stream 1": 1},
    )
    plane = plane_of(prepare(space), GPU)
    assert rows_of(plane) == {
        f"{SCOPES} - from #0": [("s1", 0, 500), ("s1b", 0, 500)],
        f"{OPS} - from #0": [("Mul1", 0, 500)],
        f"{SCOPES} - from #1": [("s2", 50, 850), ("s2b", 50, 850)],
        f"{OPS} - from #1": [("Mul2", 50, 850)],
    }
    assert [line.display_id for line in plane.derived_lines] == [2, 3, 9, 10]
    assert all(line.is_derived for line in plane.derived_lines)


def test_compute_streams_come_first_then_the_busier(make_space: SpaceMaker) -> None:
    event = ("k", 0, 1, {**KERNEL, "hlo_module": "m"})
    lines = {"Stream #1(MemcpyH2D)": [event] * 9, "Stream #2(Compute)": [event]}
    lines |= {"Stream #3(Compute)": [event] * 2}
    # More streams than there are ids for.
    lines |= {f"Stream #{n}(Kernel)": [event] for n in range(4, 20)}
    plane = plane_of(prepare(make_space({GPU: lines})), GPU)
    names = [line.name for line in plane.derived_lines]
    assert names[:3] == [f"{MODULES} - from #{number}" for number in (3, 2, 1)]
    assert len(names) == 16


@pytest.mark.case("S13")
def test_an_operation_of_a_tpu_ends_at_a_long_gap(make_space: SpaceMaker) -> None:
    name = "mul:Mul"
    found = on_core(make_space, [(name, 0, 100), (name, 200, 300), (name, 1501, 300)])
    assert found == {OPS: [("Mul", 0, 500), ("Mul", 1501, 300)]}


@pytest.mark.case("S14")
def test_cores_are_sorted_before_lines_are_derived(make_space: SpaceMaker) -> None:
    cores = {
        f"/device:TPU:{core}": {"XLA Ops": [("op", 200 * i, 100) for i in range(9, -1, -1)]}
        for core in range(4)
    }
    space = prepare(make_space(cores, metadata={"op": {"tf_op": "mul:Mul"}}))
    assert len(space.planes) == 4
    for plane in space.planes:
        stored = plane.lines[0].columns()
        assert stored.start_ps.tolist() == [200 * i for i in range(10)]
        assert rows_of(plane) == {OPS: [("Mul", 0, 1900)]}


@pytest.mark.case("S15")
def test_an_operation_of_a_command_buffer_says_which(make_space: SpaceMaker) -> None:
    graph = 2**63 + 20  # stored unsigned, as tracers do
    stats = {"hlo_op": "add", "correlation_id": 10_000, "cuda_graph_id": graph}
    space = make_space({GPU: {STREAM: kernels((0, 100, stats), (200, 300, stats))}})
    plane = plane_of(prepare(space), GPU)
    ops, buffers = plane.derived_lines
    assert (ops.name, ops.event_count) == ("XLA Ops - from #1", 1)
    assert ops.event_stats(0) == {"correlation_id": 10_000, "cuda_graph_id": graph}
    assert rows_of(plane)["Command Buffers - from #1"] == [(f"Command Buffer {graph}", 0, 500)]
    assert buffers.event_stats(0)["correlation_id"] == 10_000


@pytest.mark.case("S16")
def test_programs_of_the_host_itself_have_a_line_for_each_thread(make_space: SpaceMaker) -> None:
    events = [
        ("op1", 0, 100, {"hlo_module": "Module1"}),
        ("op2", 200, 400, {"hlo_module": "Module2"}),
    ]
    space = make_space({HOST: {"worker": events, "idle": [("f", 0, 1)]}})
    assert rows_of(plane_of(prepare(space), HOST)) == {
        f"{MODULES} - from worker": [("Module1", 0, 100), ("Module2", 200, 400)]
    }


@pytest.mark.case("S17")
def test_scopes_within_each_other_in_a_circle_come_to_an_end(make_space: SpaceMaker) -> None:
    # Ids of stats are given in the order of their names: "a" is 1, "b" is 2.
    stacks = {"/host:__ScopeRangeCallStack__": {"a": 2, "b": 1}}
    program = {"hlo_module": "m", "scope_range_id": 1}
    space = make_space(
        {GPU: {STREAM: kernels((0, 100, program))}, "/host:__ScopeRangeCallStack__": {}},
        plane_stats=stacks,
    )
    assert rows_of(plane_of(prepare(space), GPU)) == {f"{MODULES} - from #1": [("m", 0, 100)]}


def test_operations_within_equal_outer_scopes_are_told_apart_at_their_own_level(
    make_space: SpaceMaker,
) -> None:
    # Ranges 1 and 2 lie in range 5: `a` is one, `b` is two.
    space = make_space(
        {
            GPU: {
                STREAM: kernels(
                    (0, 100, {"hlo_op": "a::b", "scope_range_id": 1}),
                    (200, 300, {"hlo_op": "a::b", "scope_range_id": 2}),
                )
            },
            "/host:__ScopeRangeCallStack__": {},
        },
        plane_stats={"/host:__ScopeRangeCallStack__": {"x": 5, "y": 5}},
    )
    assert rows_of(plane_of(prepare(space), GPU)) == {
        "XLA Ops - from #1": [("a", 0, 500), ("b", 0, 100), ("b", 200, 300)]
    }


def test_a_program_is_told_apart_by_the_outermost_range(make_space: SpaceMaker) -> None:
    # Ranges 1 and 2 lie in 5, 3 in 6; each of these two is a run of its own.
    runs = [(200 * at, 100, {"hlo_module": "m", "scope_range_id": at + 1}) for at in range(3)]
    space = make_space(
        {GPU: {STREAM: kernels(*runs)}, "/host:__ScopeRangeCallStack__": {}},
        plane_stats={"/host:__ScopeRangeCallStack__": {"x": 5, "y": 5, "z": 6}},
    )
    assert rows_of(plane_of(prepare(space), GPU)) == {
        f"{MODULES} - from #1": [("m", 0, 300), ("m", 400, 100)]
    }


def test_a_program_begins_its_operations_anew(make_space: SpaceMaker) -> None:
    op = {"hlo_op": "add", "program_id": 15}
    found = on_stream(
        make_space,
        kernels((0, 100, {**op, "hlo_module": "m"}), (200, 300, {**op, "hlo_module": "n"})),
    )
    assert found == {
        MODULES: [("m(15)", 0, 100), ("n(15)", 200, 300)],
        "XLA Ops": [("add", 0, 100), ("add", 200, 300)],
    }


def test_source_lines_of_a_core_are_whole_paths(make_space: SpaceMaker) -> None:
    space = make_space(
        {
            TPU: {
                "XLA Ops": [
                    ("one", 0, 100),
                    ("one", 150, 100, {"source": "/app/other.py:7"}),
                    ("one", 260, 5, {"_a": 1}),
                ]
            }
        },
        metadata={"one": {"source": "/app/train.py:41"}},
    )
    assert rows_of(plane_of(prepare(space), TPU)) == {
        SOURCE: [("/app/train.py:41", 0, 100), ("/app/other.py:7", 150, 100)]
    }


@pytest.mark.parametrize(
    ("display_name", "expected"),
    [
        ("copy-start", ("offload-copy.0", True)),
        ("copy-done.12", ("offload-copy.12", False)),
        ("my-dynamic-slice-start.3", ("offload-my-dynamic-slice.3", True)),
        ("dynamic-update-slice-done.7", ("offload-dynamic-update-slice.7", False)),
        ("all-reduce-start.1", None),
        ("copy.1", None),
    ],
)
def test_transfers_are_named_by_their_operation(
    display_name: str, expected: tuple[str, bool] | None
) -> None:
    assert transfer_name(display_name) == expected


def test_a_transfer_lasts_from_its_start_to_the_end_of_its_done(
    make_planes: Callable[..., PreparedSpace],
) -> None:
    def about(kind: str, space: str = "S(5)") -> dict[str, Any]:
        return {"display_name": kind, "stats": {"shape_with_layout": f"f32[2]{{0:{space}}}"}}

    events = [
        ("%copy-start S(5)", 0, 10),
        ("%copy-start.1 S(5)", 20, 10),
        ("%copy-done S(5)", 50, 30),
        ("%copy-done.1 S(5)", 90, 10),
        ("%copy-start S(5)", 100, 10),
        ("%copy-done S(5)", 110, 40),
        ("%copy-done S(5)", 190, 1),  # nothing is open
        ("%on-device", 200, 1),
    ]
    source = make_planes(
        [
            {
                "name": TPU,
                "metadata": {
                    "%copy-start S(5)": about("copy-start"),
                    "%copy-done S(5)": about("copy-done"),
                    "%copy-start.1 S(5)": about("copy-start.1"),
                    "%copy-done.1 S(5)": about("copy-done.1"),
                    "%on-device": about("copy-start.2"),
                },
                "lines": {"XLA Ops": events},
            }
        ]
    ).source
    plane = plane_of(prepare(source), TPU)
    assert rows_of(plane) == {
        "Host Offload Ops row 0": [("offload-copy.0", 0, 80), ("offload-copy.0", 100, 50)],
        "Host Offload Ops row 1": [("offload-copy.1", 20, 80)],
    }
    line = plane.derived_lines[0]
    row = int(line.columns().metadata[0])
    assert plane.event_metadata.stats(row) == {"shape_with_layout": "f32[2]{0:S(5)}"}
    assert line.event_stats(0) == {"_a": 1}
    assert (line.group_id == -1).all()


def test_a_core_whose_transfers_never_ran_has_no_rows_of_them() -> None:
    space = xplane_pb2.XSpace()
    named = space.planes.add(name=TPU, id=1).event_metadata[1]
    named.name, named.display_name = "%copy-start S(5)", "copy-start"
    prepared = prepare(open_xspace(space.SerializeToString()))
    assert rows_of(plane_of(prepared, TPU)) == {}


def test_a_grouped_file_keeps_the_lines_that_it_has(make_space: SpaceMaker) -> None:
    space = make_space({GPU: {STREAM: kernels((0, 100, {"hlo_module": "m", "group_id": 3}))}})
    plane = plane_of(prepare(space), GPU)
    assert plane.derived_lines == ()
    assert plane.lines[0].group_id.tolist() == [3]


def test_lines_are_derived_only_when_asked_for(make_space: SpaceMaker) -> None:
    source = make_space({GPU: {STREAM: kernels((0, 100, {"hlo_module": "m"}))}})
    assert plane_of(prepare(source, derive_lines=False), GPU).derived_lines == ()
    plane = plane_of(prepare(source), GPU)
    before = len(plane.event_metadata)
    assert plane.derived_lines is plane.derived_lines
    assert len(plane.event_metadata) > before
