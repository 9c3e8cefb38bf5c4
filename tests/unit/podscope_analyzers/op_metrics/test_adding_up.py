"""How entries of one operation add up, with numbers worked by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from podscope_analyzers.hlo import Programs
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.host_databases import device_op_database, host_op_database
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.prepared import PreparedSpace
from podscope_analyzers.result import Scope
from podscope_protos.v1 import xplane_pb2

MakePlanes = Callable[[list[dict[str, Any]]], PreparedSpace]
COLUMNS = ("occurrences", "time_ps", "self_time_ps", "flops", "model_flops", "bytes_accessed")


def tpu_ops(
    make_planes: MakePlanes, metadata: dict[str, dict[str, Any]], events: list[Any]
) -> OpDatabase:
    about = {
        name: {"stats": {"program_id": 1, "symbol_id": number, **stats}}
        for number, (name, stats) in enumerate(metadata.items(), start=1)
    }
    plane = {"name": "/device:TPU:0", "metadata": about, "lines": {"XLA Ops": events}}
    return device_op_database(make_planes([plane]), Programs({}))


def numbers(ops: OpDatabase, name: str, *columns: str) -> list[Any]:
    row = ops.text_column("name").index(name)
    return [ops.column(column)[row].item() for column in columns]


@pytest.mark.case("C4")
def test_time_of_children_is_not_its_own(make_planes: MakePlanes) -> None:
    lines = {"main": [("p:P", 0, 1000, {"is_eager": 1}), ("c:C", 100, 200)]}
    ops = host_op_database(make_planes([{"name": "/host:CPU", "lines": lines}]))
    assert numbers(ops, "p", "time_ps", "self_time_ps", "is_eager") == [1000, 800, True]
    assert ops.total_op_time_ps == 1000


@pytest.mark.case("F1", "F6", "2.O3", "2.O7")
def test_costs_are_those_of_one_execution_times_executions(make_planes: MakePlanes) -> None:
    ops = tpu_ops(
        make_planes,
        {"op": {"flops": 10, "bytes_accessed": 20}, "child": {}},
        [
            ("op", 0, 1000, {"num_occurrences": 2, "dma_stall_duration_ps": 500}),
            ("child", 0, 100),
            ("op", 5000, 0, {"dma_stall_duration_ps": 500}),
        ],
    )
    # The second event of no length is an execution more.
    assert numbers(ops, "op", *COLUMNS) == [3, 1000, 900, 30, 30, 60]
    assert numbers(ops, "op", "dma_stall_ps") == [1000]


@pytest.mark.case("F2", "F9", "2.O4")
def test_a_second_entry_adds_and_the_first_keeps_its_category() -> None:
    def entry(category: str, *values: float) -> OpDatabase:
        texts = TextTable()
        columns: dict[str, Any] = {
            "name": [texts.code("op")],
            "category": [texts.code(category)],
        }
        for name, value in zip(COLUMNS, values, strict=True):
            columns[name] = np.array([value])
        return OpDatabase.build(columns, texts)

    one = entry("first", 2, 1000, 900, 20, 20, 40)
    other = entry("second", 1, 500, 450, 5, 5, 10)
    both = OpDatabase.combine([one, other])
    assert numbers(both, "op", *COLUMNS) == [3, 1500, 1350, 25, 25, 50]
    assert both.text("category", 0) == "first"


@pytest.mark.case("F2", "F3", "2.O4")
@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_the_first_execution_says_whether_a_kernel_is_eager(
    make_planes: MakePlanes, first: int, second: int
) -> None:
    events = [
        ("k", 0, 10, {"tf_op": "a:A", "is_eager": first}),
        ("k", 20, 10, {"tf_op": "a:A", "is_eager": second}),
    ]
    space = make_planes([{"name": "/device:GPU:0", "lines": {"s": events}}])
    ops = device_op_database(space, Programs({}))
    assert numbers(ops, "a/k", "occurrences", "is_eager") == [2, bool(first)]


@pytest.mark.case("F4", "2.O5")
def test_model_flops_may_differ(make_planes: MakePlanes) -> None:
    ops = tpu_ops(make_planes, {"op": {"flops": 10, "model_flops": 15}}, [("op", 0, 5)])
    assert numbers(ops, "op", "flops", "model_flops") == [10, 15]


@pytest.mark.case("F8", "2.O9")
def test_energy_adds(make_planes: MakePlanes) -> None:
    events = [
        ("op", 0, 5, {"vdd_energy_j": 1.5}),
        ("op", 10, 5, {"vdd_energy_j": 2.2}),
        ("other", 20, 5, {"vdd_energy_j": 0.0}),
    ]
    ops = tpu_ops(make_planes, {"op": {}, "other": {}}, events)
    assert numbers(ops, "op", "energy_j") == [pytest.approx(3.7)]
    assert numbers(ops, "other", "energy_j") == [0.0]


@pytest.mark.case("F11", "2.O15", "2.O16")
@pytest.mark.parametrize(
    ("flops", "time_ps", "scale", "rate"),
    [(1000, 100, 2.0, 5000.0), (1000, 100, None, 10000.0), (100, 2000, 0.5, 100.0)],
)
def test_rates_are_told_at_the_nominal_clock(
    flops: int, time_ps: int, scale: float | None, rate: float
) -> None:
    # Against a peak of 1000 GFLOP/s; the scale is normalised time over time.
    space = xplane_pb2.XSpace(hostnames=["h"])
    plane = space.planes.add(name="/device:TPU:0")
    names = ("peak_teraflops_per_second", "program_id", "symbol_id", "flops")
    for key, name in enumerate((*names, "Time Scale Multiplier"), start=1):
        plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, name
    plane.stats.add(metadata_id=1, double_value=1.0)
    about = plane.event_metadata[1]
    about.id, about.name = 1, "op"
    for key, value in ((2, 1), (3, 1), (4, flops)):
        about.stats.add(metadata_id=key, int64_value=value)
    event = plane.lines.add(name="XLA Ops").events.add(metadata_id=1, duration_ps=time_ps)
    if scale is not None:
        event.stats.add(metadata_id=5, double_value=scale)
    partial = analyze_host(space.SerializeToString(), "h")
    table = run_tool("op_profile", [partial], Scope(["h"])).tables["nodes"]
    at = {column.id: index for index, column in enumerate(table.columns)}
    (row,) = [row for row in table.rows if row[at["name"]] == "op"]
    assert row[at["flops_utilization_ratio"]] == pytest.approx(rate / 1000)
