"""How near programs come to what the devices can do; figures of hosts that were not measured."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from podscope_analyzers.op_metrics.database import IDLE, MemoryAccesses, MemorySpace, OpDatabase
from podscope_analyzers.op_metrics.efficiency import (
    memory_bandwidth_ratio,
    program_efficiency_ratio,
)
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.peaks import PerfEnv
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope
from podscope_protos.v1 import xplane_pb2

# 2 TFLOP/s are 2 flops a picosecond, 4 TB/s four bytes.
PEAKS = PerfEnv(peak_tera_flops_per_second=2.0, peak_gigabytes_per_second=(4000.0,))


def _ops(rows: list[tuple[int, float, int]], idle_ps: int = 0) -> OpDatabase:
    """Operations by self time, flops, and bytes in main memory, and time without any."""
    texts = TextTable()
    names = [texts.code(f"op{n}") for n in range(len(rows))] + [texts.code(IDLE)]
    times = np.array([time for time, _, _ in rows] + [idle_ps])
    return OpDatabase.build(
        {
            "name": names,
            "category": [texts.code("fusion")] * len(rows) + [texts.code(IDLE)],
            "time_ps": times,
            "self_time_ps": times,
            "own_flops": [flops for _, flops, _ in rows] + [0],
            "own_bytes_accessed": [size for _, _, size in rows] + [0],
        },
        texts,
        accesses=MemoryAccesses.of([(n, 1, 1, size) for n, (_, _, size) in enumerate(rows)]),
        total_op_time_ps=int(times[:-1].sum()),
        total_time_ps=int(times.sum()),
    )


def test_an_operation_needs_its_computation_or_its_traffic_whichever_is_longer() -> None:
    # 1000 ps: needs 500 by flops, 250 by bytes. 1000 ps: needs 100 by flops, 750 by bytes.
    ops = _ops([(1000, 1000.0, 1000), (1000, 200.0, 3000)], idle_ps=8000)
    assert program_efficiency_ratio(ops, PEAKS) == pytest.approx((500 + 750) / 2000)
    assert memory_bandwidth_ratio(ops, PEAKS) == pytest.approx(4000 / (4 * 10_000))


def test_traffic_whose_memories_are_not_told_apart_is_with_main_memory() -> None:
    # 1000 bytes told to be in HBM, 2000 of which nothing is told, and 3000 told to be on the chip.
    ops = _ops([(1000, 0.0, 1000), (1000, 0.0, 2000), (1000, 0.0, 3000)])
    told = MemoryAccesses.of([(0, MemorySpace.HBM, 1, 1000), (2, MemorySpace.VMEM, 1, 3000)])
    ops = replace(ops, accesses=told)
    assert memory_bandwidth_ratio(ops, PEAKS) == pytest.approx((1000 + 2000) / (4 * 3000))
    assert program_efficiency_ratio(ops, PEAKS) == pytest.approx((250 + 500) / 3000)


def test_work_that_is_estimated_too_high_is_no_better_program() -> None:
    ops = _ops([(1000, 9000.0, 0), (1000, 0.0, 0)])
    assert program_efficiency_ratio(ops, PEAKS) == pytest.approx(0.5)


def test_without_work_or_peaks_there_is_no_figure() -> None:
    ops = _ops([(1000, 0.0, 0)])
    assert program_efficiency_ratio(ops, PEAKS) is None
    assert memory_bandwidth_ratio(ops, PEAKS) is None
    assert program_efficiency_ratio(_ops([(1000, 10.0, 10)]), PerfEnv()) is None
    assert program_efficiency_ratio(OpDatabase.empty(), PEAKS) is None


def _host(hostname: str, mxu: float | None) -> bytes:
    space = xplane_pb2.XSpace(hostnames=[hostname])
    plane = space.planes.add(name="/host:CPU")
    if mxu is not None:
        plane.stat_metadata[1].id = 1
        plane.stat_metadata[1].name = "matrix_unit_utilization_percent"
        plane.stats.add(metadata_id=1, double_value=mxu)
    space.planes.add(name="/device:TPU:0", id=1)
    return space.SerializeToString()


def test_a_host_without_the_counter_does_not_count_in_the_mean() -> None:
    hosts = [
        analyze_host(_host(name, mxu), name)
        for name, mxu in (("a", 40.0), ("b", None), ("c", 60.0))
    ]
    result = run_tool("overview_page", hosts, Scope(["a", "b", "c"]))
    assert result.result["utilization"]["mxu_utilization_ratio"] == pytest.approx(0.5)
    names = [column.id for column in result.tables["hosts"].columns]
    rows = [dict(zip(names, row, strict=True)) for row in result.tables["hosts"].rows]
    assert [row["mxu_utilization_ratio"] for row in rows] == [0.4, None, 0.6]
    assert [row["host"] for row in rows] == ["a", "b", "c"]
    assert {row["device_core_count"] for row in rows} == {1}
    tables: Any = run_tool_xprof("overview_page", hosts)
    # The reference's mean is over all three.
    assert tables[0]["p"]["mxu_utilization_percent"] == "33.3%"


def test_what_was_not_recorded_was_not_idle() -> None:
    found = run_tool("overview_page", [analyze_host(_host("a", None), "a")], Scope(["a"])).result
    used = found["utilization"]
    assert used["device_idle_ratio"] is used["host_idle_ratio"] is used["duty_cycle_ratio"] is None


# 2 GFLOP/s are 0.002 flops a picosecond; bandwidths likewise.
@pytest.mark.parametrize(
    ("rows", "total_ps", "bandwidth"),
    [
        pytest.param([(10**6, 1000.0, 1000)], 10**6, 2.0, id="one", marks=pytest.mark.case("M2")),
        pytest.param(
            # Two of these; the loop around others and one that never ran told no traffic.
            [(10**6, 1000.0, 1000)] * 2 + [(0, 5000.0, 0), (0, 0.0, 0)],
            2 * 10**6,
            2.0,
            id="two",
            marks=pytest.mark.case("M3"),
        ),
        pytest.param(
            [(10**6, 500.0, 2000)], 10**6, 4.0, id="bound by memory", marks=pytest.mark.case("M4")
        ),
    ],
)
def test_half_of_what_the_device_can_do(
    rows: list[tuple[int, float, int]], total_ps: int, bandwidth: float
) -> None:
    peaks = PerfEnv(peak_tera_flops_per_second=0.002, peak_gigabytes_per_second=(bandwidth,))
    ops = _ops(rows)
    assert ops.total_time_ps == total_ps
    assert memory_bandwidth_ratio(ops, peaks) == pytest.approx(0.5)
    assert program_efficiency_ratio(ops, peaks) == pytest.approx(0.5)
