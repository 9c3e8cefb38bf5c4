from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.op_metrics.database import MemoryAccesses, OpDatabase
from podscope_analyzers.op_metrics.grouping import group_rows
from podscope_analyzers.op_metrics.headline import duty_cycle_ratio
from podscope_analyzers.op_metrics.rates import GIBI, Roofline
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.peaks import PerfEnv


def database(*ops: dict[str, Any], **scalars: Any) -> OpDatabase:
    texts = TextTable()
    names = ("name", "category", "provenance", "source_file")
    columns: dict[str, Any] = {name: [texts.code(op.get(name, "")) for op in ops] for name in names}
    for name in {key for op in ops for key in op} - set(names):
        columns[name] = np.array([op.get(name, 0) for op in ops])
    return OpDatabase.build(columns, texts, **scalars)


def shown(ops: OpDatabase, *columns: str) -> dict[str, list[Any]]:
    return {
        ops.text("name", row): [ops.column(column)[row].item() for column in columns]
        for row in range(len(ops))
    }


def test_numbers_add_and_the_first_metadata_that_is_there_counts() -> None:
    one = database({"name": "add", "occurrences": 2, "time_ps": 30, "flops": 4.0})
    other = database(
        {"name": "mul", "occurrences": 1, "time_ps": 5},
        {"name": "add", "occurrences": 3, "time_ps": 10, "flops": 1.0, "category": "fusion"},
        {"name": "add", "module_id": 7, "occurrences": 9},
    )
    combined = OpDatabase.combine([one, other])
    assert combined.text_column("name") == ["add", "mul", "add"]
    assert combined.column("occurrences").tolist() == [5, 1, 9]
    assert combined.column("time_ps").tolist() == [40, 5, 0]
    assert combined.column("flops").tolist() == [5.0, 0.0, 0.0]
    assert combined.text("category", 0) == "fusion"
    assert combined.module_id(2) == 7


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(0, 9), (2, 5)], 5),  # What never happened is replaced.
        ([(1, 5), (3, 2)], 2),
        ([(1, 2), (3, 5)], 2),
        ([(1, 5), (0, 0)], 0),
        ([(0, 4), (0, 6)], 6),
    ],
)
def test_the_smallest_time_is_merged_row_by_row(rows: list[tuple[int, int]], expected: int) -> None:
    parts = [database({"name": "op", "occurrences": n, "min_time_ps": t}) for n, t in rows]
    assert shown(OpDatabase.combine(parts), "min_time_ps") == {"op": [expected]}


def test_operations_of_one_program_and_name_are_one_even_on_a_single_plane() -> None:
    twice = database({"name": "add", "time_ps": 3}, {"name": "mul"}, {"name": "add", "time_ps": 4})
    assert shown(OpDatabase.combine([twice]), "time_ps") == {"add": [7], "mul": [0]}
    other_program = database({"name": "add"}, {"name": "add", "module_id": 2})
    assert OpDatabase.combine([other_program]) is other_program


def test_cores_add_for_devices_and_not_for_hosts() -> None:
    parts = [database({"name": "op", "num_cores": 1})] * 3
    assert shown(OpDatabase.combine(parts), "num_cores") == {"op": [3]}
    assert shown(OpDatabase.combine(parts, add_cores=False), "num_cores") == {"op": [1]}


@pytest.mark.case("F5", "2.O6")
def test_memory_accesses_add_by_memory_and_kind() -> None:
    first = MemoryAccesses.of([(0, 1, 1, 100)])
    second = MemoryAccesses.of([(0, 1, 1, 50), (0, 2, 2, 200)])
    parts = [database({"name": "op"}, accesses=accesses) for accesses in (first, second)]
    combined = OpDatabase.combine(parts).accesses
    assert combined.space.tolist() == [1, 2]
    assert combined.size_bytes.tolist() == [150, 200]


@pytest.mark.case("F10", "2.O1")
@pytest.mark.parametrize(("total", "op", "ratio"), [(100, 60, 0.4), (200, 150, 0.25), (0, 0, 1.0)])
def test_the_idle_ratio_is_what_operations_leave(total: int, op: int, ratio: float) -> None:
    ops = database({"name": "op"}, total_time_ps=total, total_op_time_ps=op)
    assert ops.idle_ratio == pytest.approx(ratio)


def test_the_time_looked_at_is_at_least_that_of_the_operations() -> None:
    ops = database({"name": "op"}, total_op_time_ps=50)
    assert ops.with_total_time(20).total_time_ps == 50
    idle = ops.with_total_time(80).with_idle()
    assert shown(idle, "self_time_ps", "occurrences")["IDLE"] == [30, 0]
    assert idle.text("category", 1) == "IDLE"


def test_operations_are_sorted_by_self_time_then_name() -> None:
    times = {"b": 5, "a": 5, "z": 9, "c": 0}
    ops = database(*({"name": name, "self_time_ps": ps} for name, ps in times.items()))
    assert [ops.text("name", row) for row in ops.order_by_self_time()] == ["z", "a", "b", "c"]


_PARTS = st.lists(
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.sampled_from("abc"),
                "module_id": st.integers(-1, 1),
                "occurrences": st.integers(0, 9),
                "time_ps": st.integers(0, 1 << 60),
                "self_time_ps": st.integers(-(1 << 40), 1 << 40),
                "category": st.sampled_from(["", "x", "y"]),
            }
        ),
        max_size=6,
    ),
    max_size=5,
)


@given(_PARTS)
def test_combining_equals_adding_one_row_after_the_other(parts: list[list[dict[str, Any]]]) -> None:
    expected: dict[tuple[str, int], dict[str, Any]] = {}
    for part in parts:
        for op in part:
            into = expected.setdefault((op["name"], op["module_id"]), {"category": ""})
            for name in ("occurrences", "time_ps", "self_time_ps"):
                into[name] = into.get(name, 0) + op[name]
            into["category"] = into["category"] or op["category"]
    combined = OpDatabase.combine(
        OpDatabase.combine([database(op)]) for part in parts for op in part
    )
    got = {}
    for row in range(len(combined)):
        key = combined.text("name", row), int(combined.column("module_id")[row])
        got[key] = {
            name: int(combined.column(name)[row])
            for name in ("occurrences", "time_ps", "self_time_ps")
        } | {"category": combined.text("category", row)}
    assert got == expected
    assert list(got) == list(expected)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=30))
def test_grouping_numbers_keys_in_order_of_appearance(keys: list[tuple[int, int]]) -> None:
    group, first = group_rows(np.array(keys, np.int64).reshape(-1, 2).T)
    numbers: dict[tuple[int, int], int] = {}
    assert group.tolist() == [numbers.setdefault(key, len(numbers)) for key in keys]
    assert [keys[at] for at in first] == list(numbers)


def test_rates_are_per_second_and_name_what_bounds() -> None:
    op = {
        "name": "op",
        "time_ps": 100,
        "flops": 1000.0,
        "model_flops": 2000.0,
        "bytes_accessed": 500,
    }
    env = PerfEnv(100.0, (10_000.0, 0.0, 0.0))
    rates = Roofline(database(op), env, "TPU v4")[0]
    assert (rates.flop_rate, rates.model_flop_rate) == (10_000.0, 20_000.0)
    assert rates.memory_bandwidth == pytest.approx(5000 / GIBI)
    assert rates.operational_intensity == 2.0
    # Compute 10 of 100 TFLOP/s, memory 5 of 10 TB/s.
    assert rates.bound_by == "HBM"
    assert Roofline(database(op), PerfEnv(), "CPU")[0].bound_by == "Unknown"


def test_the_local_memory_bounds_a_gpu_and_vmem_a_tpu() -> None:
    op = {"name": "op", "time_ps": 100, "bytes_accessed": 500}
    gpu = PerfEnv(0.0, (10_000.0, 0.0, 6_000.0))
    assert Roofline(database(op), gpu, "Nvidia GPU")[0].bound_by == "Shm/L1"
    vmem = database(op, accesses=MemoryAccesses.of([(0, 3, 2, 90), (0, 1, 1, 10)]))
    tpu = PerfEnv(0.0, (10_000.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1_000.0))
    rates = Roofline(vmem, tpu, "TPU v4")[0]
    assert rates.bound_by == "VMEM Write"
    assert rates.hbm_bandwidth == pytest.approx(100 / GIBI)


@pytest.mark.case("2.O18", "2.O19")
@pytest.mark.parametrize(
    ("flops", "size", "bound"), [(1e14, 10**9, "Compute"), (1e12, 10**12, "HBM")]
)
def test_what_comes_nearest_to_its_peak_bounds(flops: float, size: int, bound: str) -> None:
    env = PerfEnv(100.0, (1000.0, 500.0, 500.0, 2000.0, 2000.0, 4000.0, 4000.0))
    op = {"name": "op", "time_ps": 10**12, "flops": flops, "bytes_accessed": size}
    assert Roofline(database(op), env, "TPU v4")[0].bound_by == bound


@pytest.mark.case("2.O20", "2.O21")
def test_the_ridge_point_is_flops_a_byte() -> None:
    assert PerfEnv(0.5, (200.0 * GIBI,)).ridge_point == pytest.approx(2.32830, abs=1e-5)
    # Without bandwidth there is none; without flops it is 0.
    assert PerfEnv(0.5, (0.0,)).ridge_point is None
    assert PerfEnv(0.0, (200.0,)).ridge_point == 0


@pytest.mark.case("M1")
def test_the_duty_cycle_is_busy_time_of_all() -> None:
    ops = database({"name": "op"}, busy_time_ps=70, idle_time_ps=30)
    assert duty_cycle_ratio(ops) == pytest.approx(0.7)
