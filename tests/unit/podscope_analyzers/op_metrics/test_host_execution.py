"""Operations of compiled programs on host threads, on captures worked out by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from podscope_analyzers.hlo import Programs, read_programs
from podscope_analyzers.op_metrics.database import CostSource, OpDatabase
from podscope_analyzers.op_metrics.host_execution import host_execution_database
from podscope_analyzers.prepared import PreparedSpace
from podscope_protos.v1 import hlo_pb2

MakePlanes = Callable[[list[dict[str, Any]]], PreparedSpace]
Event = tuple[Any, ...]


def op(name: str, start: int, duration: int, program: int = 7) -> Event:
    return name, start, duration, {"hlo_op": name, "program_id": program}


def handed_over(part: int, start: int) -> Event:
    return "ThreadpoolListener::Record", start, 1, {"_p": part, "_pt": 15}


def region(part: int, start: int, end: int) -> list[Event]:
    return [
        ("ThreadpoolListener::StartRegion", start, 0, {"_c": part, "_ct": 15}),
        ("ThreadpoolListener::StopRegion", end, 0),
    ]


def measured(database: OpDatabase) -> dict[str, tuple[int, int, int, int]]:
    """Occurrences, time, self time and shortest time by name."""
    names = ("occurrences", "time_ps", "self_time_ps", "min_time_ps")
    columns = [database.column(name).tolist() for name in names]
    rows = zip(database.text_column("name"), *columns, strict=True)
    return {name: tuple(numbers) for name, *numbers in rows}


def of_threads(make_planes: MakePlanes, **threads: list[Event]) -> OpDatabase:
    space = make_planes([{"name": "/host:CPU", "lines": threads}])
    return host_execution_database(space, Programs({}))


def test_an_operation_inside_another_takes_its_time_from_it(make_planes: MakePlanes) -> None:
    events = [op("while.1", 0, 100), op("dot.2", 10, 30), op("dot.2", 50, 20), op("add.3", 200, 5)]
    ops = of_threads(make_planes, main=events)
    assert measured(ops) == {
        "while.1": (1, 100, 50, 100),
        "dot.2": (2, 50, 50, 20),
        "add.3": (1, 5, 5, 5),
    }
    # No thread is only there for operations: the time between them is not theirs.
    assert (ops.total_op_time_ps, ops.total_time_ps) == (105, 105)


def test_marks_of_an_end_and_loops_that_run_operations_are_no_operations(
    make_planes: MakePlanes,
) -> None:
    marked = ("end: dot.2", 40, 3, {"hlo_op": "dot.2", "program_id": 7})
    loop = ("ThunkExecutor::Execute", 0, 100)
    ops = of_threads(make_planes, main=[loop, op("dot.2", 10, 30), marked])
    assert measured(ops) == {"dot.2": (1, 30, 30, 30)}


def test_one_name_in_two_programs_is_two_operations(make_planes: MakePlanes) -> None:
    ops = of_threads(make_planes, main=[op("dot.2", 0, 10, 7), op("dot.2", 20, 5, 8)])
    assert ops.column("module_id").tolist() == [7, 8]
    assert ops.column("time_ps").tolist() == [10, 5]


def test_work_that_a_pool_did_counts_for_who_handed_it_over(make_planes: MakePlanes) -> None:
    main = [op("convolution.1", 0, 10), handed_over(1, 2), op("add.2", 20, 4)]
    # The first part hands over a second, and the pool's thread runs an operation of its own.
    pool = [
        *region(1, 5, 105),
        handed_over(2, 50),
        op("tanh.3", 60, 15),
        *region(3, 300, 400),
    ]
    other = region(2, 51, 61)
    ops = of_threads(make_planes, main=main, pool=pool, other=other)
    assert measured(ops) == {
        "convolution.1": (1, 10 + 85 + 10, 10 + 85 + 10, 105),
        "add.2": (1, 4, 4, 4),
        "tanh.3": (1, 15, 15, 15),
    }


def test_a_part_that_runs_inside_its_own_operation_counts_once(make_planes: MakePlanes) -> None:
    main = [op("dot.1", 0, 100), handed_over(1, 2), *region(1, 10, 40)]
    assert measured(of_threads(make_planes, main=main)) == {"dot.1": (1, 100, 100, 100)}


def test_a_region_without_begin_or_end_and_a_circle_of_parts_count_for_nobody(
    make_planes: MakePlanes,
) -> None:
    main = [op("dot.1", 0, 10), handed_over(1, 2), handed_over(2, 3)]
    stray = ("ThreadpoolListener::StopRegion", 5, 0)
    unended = ("ThreadpoolListener::StartRegion", 90, 0, {"_c": 2, "_ct": 15})
    pool = [stray, *region(1, 20, 26), unended]
    circle = [*region(8, 0, 50), handed_over(8, 25)]
    ops = of_threads(make_planes, main=main, pool=pool, circle=circle)
    assert measured(ops) == {"dot.1": (1, 16, 16, 16)}


def test_with_a_device_there_is_no_host_execution(make_planes: MakePlanes) -> None:
    host = {"name": "/host:CPU", "lines": {"main": [op("dot.2", 0, 10)]}}
    device = {"name": "/device:GPU:0", "lines": {"s": [("k", 0, 1)]}}
    assert len(host_execution_database(make_planes([host, device]), Programs({}))) == 0


def product_module() -> hlo_pb2.HloModuleProto:
    """``dot.3`` of an 8 x 16 and a 16 x 4 matrix."""
    module = hlo_pb2.HloModuleProto(name="jit_f")
    computation = module.computations.add(id=1, name="main", root_id=3)
    shapes = (("parameter", (8, 16)), ("parameter", (16, 4)), ("dot", (8, 4)))
    for number, (opcode, sizes) in enumerate(shapes, start=1):
        one = computation.instructions.add(id=number, name=f"{opcode}.{number}", opcode=opcode)
        one.shape.element_type = hlo_pb2.PrimitiveType.F32
        one.shape.dimensions.extend(sizes)
        one.shape.layout.minor_to_major.extend([1, 0])
    dot = computation.instructions[2]
    dot.operand_ids.extend([1, 2])
    dot.dot_dimension_numbers.lhs_contracting_dimensions.append(1)
    dot.dot_dimension_numbers.rhs_contracting_dimensions.append(0)
    dot.metadata.op_name, dot.metadata.source_file = "jit(f)/dot_general", "models/mlp.py"
    dot.metadata.source_line = 12
    return module


def test_the_program_tells_name_category_source_and_work(make_planes: MakePlanes) -> None:
    raw = hlo_pb2.HloProto(hlo_module=product_module()).SerializeToString()
    events = [op("dot.3", 0, 10), op("dot.3", 20, 30), op("gone.9", 60, 1)]
    space = make_planes(
        [
            {"name": "/host:CPU", "lines": {"main": events}},
            {"name": "/host:metadata", "metadata": {"jit_f(7)": {"stats": {"Hlo Proto": raw}}}},
        ]
    )
    ops = host_execution_database(space, read_programs(space))
    known, gone = (ops.text_column("name").index(name) for name in ("dot.3", "gone.9"))
    assert ops.text("category", known) == "dot"
    assert ops.text("provenance", known) == "jit(f)/dot_general:"
    assert ops.text("source_file", known) == "models/mlp.py"
    assert ops.column("source_line")[known] == 12
    # A multiplication and an addition for each of 8 x 4 sums of 16, in two runs.
    assert ops.column("own_flops")[known] == 2 * 2 * 16 * 8 * 4
    assert ops.column("cost_source")[[known, gone]].tolist() == [
        CostSource.ANALYSIS,
        CostSource.NONE,
    ]
    assert (ops.text("category", gone), ops.column("own_flops")[gone]) == ("Unknown", 0)


@pytest.mark.parametrize("seed", range(5))
def test_no_time_is_lost_or_counted_twice(make_planes: MakePlanes, seed: int) -> None:
    random = np.random.default_rng(seed)
    busy = 0
    threads: dict[str, list[Event]] = {"main": []}
    at = 0
    for part in range(40):
        at += int(random.integers(1, 50))
        length = int(random.integers(3, 90))
        threads["main"] += [op(f"op.{part % 7}", at, length), handed_over(part, at + 1)]
        at += length + 1
        busy += length
    for pool in range(3):
        now, events = 0, []
        for part in range(pool, 40, 3):
            now += int(random.integers(1, 50))
            length = int(random.integers(1, 90))
            events += region(part, now, now + length)
            now += length + 1
            busy += length
        threads[f"pool{pool}"] = events
    ops = of_threads(make_planes, **threads)
    assert ops.total_op_time_ps == busy
    assert int(ops.column("time_ps").sum()) == busy
