"""The op profile's own result, with hand-worked numbers."""

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.op_metrics.database import (
    Access,
    CostSource,
    MemoryAccesses,
    MemorySpace,
    OpDatabase,
)
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.peaks import PerfEnv
from podscope_analyzers.result import Scope, ToolResult
from podscope_analyzers.run_environment import RunEnvironment
from podscope_analyzers.tools import op_profile

US = 1_000_000
# 1 TFLOP/s, 100 GB/s of main memory, 200 and 50 GB/s on the chip.
ENV = PerfEnv(1.0, (100.0, 200.0, 50.0))


@dataclass(frozen=True)
class Stats:
    """What the tool reads of a capture's stats."""

    device_ops: OpDatabase = field(default_factory=OpDatabase.empty)
    host_execution: OpDatabase = field(default_factory=OpDatabase.empty)
    perf_env: PerfEnv = ENV
    run_environment: RunEnvironment = field(
        default_factory=lambda: RunEnvironment("TPU v9", "TPU", ("vm",), 1, 1, False)
    )
    program_titles: dict[int, str] = field(default_factory=lambda: {7: "jit_f(7)"})


def database(count: int = 0) -> OpDatabase:
    """A dot, two copies of a fusion (one holds an add), and more ops of 1 us; then idle time."""
    texts = TextTable()
    text = "%dot.1 = bf16[200,128]{1,0:T(8,128)} dot(%a, %b)"
    rows: list[tuple[str, str, str, str, str, int, int, int, float, float]] = [
        # name, text, category, provenance, copy of, program, us, parent, flops, normalized us
        ("dot.1", text, "dot", "jit(f)/layer/dot:", "", 7, 50, -1, 25e6, 25),
        ("fusion.2", "%fusion.2 = f32[8] fusion()", "loop fusion", "", "fusion.1", 7, 20, -1, 0, 0),
        ("fusion.1", "%fusion.1 = f32[8] fusion()", "loop fusion", "", "", 7, 10, -1, 0, 0),
    ]
    rows += [(f"op.{n}", "", "other", "", "", 9, 1, -1, 0.0, 0) for n in range(count)]
    rows += [("add.1", "%add.1 = f32[8] add()", "add", ":", "", 0, 0, 1, 0, 0)]
    named = ("name", "long_name", "category", "provenance", "deduplicated_name")
    columns: dict[str, Any] = {
        name: np.array([texts.code(str(row[at])) for row in rows]) for at, name in enumerate(named)
    }
    time = np.array([row[6] for row in rows], np.int64) * US
    flops = np.array([row[8] for row in rows])
    total = int(time.sum())
    built = OpDatabase.build(
        {
            **columns,
            "module_id": np.array([row[5] for row in rows]),
            "time_ps": time,
            "self_time_ps": time,
            "normalized_time_ps": np.array([row[9] for row in rows], np.int64) * US,
            "occurrences": 2,
            "parent": np.array([row[7] for row in rows]),
            "own_flops": flops,
            "own_model_flops": flops,
            "own_bytes_accessed": np.array([4_000_000] + [0] * (len(rows) - 1)),
            "cost_source": np.where(flops > 0, CostSource.STATS, CostSource.NONE),
        },
        texts,
        accesses=MemoryAccesses.of(
            [
                (0, MemorySpace.HBM, Access.READ, 3_000_000),
                (0, MemorySpace.VMEM, Access.WRITE, 1_000_000),
            ]
        ),
        total_op_time_ps=total,
        total_time_ps=total + 20 * US,
    )
    return built.with_idle()


def run(stats: Stats, **parameters: str) -> ToolResult:
    return op_profile.analyze(cast("CaptureStats", stats), Scope(["h0"]), parameters)


def rows(stats: Stats, **parameters: str) -> list[dict[str, Any]]:
    table = run(stats, **parameters).tables["nodes"]
    return [
        dict(zip((column.id for column in table.columns), row, strict=True)) for row in table.rows
    ]


def test_programs_hold_categories_and_these_operations_copies_together() -> None:
    found = rows(Stats(database()))
    assert [(row["depth"], row["kind"], row["name"]) for row in found] == [
        (0, "root", "by_program"),
        (1, "program", "jit_f(7)"),
        (2, "category", "dot"),
        (3, "op", "dot.1"),
        (2, "category", "loop fusion"),
        (3, "duplicates", "fusion.2 and its duplicates"),
        (4, "op", "fusion.2"),
        (5, "part", "add.1"),
        (4, "op", "fusion.1"),
    ]
    ids = {row["node"] for row in found}
    assert len(ids) == len(found)
    assert {row["parent"] for row in found[1:]} <= ids
    # What stands for the copies has the details of the longest.
    assert found[5]["expression"] == "%fusion.2 = f32[8] fusion()"


def test_an_operation_is_measured_against_the_peaks() -> None:
    dot = rows(Stats(database()))[3]
    # 25 MFLOP in 50 us, at a clock at which it takes 25: 1 of 1 TFLOP/s.
    assert dot["measured_flops_per_second"] == pytest.approx(5e11)
    assert dot["flops_utilization_ratio"] == pytest.approx(1.0)
    assert dot["hbm_bytes"] == 3_000_000
    assert dot["hbm_utilization_ratio"] == pytest.approx(0.6)
    assert dot["on_chip_write_utilization_ratio"] == pytest.approx(0.4)
    assert dot["on_chip_read_bytes"] == 0
    assert dot["operational_intensity_flops_per_byte"] == pytest.approx(6.25)
    assert dot["time_ratio"] == pytest.approx(50 / 80)
    assert dot["wasted_ratio"] == pytest.approx(0)
    assert (dot["occurrences"], dot["avg_time_us"]) == (2, 25.0)


def test_a_result_that_does_not_fill_its_tiles_says_so() -> None:
    dot = rows(Stats(database()))[3]
    assert dot["layout"] == "200: exact fit (25 x 8), 128: exact fit (1 x 128)"
    assert (dot["padding_ratio"], dot["element_bits"]) == (0.0, 16)


def test_what_nobody_counted_is_null_and_not_zero() -> None:
    fusion = rows(Stats(database()))[6]
    for name in ("flops", "hbm_bytes", "flops_utilization_ratio", "wasted_ratio", "bound_by"):
        assert fusion[name] is None


def test_idle_time_counts_where_it_is_wanted() -> None:
    found = rows(Stats(database()), idle="include")
    assert found[0]["total_time_us"] == 100.0
    idle = [row for row in found if row["kind"] == "idle"]
    assert [(row["time_ratio"], row["occurrences"]) for row in idle] == [(0.2, None)]
    assert next(row for row in found if row["name"] == "dot.1")["time_ratio"] == 0.5


def test_children_that_are_not_listed_are_counted_and_a_cursor_lists_them() -> None:
    stats = Stats(database(count=25))
    listed = rows(stats, children="10")
    (other,) = [row for row in listed if row["name"] == "other"]
    assert (other["child_count"], other["next_cursor"]) == (25, f"{other['node']}@10")
    names = [row["name"] for row in listed if row["parent"] == other["node"]]
    cursor = other["next_cursor"]
    while cursor:
        more = rows(stats, children="10", cursor=cursor)
        assert more[0]["node"] == other["node"]
        names += [row["name"] for row in more[1:]]
        cursor = more[0]["next_cursor"]
    assert sorted(names) == sorted(f"op.{n}" for n in range(25))


def test_a_program_without_text_is_called_main() -> None:
    assert "main" in {row["name"] for row in rows(Stats(database(count=1)))}


def test_categories_stand_below_the_root_where_they_are_asked_for() -> None:
    found = rows(Stats(database()), group_by="category")
    assert [row["name"] for row in found if row["depth"] == 1] == ["dot", "loop fusion"]


def test_scopes_are_the_parts_of_the_framework_s_name() -> None:
    found = rows(Stats(database()), group_by="provenance")
    path = [row["name"] for row in found if row["kind"] == "scope"]
    assert path == ["jit(f)", "layer", "dot"]
    # An operation without a name stands below its program.
    fusion = next(row for row in found if row["name"] == "loop fusion")
    assert next(row for row in found if row["node"] == fusion["parent"])["kind"] == "program"


def test_waste_orders_where_it_is_known() -> None:
    env = PerfEnv(4.0, (100.0,))
    by_waste = rows(Stats(database(), perf_env=env), sort="wasted", group_by="category")
    # 1 of 4 TFLOP/s and 60 of 100 GB/s: 40% of 5 of 8 is wasted.
    assert by_waste[1]["name"] == "dot"
    assert by_waste[1]["wasted_ratio"] == pytest.approx(0.25)


def test_host_threads_have_a_tree_of_their_own() -> None:
    result = run(Stats(host_execution=database()))
    assert (result.status, result.result["place"]) == ("ok", "host_execution")
    assert result.result["peak_flops_per_second"] is None
    assert [reason.code for reason in result.reasons] == ["no_peak_rates"]
    (dot,) = [row for row in rows(Stats(host_execution=database())) if row["name"] == "dot.1"]
    assert dot["measured_flops_per_second"] == pytest.approx(5e11)
    assert dot["flops_utilization_ratio"] is None


def test_nothing_that_ran_is_empty_with_a_reason() -> None:
    result = run(Stats())
    assert (result.status, [reason.code for reason in result.reasons]) == ("empty", ["no_hlo_ops"])
    assert result.tables["nodes"].rows == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group_by", "nonsense"),
        ("idle", "maybe"),
        ("sort", "name"),
        ("place", "moon"),
        ("children", "0"),
        ("children", "10001"),
        ("children", "-1"),
        ("children", "\uff19"),
        ("cursor", "no number"),
        ("cursor", "there is no such node@3"),
    ],
)
def test_a_parameter_that_is_not_understood_is_refused(name: str, value: str) -> None:
    with pytest.raises(ParameterError, match=name):
        run(Stats(database()), **{name: value})
