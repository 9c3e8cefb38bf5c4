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
from podscope_protos.v1 import hlo_pb2

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
        ("regs:-5 static_shared:-1 grid:-0,1,1 block:1,4294967296,1 occ_pct:inf", Launch()),
        (
            "regs:32\r\ngrid:\t3,+2,1 static_shared:4294967295",
            Launch(32, 4294967295, grid=(3, 2, 1)),
        ),
        ("regs:7 regs:x regs:-1", Launch(7)),
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
        ("no length", 40_000_000, 0, {"kernel_details": "regs:1"}),
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


def test_a_kernel_shorter_than_a_nanosecond_counts_without_time(make_planes: MakePlanes) -> None:
    details = {"kernel_details": "regs:1"}
    events = [("k", 1_000_000 * n, ps, details) for n, ps in enumerate((1500, 999, 1, 0))]
    plane = {"name": "/device:GPU:0", "lines": {"s": events}}
    (found,) = host_kernels(make_planes([plane]), Programs({})).kernels
    assert (found.occurrences, found.total_ns, found.min_ns, found.max_ns) == (3, 1, 0, 1)


@pytest.mark.parametrize(
    ("vendor", "name", "uses"),
    [
        ("Nvidia", VOLTA, True),
        ("", VOLTA, None),
        ("Intel", VOLTA, None),
        ("AMD", VOLTA, False),
        ("AMD", "gemm_MI16x16x16x1_SN", True),
        ("AMD", "gemm_MI16x16_SN", False),
        ("AMD", "Custom_Cijk_Ailk", True),
        ("Nvidia", "Custom_Cijk_Ailk", False),
        ("Nvidia", "gemm_fusion_dot_7", None),
        ("Nvidia", "triton_poi_fused_add_0", None),
        ("Nvidia", "loop_add_fusion", False),
        ("AMD", "gemm_fusion_dot_7", True),
    ],
)
def test_the_maker_decides_which_names_speak_of_tensor_cores(
    vendor: str, name: str, uses: bool | None
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


def test_a_kernel_on_tensor_cores_makes_a_named_operation_eligible_and_no_instruction(
    make_planes: MakePlanes,
) -> None:
    module = hlo_pb2.HloModuleProto(name="m", id=5)
    computation = module.computations.add(id=1, name="entry")
    for name, op_name in (("mul.1", "f/mul"), ("dot.1", "f/dot_general")):
        instruction = computation.instructions.add(name=name, opcode="multiply")
        instruction.metadata.op_name = op_name
    programs = Programs({5: hlo_pb2.HloProto(hlo_module=module).SerializeToString()})
    details = {"kernel_details": "regs:1", "program_id": 5}
    stats: list[dict[str, Any]] = [
        {"hlo_op": "mul.1"},
        {"hlo_op": "mul.1", "tf_op": "XlaModule:"},
        {"hlo_op": "dot.1"},
    ]
    events = [(VOLTA, 10**7 * n, 9000 - n, details | one) for n, one in enumerate(stats)]
    plane = {
        "name": "/device:GPU:0",
        "stats": {"device_vendor": "Nvidia"},
        "lines": {"s": events},
    }
    found = host_kernels(make_planes([plane]), programs)
    flags = [(k.op_name, k.occurrences, k.is_op_eligible) for k in found.kernels]
    assert sorted(flags) == [("f/dot_general", 1, True), ("f/mul", 1, False), ("f/mul", 1, True)]
    assert all(kernel.could_use_tensor_core for kernel in found.kernels)


def test_an_operation_could_use_tensor_cores_if_any_of_its_kernels_says_so() -> None:
    flags = {"all": (True, True), "one": (False, True), "none": (False, None), "untold": (None,)}
    every = [
        Kernel(f"k{n}", op, Launch(), False, flag, 1, 9 - n, 1, 1)
        for op, given in flags.items()
        for n, flag in enumerate(given)
    ]
    found = {op: kernels.is_eligible for op, kernels in KernelDatabase.of(every).by_op().items()}
    assert found == {"all": True, "one": True, "none": False, "untold": None}


@pytest.mark.case("P4")
def test_equal_kernels_merge_within_a_host_and_not_across_hosts() -> None:
    one = Kernel("k", "", Launch(), False, False, 3, 1700, 500, 1200)
    other = Kernel("k", "", Launch(), False, False, 1, 900, 900, 900)
    merged = one.merged(other)
    assert (merged.total_ns, merged.min_ns, merged.max_ns) == (2600, 500, 1200)
    assert merged.occurrences == other.merged(one).occurrences == 4
    hosts = [KernelDatabase.of([one]), KernelDatabase.of([one])]
    assert len(KernelDatabase.side_by_side(hosts).kernels) == 2


def test_equal_kernels_of_several_hosts_are_one_row_that_counts_the_hosts() -> None:
    every = [KernelDatabase.of([kernel("k", "op", 5), kernel(f"own{n}", "op", 7)]) for n in (0, 1)]
    found = KernelDatabase.combine(every)
    rows = [(one.name, one.hosts, one.occurrences, one.total_ns) for one in found.kernels]
    assert rows == [("k", 2, 2, 10), ("own0", 1, 1, 7), ("own1", 1, 1, 7)]


def test_many_hosts_with_the_same_kernels_list_all_of_them() -> None:
    host = KernelDatabase.of(kernel(f"k{n}", "op", 10 + n) for n in range(40))
    hosts = [host] * 100
    assert len({one.name for one in KernelDatabase.side_by_side(hosts).kernels}) == 10
    found = KernelDatabase.combine(hosts)
    assert len(found.kernels) == 40
    assert {one.hosts for one in found.kernels} == {100}
    assert (found.left_out, found.left_out_ns) == (0, 0)


def test_what_the_tracer_did_not_tell_is_none_and_the_reference_has_its_defaults(
    make_planes: MakePlanes,
) -> None:
    events = [("k", 0, 2_000, {"kernel_details": "nothing known"})]
    planes = [{"name": "/device:GPU:0", "lines": {"s": events}}]
    (found,) = host_kernels(make_planes(planes), Programs({})).kernels
    assert found.launch == Launch(None, None, None, None, None, None)
    assert found.launch.shared_bytes is None
    assert (found.uses_tensor_core, found.is_op_eligible) == (None, None)
    assert found.key == ("k", (1, 1, 1), (1, 1, 1), 0, 0, 0, False, False, "")
    by_op = KernelDatabase.of([found]).by_op()[""]
    known = (by_op.is_eligible, by_op.uses_tensor_core, by_op.tensor_core_ratio)
    assert (known, by_op.reference_ratio) == ((None, None, None), 0.0)


def test_an_operation_whose_kernels_are_known_in_part_has_no_share_on_tensor_cores() -> None:
    untold = Kernel("gemm_fusion", "op", Launch(), None, True, 1, 300, 300, 300)
    by_op = KernelDatabase.of([kernel("a", "op", 100, uses=True), untold]).by_op()["op"]
    assert (by_op.uses_tensor_core, by_op.tensor_core_ratio) == (True, None)
    assert by_op.reference_ratio == 0.25


def test_only_the_longest_kernels_are_kept_and_they_survive_their_state() -> None:
    database = KernelDatabase.of(kernel(f"k{i}", "", i + 1) for i in range(MAX_KERNELS + 5))
    assert len(database.kernels) == MAX_KERNELS
    assert database.kernels[-1].total_ns == 6
    assert (database.left_out, database.left_out_ns) == (5, 1 + 2 + 3 + 4 + 5)
    both = KernelDatabase.combine([database, database])
    assert (both.left_out, both.left_out_ns) == (10, 30)
    assert KernelDatabase.from_state(database.to_state()) == database
