"""Records against a roofline, with hand-worked numbers."""

import numpy as np
import pytest

from podscope_analyzers.op_metrics.database import Access, MemoryAccesses, MemorySpace, OpDatabase
from podscope_analyzers.op_metrics.rates import GIBI
from podscope_analyzers.op_metrics.roofline_records import RooflineModel, RooflineRecord
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.peaks import PerfEnv

# 1 TFLOP/s; 100 GB/s of main memory, 400 of reads from VMEM.
TPU = PerfEnv(1.0, (100.0, 0, 0, 0, 0, 400.0, 200.0), has_merged_vmem=True)
GPU = PerfEnv(1.0, (100.0, 400.0, 50.0))


def database() -> OpDatabase:
    """A dot, an infeed and a loop that calls both, in 10 us."""
    texts = TextTable()
    rows = [
        # name and category, time us, self us, flops, bytes
        ("while", 8, 0, 9e9, 9_000_000),
        ("dot", 5, 5, 2.5e6, 250_000),
        ("infeed", 3, 3, 0, 600_000),
    ]
    names = np.array([texts.code(row[0]) for row in rows])
    flops, size = np.array([row[3] for row in rows]), np.array([row[4] for row in rows])
    return OpDatabase.build(
        {
            "name": names,
            "category": names,
            "occurrences": 1,
            "time_ps": np.array([row[1] for row in rows]) * 1_000_000,
            "self_time_ps": np.array([row[2] for row in rows]) * 1_000_000,
            "flops": flops,
            "model_flops": flops / 2,
            "bytes_accessed": size,
            "own_flops": flops * 2,
        },
        texts,
        accesses=MemoryAccesses.of(
            [
                (1, MemorySpace.HBM, Access.READ, 100_000),
                (1, MemorySpace.HBM, Access.WRITE, 25_000),
                (1, MemorySpace.VMEM, Access.READ, 1_500_000),
                (0, MemorySpace.HBM, Access.READ, 9_000_000),
            ]
        ),
        total_op_time_ps=8_000_000,
        total_time_ps=10_000_000,
    ).with_idle()


def records(
    env: PerfEnv = TPU, device_type: str = "TPU v9", *, with_feeds: bool = True, own: bool = False
) -> dict[str, RooflineRecord]:
    model = RooflineModel(env, device_type, own=own)
    return {one.name: one for one in model.total(database(), with_feeds=with_feeds)}


def test_the_program_leaves_out_what_calls_others() -> None:
    program = records()["Program"]
    assert (program.rank, program.time_us, program.time_ratio) == (0, 10.0, 1.0)
    assert program.rates.flop_rate == pytest.approx(250)
    assert program.rates.model_flop_rate == pytest.approx(125)
    assert program.rates.memory_bandwidth * GIBI == pytest.approx(85)
    # By the breakdowns of what it has of them: 125 kB in 10 us.
    assert program.bandwidths["hbm"] * GIBI == pytest.approx(12.5)


def test_operations_are_ranked_without_idle() -> None:
    found = records()
    assert [(one.name, one.rank) for one in found.values()] == [
        ("Program", 0),
        ("dot", 1),
        ("infeed", 2),
        ("while", 3),
    ]
    assert [one.self_ratio for one in found.values()] == pytest.approx([0, 0.5, 0.3, 0])
    assert found["infeed"].cumulative_ratio == pytest.approx(0.8)


def test_without_feeds_their_time_is_not_looked_at() -> None:
    found = records(with_feeds=False)
    assert list(found) == ["Program", "dot", "while"]
    assert found["Program"].time_us == 7.0
    assert found["dot"].self_ratio == pytest.approx(5 / 7)
    assert found["dot"].time_ratio == pytest.approx(5 / 7)


def test_what_is_used_most_bounds_an_operation() -> None:
    dot = records()["dot"]
    # 500 of 1000 GFLOP/s, 25 of 100 GB/s from HBM, 300 of 400 from VMEM.
    assert dot.rates.bound_by == "VMEM Read"
    assert dot.compute_ratio == pytest.approx(0.5)
    assert dot.memory_ratio == dot.efficiency == pytest.approx(0.75)
    assert dot.optimal_flop_rate == pytest.approx(500 / 0.75)
    assert dot.intensities["hbm"] == pytest.approx(20)
    assert dot.bottleneck_intensity == dot.intensities["vmem_read"] == pytest.approx(2.5e6 / 1.5e6)


def test_shared_memory_of_a_gpu_is_charged_with_what_main_memory_moves() -> None:
    found = records(GPU, "Nvidia GPU (Hopper)")
    # The infeed has no breakdown: 200 of 100 GB/s, and of 50 GB/s of shared memory.
    assert found["infeed"].rates.bound_by == "Shm/L1"
    assert found["infeed"].memory_ratio == pytest.approx(2.0)
    assert found["dot"].rates.bound_by == "Compute"
    assert found["dot"].bottleneck_intensity == pytest.approx(10)


def test_our_own_numbers_count_where_they_are_wanted() -> None:
    assert records(own=True)["dot"].rates.flop_rate == pytest.approx(1000)


def test_a_ridge_point_is_peak_compute_over_peak_bandwidth() -> None:
    ceilings = RooflineModel(TPU, "TPU v9", own=False).ceilings
    assert ceilings.ridge_point("hbm") == pytest.approx(10)
    assert ceilings.ridge_point("vmem_read") == pytest.approx(2.5)
    assert ceilings.ridge_point("cmem_read") == 0


def test_nothing_gives_a_record_of_zeros() -> None:
    model = RooflineModel(TPU, "TPU v9", own=False)
    record = model.program(OpDatabase.empty(), "Average", with_feeds=True)
    assert (record.step, record.time_us, record.time_ratio) == ("Average", 0.0, 0.0)
    assert (record.rates.bound_by, record.efficiency) == ("Unknown", 0.0)


def test_each_program_is_measured_in_the_time_of_its_own_operations() -> None:
    ops = database()
    module = ops.column("module_id")
    module[:] = 7
    module[1] = -1
    module[3] = 0
    model = RooflineModel(TPU, "TPU v9", own=False)
    found = list(model.programs(ops, {7: "jit_f(7)"}, with_feeds=True))
    assert [(one.name, one.program_id, one.time_us) for one in found] == [
        ("main", str(2**64 - 1), 5.0),
        ("jit_f(7)", "7", 3.0),
    ]
    # The dot alone; the loop of the other program does not count, what it calls does.
    assert found[0].rates.flop_rate == pytest.approx(500)
    assert found[1].rates.memory_bandwidth * GIBI == pytest.approx(200)
    assert [one.time_ratio for one in found] == pytest.approx([0.5, 0.3])
    without = list(model.programs(ops, {}, with_feeds=False))
    assert [one.time_us for one in without] == [5.0, 0.0]
