from collections.abc import Callable
from typing import Any

import pytest

from podscope_analyzers.gpu_kernels import (
    MAX_KERNELS,
    Kernel,
    KernelDatabase,
    Launch,
    host_kernels,
    is_eligible_einsum,
    is_eligible_op,
    parse_launch,
    uses_tensor_core,
)
from podscope_analyzers.hlo import Programs
from podscope_analyzers.prepared import PreparedSpace

MakePlanes = Callable[[list[dict[str, Any]]], PreparedSpace]
VOLTA = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn"


@pytest.mark.case("P3", "P5")
@pytest.mark.parametrize(
    ("details", "launch"),
    [
        ("odd grid:3,2,1", Launch(grid=(3, 2, 1))),
        ("block:6,5,4 odd ", Launch(block=(6, 5, 4))),
        ("block:1,2,3 odd grid:4,5,6", Launch(block=(1, 2, 3), grid=(4, 5, 6))),
        ("static_shared:7 dynamic_shared:8", Launch(static_bytes=7, dynamic_bytes=8)),
        (
            "regs:10 static_shared:128 dynamic_shared:256\nblock:32,8,4 grid:3,2,1 occ_pct:50",
            Launch(10, 128, 256, (32, 8, 4), (3, 2, 1), 50.0),
        ),
        ("occ_pct=13.0 regs:x grid:1,2 a:b:c", Launch()),
    ],
)
def test_launch_parameters_are_read_from_the_details(details: str, launch: Launch) -> None:
    assert parse_launch(details) == launch


@pytest.mark.case("P1")
def test_kernels_are_sorted_by_time_and_know_their_tensor_cores(make_planes: MakePlanes) -> None:
    events = [
        (
            "shortest",
            10_000_000,
            1_000,
            {"tf_op": "mul_786:Mul", "kernel_details": "regs:16 occ_pct:50.0"},
        ),
        (
            "middle",
            20_000_000,
            2_000,
            {
                "tf_op": "Conv2D:Conv2D",
                "kernel_details": "regs:32 dynamic_shared:16384 occ_pct=13.0",
            },
        ),
        (
            VOLTA,
            30_000_000,
            3_000,
            {"tf_op": "Einsum_80:Einsum", "kernel_details": "grid:3,1,1 block:64,1,1 occ_pct:25.0"},
        ),
        ("too short", 40_000_000, 999, {"kernel_details": "regs:1"}),
        ("copy", 50_000_000, 9_000),
    ]
    plane = {
        "name": "/device:GPU:0",
        "stats": {"device_vendor": "Nvidia"},
        "lines": {"s": events},
    }
    kernels = host_kernels(make_planes([plane]), Programs({})).kernels
    assert [(k.name, k.total_ns) for k in kernels] == [(VOLTA, 3), ("middle", 2), ("shortest", 1)]
    flags = [(k.uses_tensor_core, k.is_op_eligible) for k in kernels]
    assert flags == [(True, True), (False, True), (False, False)]
    assert kernels[1].launch == Launch(registers=32, dynamic_bytes=16384)
    assert kernels[2].launch.occupancy_percent == 50.0


@pytest.mark.parametrize(
    ("vendor", "name", "uses"),
    [
        ("Nvidia", VOLTA, True),
        ("", VOLTA, False),
        ("AMD", VOLTA, False),
        ("AMD", "gemm_MI16x16x16x1_SN", True),
        ("AMD", "gemm_MI16x16_SN", False),
        ("AMD", "Custom_Cijk_Ailk", True),
        ("Nvidia", "Custom_Cijk_Ailk", False),
    ],
)
def test_the_maker_decides_which_names_speak_of_tensor_cores(
    vendor: str, name: str, uses: bool
) -> None:
    assert uses_tensor_core(name, vendor) is uses


def test_operations_that_tensor_cores_could_compute() -> None:
    assert is_eligible_op("a/MatMul")
    assert not is_eligible_op("MatMul")
    assert is_eligible_op("jit(f)/dot_general")
    assert is_eligible_op("x/BatchMatMulV2")
    assert is_eligible_einsum("ab,bc->ac")
    assert not is_eligible_einsum("ab->ba")
    assert not is_eligible_einsum("")


def kernel(name: str, op_name: str, total_ns: int, *, uses: bool = False) -> Kernel:
    return Kernel(name, op_name, Launch(), uses, uses, 1, total_ns, total_ns, total_ns)


@pytest.mark.case("P2")
def test_kernels_of_one_operation_add() -> None:
    database = KernelDatabase.of(
        [
            kernel("a", "op1", 1000, uses=True),
            kernel("b", "op1", 1000),
            kernel("c", "op2", 100),
        ]
    )
    by_op = database.by_op()
    assert (by_op["op1"].total_ns, by_op["op1"].tensor_core_ns) == (2000, 1000)
    assert by_op["op1"].is_eligible
    assert by_op["op1"].tensor_core_ratio == 0.5
    assert (by_op["op2"].total_ns, by_op["op2"].tensor_core_ns) == (100, 0)


@pytest.mark.case("P4")
def test_equal_kernels_merge_within_a_host_and_not_across_hosts() -> None:
    one = Kernel("k", "", Launch(), False, False, 3, 1700, 500, 1200)
    other = Kernel("k", "", Launch(), False, False, 1, 900, 900, 900)
    merged = one.merged(other)
    assert (merged.total_ns, merged.min_ns, merged.max_ns) == (2600, 500, 1200)
    assert merged.occurrences == other.merged(one).occurrences == 4
    hosts = [KernelDatabase.of([one]), KernelDatabase.of([one])]
    assert len(KernelDatabase.combine(hosts).kernels) == 2


def test_only_the_longest_kernels_are_kept_and_they_survive_their_state() -> None:
    database = KernelDatabase.of(kernel(f"k{i}", "", i + 1) for i in range(MAX_KERNELS + 5))
    assert len(database.kernels) == MAX_KERNELS
    assert database.kernels[-1].total_ns == 6
    assert KernelDatabase.from_state(database.to_state()) == database
