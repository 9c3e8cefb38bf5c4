from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.kernels.activities import match_activities
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.host_databases import host_op_database
from podscope_analyzers.prepared import PreparedSpace

MakePlanes = Callable[[list[dict[str, Any]]], PreparedSpace]
NS = 1000
_NUMBERS = ("occurrences", "time_ps", "self_time_ps")


def rows(database: OpDatabase) -> list[tuple[Any, ...]]:
    return [
        (
            database.text("name", row),
            database.text("category", row),
            *(
                int(database.column(name)[row])
                for name in ("occurrences", "time_ps", "self_time_ps")
            ),
        )
        for row in range(database.top_count)
    ]


def host(make_planes: MakePlanes, **lines: list[tuple[Any, ...]]) -> OpDatabase:
    return host_op_database(make_planes([{"name": "/host:CPU", "lines": lines}]))


@pytest.mark.case("C1")
def test_operations_of_two_threads_add_and_idle_follows_the_first_thread(
    make_planes: MakePlanes,
) -> None:
    first = ("TfOp1:TfOp1", 100_000 * NS, 8_000 * NS)
    second = ("TfOp2:TfOp2", 110_000 * NS, 10_000 * NS)
    ops = host(make_planes, a=[first], b=[first, second])
    assert rows(ops) == [
        ("TfOp1", "TfOp1", 2, 16_000_000, 16_000_000),
        ("IDLE", "IDLE", 0, 2_000_000, 2_000_000),
        ("TfOp2", "TfOp2", 1, 10_000_000, 10_000_000),
    ]
    assert (ops.total_op_time_ps, ops.total_time_ps) == (26_000_000, 28_000_000)


@pytest.mark.case("C2")
def test_an_event_of_xla_counts_for_the_operation_that_it_names(make_planes: MakePlanes) -> None:
    ops = host(
        make_planes,
        a=[
            ("xla_op", 100_000 * NS, 8_000 * NS, {"tf_op": "tf_op"}),
            ("xla_op2", 110_000 * NS, 10_000 * NS, {"tf_op": "tf_op2"}),
        ],
    )
    assert rows(ops) == [
        ("tf_op", "", 1, 8_000_000, 8_000_000),
        ("tf_op2", "", 1, 10_000_000, 10_000_000),
        ("IDLE", "IDLE", 0, 2_000_000, 2_000_000),
    ]


@pytest.mark.case("C3")
def test_stages_of_equal_name_are_operations_of_their_own(make_planes: MakePlanes) -> None:
    def stage(name: str, number: int, start: int, duration: int) -> tuple[Any, ...]:
        stats = {"_ipl_stage_id": number, "_ipl_stage_cat": "preprocessing"}
        return name, start * 10**6, duration * 10**6, stats

    ops = host(
        make_planes,
        a=[
            stage("ShuffleMapDataset", 1, 100, 10),
            stage("MapMapDataset", 2, 100, 8),
            stage("ShuffleMapDataset", 3, 120, 10),
            stage("MapMapDataset", 4, 120, 8),
        ],
    )
    found = {ops.module_id(row): rows(ops)[row] for row in range(len(ops))}
    assert found[1] == ("ShuffleMapDataset", "preprocessing", 1, 10**7, 2 * 10**6)
    assert found[2] == ("MapMapDataset", "preprocessing", 1, 8 * 10**6, 8 * 10**6)
    assert found[3][4] == 2 * 10**6
    assert found[4][4] == 8 * 10**6
    assert found[0] == ("IDLE", "IDLE", 0, 10**7, 10**7)
    assert (ops.total_time_ps, ops.total_op_time_ps) == (30 * 10**6, 20 * 10**6)


def test_a_stage_of_an_empty_category_has_the_type_of_its_name(make_planes: MakePlanes) -> None:
    stats = {"_ipl_stage_id": 7, "_ipl_stage_cat": ""}
    ops = host(make_planes, a=[("scope/mul:Mul", 0, 10, stats), ("plain", 20, 5, stats)])
    assert rows(ops)[0] == ("scope/mul", "Mul", 2, 15, 15)
    assert ops.module_id(0) == 7


def test_an_operation_without_name_and_type_is_one(make_planes: MakePlanes) -> None:
    ops = host(make_planes, a=[(":", 0, 10)])
    assert rows(ops)[0] == ("", "", 1, 10, 10)


def test_a_child_that_ends_with_its_parent_is_dropped(make_planes: MakePlanes) -> None:
    ops = host(make_planes, a=[("p:P", 0, 100), ("c:C", 60, 40)])
    assert rows(ops)[0] == ("p", "P", 1, 100, 100)
    assert "c" not in ops.text_column("name")


def test_user_annotations_and_derived_lines_are_no_operations(make_planes: MakePlanes) -> None:
    ops = host(make_planes, a=[("my annotation", 0, 100), ("op:Op", 10, 20)])
    assert [row[0] for row in rows(ops)] == ["op", "IDLE"]
    assert ops.total_time_ps == 20


def test_consecutive_infeed_enqueues_are_measured(make_planes: MakePlanes) -> None:
    enqueue = "q/enqueue:InfeedEnqueueTuple"
    ops = host(make_planes, a=[(enqueue, 0, 10), (enqueue, 100, 30), (enqueue, 150, 50)])
    assert ops.infeed_enqueue_ps == 10 + 30
    assert ops.infeed_enqueue_start_difference_ps == 100 + 50


def test_a_stage_without_category_and_a_missing_plane_give_nothing(make_planes: MakePlanes) -> None:
    ops = host(make_planes, a=[("op:Op", 0, 10, {"_ipl_stage_id": 7})])
    assert rows(ops) == [("IDLE", "IDLE", 0, 0, 0)]
    assert len(host_op_database(make_planes([]))) == 0


@pytest.mark.parametrize("stored", [0, 1])
def test_an_eager_execution_marks_its_operation(make_planes: MakePlanes, stored: int) -> None:
    ops = host(make_planes, a=[("op:Op", 0, 10), ("op:Op", 20, 10, {"is_eager": stored})])
    assert bool(ops.column("is_eager")[0]) == bool(stored)


def test_the_end_of_a_discarded_operation_discards_all_around_it(make_planes: MakePlanes) -> None:
    # The child ends with its parent, whose end comes first and discards it; its own end then
    # finds no begin and empties the stack, so that the outermost operation is not counted.
    ops = host(
        make_planes,
        a=[
            ("outer:Outer", 0, 20),
            ("parent:Parent", 1, 9),
            ("child:Child", 2, 8),
            ("later:Later", 12, 2),
        ],
    )
    assert rows(ops) == [
        ("parent", "Parent", 1, 9, 9),
        ("later", "Later", 1, 2, 2),
        ("IDLE", "IDLE", 0, 9, 9),
    ]


def reference_match(
    spans: list[tuple[int, int]],
) -> tuple[dict[int, int], dict[int, int]]:
    """Self times by the stack as it is described, one activity at a time."""
    marks = []
    for number, (start, duration) in enumerate(spans):
        marks += [(start, "begin", number), (start + duration, "end", number)]
    marks.sort(key=lambda mark: mark[0])
    stack: list[list[int]] = []
    ended, self_ps = {}, {}
    for place, (_, kind, number) in enumerate(marks):
        if kind == "begin":
            stack.append([number, 0])
        elif any(entry[0] == number for entry in stack):
            while stack[-1][0] != number:
                stack.pop()
            children = stack.pop()[1]
            duration = spans[number][1]
            ended[number], self_ps[number] = place, duration - children
            if stack:
                stack[-1][1] += duration
        else:
            stack.clear()
    return ended, self_ps


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), max_size=25))
def test_matching_equals_the_stack_of_the_description(spans: list[tuple[int, int]]) -> None:
    start = np.array([one[0] for one in spans], np.int64)
    duration = np.array([one[1] for one in spans], np.int64)
    matched = match_activities(start, duration)
    ended, self_ps = reference_match(spans)
    kept = np.flatnonzero(matched.ended_at >= 0).tolist()
    assert {at: int(matched.ended_at[at]) for at in kept} == ended
    assert {at: int(matched.self_ps[at]) for at in kept} == self_ps
