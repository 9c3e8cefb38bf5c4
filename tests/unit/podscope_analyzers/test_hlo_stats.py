"""Rows of HLO instructions, from a small database with hand-worked numbers."""

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.op_metrics.database import (
    Access,
    MemoryAccesses,
    MemorySpace,
    OpDatabase,
)
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.peaks import PerfEnv
from podscope_analyzers.result import Scope
from podscope_analyzers.run_environment import RunEnvironment
from podscope_analyzers.tools import hlo_stats


@dataclass(frozen=True)
class Stats:
    """What the tool reads of a capture's stats."""

    device_ops: OpDatabase
    host_execution: OpDatabase = field(default_factory=OpDatabase.empty)
    perf_env: PerfEnv = field(default_factory=PerfEnv)
    run_environment: RunEnvironment = field(
        default_factory=lambda: RunEnvironment("TPU v9", "TPU", ("vm",), 1, 1, False)
    )


def database() -> OpDatabase:
    """Two instructions, one of them with a SparseCore's part and a fused one, in 10 us."""
    texts = TextTable()
    rows = [
        # name, long name, category, framework, self us, occurrences, core, parent
        ("b", "%b.remat = f32[] add(%x)", "loop fusion", "jit(f)/add:", 4, 2, 1, -1),
        ("a", "", "send-done", "scope:XlaSendToHost", 4, 1, 1, -1),
        ("sparse", "%sparse = f32[] gather()", "gather", "", 3, 5, 2, 0),
        ("fused", "%fused = f32[] negate()", "non-fusion elementwise", ":", 0, 1, 0, 0),
    ]
    named = ("name", "long_name", "category", "provenance")
    columns: dict[str, Any] = {
        name: np.array([texts.code(str(row[at])) for row in rows]) for at, name in enumerate(named)
    }
    self_ps = np.array([row[4] for row in rows], np.int64) * 1_000_000
    built = OpDatabase.build(
        {
            **columns,
            "module_id": -1,
            "time_ps": self_ps,
            "self_time_ps": self_ps,
            "occurrences": np.array([row[5] for row in rows]),
            "core_type": np.array([row[6] for row in rows]),
            "parent": np.array([row[7] for row in rows]),
            "dma_stall_ps": np.array([1_000_000, 0, 0, 0]),
            "flops": np.array([8e6, 0, 0, 0]),
            "bytes_accessed": np.array([4_000_000, 0, 0, 0]),
            "source_file": np.array([texts.code("<m>.py"), 0, 0, 0]),
            "source_stack": np.array([texts.code("<m>.py:3:1\nit's"), 0, 0, 0]),
            "source_line": np.array([3, -1, 0, 0]),
        },
        texts,
        accesses=MemoryAccesses.of([(0, MemorySpace.CMEM, Access.READ, 2_000_000)]),
        total_op_time_ps=8_000_000,
        total_time_ps=10_000_000,
    )
    return built.with_idle()


def shown(stats: Stats) -> list[dict[str, Any]]:
    table: Any = hlo_stats.xprof_json(cast("CaptureStats", stats), {})
    names = [column["id"] for column in table["cols"]]
    return [
        dict(zip(names, [cell["v"] for cell in row["c"]], strict=True)) for row in table["rows"]
    ]


def test_rows_are_by_self_time_then_name_with_sparse_core_parts_below_theirs() -> None:
    rows = shown(Stats(database()))
    assert [(row["rank"], row["hlo_op_name"], row["parent_op_name"]) for row in rows] == [
        (1.0, "a", ""),
        (2.0, "b.remat", ""),
        (0.0, "sparse", "b"),
    ]
    assert [row["total_self_time_percent"] for row in rows] == pytest.approx([40, 40, 0])
    assert [row["cumulative_total_self_time_percent"] for row in rows] == pytest.approx([40, 80, 0])
    assert [row["core_type"] for row in rows] == ["TensorCore", "TensorCore", "SparseCore"]
    assert rows[0]["program_id"] == str(2**64 - 1)


def test_rates_and_stalls_are_by_time() -> None:
    row = shown(Stats(database()))[1]
    # 8e6 flops and 4e6 bytes in 4 us, 2e6 of them from CMEM.
    assert row["normalized_flop_rate"] == pytest.approx(2000)
    assert row["measured_memory_bw"] == pytest.approx(1000 / 1.073741824)
    assert row["cmem_read_bw"] == pytest.approx(500 / 1.073741824)
    assert row["operational_intensity"] == pytest.approx(2)
    assert row["dma_stall_percent"] == pytest.approx(0.25)
    assert (row["avg_time"], row["occurrences"]) == (2.0, 2.0)


def test_recomputation_and_the_host_s_part_are_marked() -> None:
    first, second, _ = shown(Stats(database()))
    assert (first["hlo_rematerialization"], first["outside_compilation"]) == ("No", "Yes")
    assert (second["hlo_rematerialization"], second["outside_compilation"]) == ("Yes", "No")


def test_a_source_is_escaped() -> None:
    first, second, _ = shown(Stats(database()))
    assert first["source_info"] == ""
    assert second["source_info"] == (
        "<div class='source-info-cell' title='&lt;m&gt;.py:3:1\nit&#39;s'>&lt;m&gt;.py:3</div>"
    )


def test_host_execution_follows_the_devices_in_our_own_result_alone() -> None:
    stats = Stats(OpDatabase.empty(), host_execution=database())
    assert shown(stats) == []
    result = hlo_stats.analyze(cast("CaptureStats", stats), Scope(["h0"]), {})
    rows = result.tables["instructions"].rows
    assert [row[:2] for row in rows] == [
        [1, "host_execution"],
        [2, "host_execution"],
        [None, "host_execution"],
    ]
    assert result.status == "ok"


def test_nothing_that_ran_is_empty_with_a_reason() -> None:
    stats = cast("CaptureStats", Stats(OpDatabase.empty()))
    result = hlo_stats.analyze(stats, Scope(["h0"]), {})
    assert (result.status, [reason.code for reason in result.reasons]) == ("empty", ["no_hlo_ops"])
