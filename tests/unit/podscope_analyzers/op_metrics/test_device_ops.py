from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from podscope_analyzers.hlo import Programs, read_programs
from podscope_analyzers.op_metrics.database import CoreType, CostSource, OpDatabase
from podscope_analyzers.op_metrics.framework_view import framework_view
from podscope_analyzers.op_metrics.headline import (
    duty_cycle_ratio,
    eager_ratio,
    op_placement_ratios,
    outside_compilation_ratio,
)
from podscope_analyzers.op_metrics.host_databases import device_op_database
from podscope_analyzers.prepared import PreparedSpace
from podscope_protos.v1 import hlo_pb2

MakePlanes = Callable[[list[dict[str, Any]]], PreparedSpace]
NS = 1000


def value(database: OpDatabase, name: str, column: str) -> Any:
    row = database.text_column("name").index(name)
    found = database.column(column)[row]
    return found.item()


def kernel(name: str, start_ns: int, duration_ns: int, **stats: Any) -> tuple[Any, ...]:
    return name, start_ns * NS, duration_ns * NS, stats


def metadata_plane(module: hlo_pb2.HloModuleProto, program_id: int = 1) -> dict[str, Any]:
    raw = hlo_pb2.HloProto(hlo_module=module).SerializeToString()
    named = f"{module.name}({program_id})"
    return {"name": "/host:metadata", "metadata": {named: {"stats": {"Hlo Proto": raw}}}}


def test_an_instruction_without_name_counts_for_no_framework_operation(
    make_planes: MakePlanes,
) -> None:
    stats = {"tf_op": "a:A", "hlo_op": "", "program_id": 1}
    lines = {"s": [kernel("k", 0, 5, **stats), kernel("k", 10, 7, tf_op="a:A")]}
    ops = device_op_database(make_planes([{"name": "/device:GPU:0", "lines": lines}]), Programs({}))
    assert ops.text_column("name") == ["a/k", "IDLE"]
    assert ops.column("time_ps").tolist() == [7 * NS, 10 * NS]


@pytest.mark.case("D1")
def test_kernels_of_framework_operations_and_their_view(make_planes: MakePlanes) -> None:
    both = [
        kernel("kernel1", 100_000, 8_000, tf_op="TfOp1:TfOp1"),
        kernel("kernel2", 110_000, 10_000, tf_op="TfOp1:TfOp1"),
    ]
    third = kernel("kernel3", 120_000, 10_000, tf_op="TfOp2:TfOp2")
    space = make_planes(
        [{"name": "/device:GPU:0", "lines": {"stream 10": both, "stream 20": [*both, third]}}]
    )
    ops = device_op_database(space, Programs({}))
    assert ops.text_column("name") == ["TfOp1/kernel1", "TfOp1/kernel2", "TfOp2/kernel3", "IDLE"]
    assert ops.column("occurrences").tolist() == [2, 2, 1, 0]
    assert ops.column("time_ps").tolist() == [16_000_000, 20_000_000, 10_000_000, 0]
    # Streams overlap: the operations' sum is more than the span of 30 us.
    assert (ops.total_op_time_ps, ops.total_time_ps) == (46_000_000, 46_000_000)
    view = framework_view(ops, with_idle=True)
    assert view.text_column("name") == ["TfOp1", "TfOp2", "IDLE"]
    # Of kernels folded together the largest count, and all their time.
    assert view.column("occurrences").tolist() == [2, 1, 0]
    assert view.column("self_time_ps").tolist() == [36_000_000, 10_000_000, 0]


def adding_module() -> hlo_pb2.HloModuleProto:
    module = hlo_pb2.HloModuleProto(name="jit_f")
    computation = module.computations.add(id=1, name="main", root_id=3)
    for number, opcode in ((1, "parameter"), (2, "parameter"), (3, "add")):
        one = computation.instructions.add(id=number, name=f"{opcode}.{number}", opcode=opcode)
        one.shape.element_type = hlo_pb2.PrimitiveType.F32
        one.shape.dimensions.append(1024)
        one.shape.layout.minor_to_major.append(0)
    add = computation.instructions[2]
    add.operand_ids.extend([1, 2])
    add.metadata.op_name, add.metadata.source_file = "jit(f)/add", "models/mnist.py"
    add.metadata.source_line = 42
    return module


@pytest.mark.case("D3", "2.O14")
def test_an_hlo_operation_takes_name_source_and_cost_from_its_instruction(
    make_planes: MakePlanes,
) -> None:
    run = {"hlo_op": "xla::op::add.3", "program_id": 1}
    events = [
        ("Add", 100, 10, run),
        ("Add", 120, 30, run),
        ("lost", 150, 5, {"hlo_op": "gone.1", "program_id": 1}),
        ("copy", 200, 20),
    ]
    space = make_planes(
        [{"name": "/device:GPU:0", "lines": {"s": events}}, metadata_plane(adding_module())]
    )
    ops = device_op_database(space, read_programs(space))
    assert ops.text_column("name") == ["add.3", "IDLE"]
    assert (value(ops, "add.3", "occurrences"), value(ops, "add.3", "time_ps")) == (2, 40)
    assert ops.text("source_file", 0) == "models/mnist.py"
    assert value(ops, "add.3", "source_line") == 42
    assert ops.text("provenance", 0) == "jit(f)/add:"
    assert ops.text("category", 0) == "non-fusion elementwise"
    # 3 flops an element; two operands and a result of 4 KiB.
    assert value(ops, "add.3", "flops") == 2 * 3 * 1024
    assert value(ops, "add.3", "bytes_accessed") == 2 * 3 * 4096
    assert value(ops, "add.3", "cost_source") == CostSource.ANALYSIS
    assert dict(
        zip(ops.accesses.access.tolist(), ops.accesses.size_bytes.tolist(), strict=True)
    ) == {
        1: 2 * 8192,
        2: 2 * 4096,
    }
    # Copies without annotation widen the time looked at, 100 to 220.
    assert ops.total_time_ps == 120


@pytest.mark.case("D2", "2.O13")
def test_an_instruction_of_unknown_cost_has_time_and_no_bytes(make_planes: MakePlanes) -> None:
    module = hlo_pb2.HloModuleProto(name="jit_f")
    computation = module.computations.add(id=1, name="main", root_id=1)
    call = computation.instructions.add(id=1, name="add.1", opcode="custom-call")
    call.custom_call_target = "mine"
    events = [("Add", 100, 10, {"hlo_op": "xla::op::add.1", "program_id": 1})]
    space = make_planes([{"name": "/device:GPU:0", "lines": {"s": events}}, metadata_plane(module)])
    ops = device_op_database(space, read_programs(space))
    assert ops.text_column("name") == ["add.1", "IDLE"]
    columns = ("occurrences", "time_ps", "flops", "bytes_accessed")
    assert [value(ops, "add.1", name) for name in columns] == [1, 10, 0, 0]
    assert len(ops.accesses.op) == 0


def _called(make_planes: MakePlanes, config: str) -> OpDatabase:
    """Two executions of a custom call, one behind the other."""
    module = hlo_pb2.HloModuleProto(name="jit_f")
    computation = module.computations.add(id=1, name="main", root_id=1)
    call = computation.instructions.add(id=1, name="custom-call.1", opcode="custom-call")
    call.custom_call_target = "triton_kernel_call_ffi"
    call.backend_config = config.encode()
    run = {"hlo_op": "xla::op::custom-call.1", "program_id": 1}
    events = [("kernel", 100, 10, run), ("kernel", 110, 15, run)]
    space = make_planes([{"name": "/device:GPU:0", "lines": {"s": events}}, metadata_plane(module)])
    return device_op_database(space, read_programs(space))


@pytest.mark.case("F7", "2.O8")
def test_no_operation_reads_less_than_nothing(make_planes: MakePlanes) -> None:
    ops = _called(make_planes, '{"cost_estimate": {"flops": 100, "bytes_accessed": -50}}')
    assert value(ops, "custom-call.1", "bytes_accessed") == 0
    assert ops.accesses.size_bytes.tolist() == []


@pytest.mark.case("D4", "2.O12")
@pytest.mark.parametrize(
    "config",
    [
        '{"cost_estimate": {"flops": 1000, "transcendentals": 5, "bytes_accessed": 2000}}',
        '{"custom_call_config": {"cost_estimate": {"flops": "1000", "bytes_accessed": "2000"}}}',
    ],
)
def test_a_custom_call_costs_what_it_estimates_itself(make_planes: MakePlanes, config: str) -> None:
    ops = _called(make_planes, config)
    assert ops.text_column("name") == ["custom-call.1", "IDLE"]
    columns = ("occurrences", "time_ps", "own_flops", "own_model_flops", "own_bytes_accessed")
    found = [value(ops, "custom-call.1", name) for name in columns]
    assert found == [2, 25, 2000, 2000, 4000]
    assert value(ops, "custom-call.1", "cost_source") == CostSource.KERNEL
    # The released reference knows nothing of it.
    assert (
        value(ops, "custom-call.1", "flops") == value(ops, "custom-call.1", "bytes_accessed") == 0
    )


@pytest.mark.parametrize(
    "config",
    [
        '{"cost_estimate": {"flops": -7, "bytes_accessed": 1e300}}',
        '{"cost_estimate": {"flops": true, "bytes_accessed": "many"}}',
        '{"cost_estimate": 3}',
        '["cost_estimate"]',
        '{"cost_estimate": {',
        '{"cost_estimate": ' + 2000 * "[" + 2000 * "]" + "}",
        "",
    ],
)
def test_an_estimate_that_is_none_leaves_the_cost_unknown(
    make_planes: MakePlanes, config: str
) -> None:
    ops = _called(make_planes, config)
    assert value(ops, "custom-call.1", "own_flops") == 0
    assert value(ops, "custom-call.1", "own_bytes_accessed") == 0


def test_a_run_takes_the_last_stat_times_its_length_and_ours_prefers_stats(
    make_planes: MakePlanes,
) -> None:
    def event(start: int, group: int, flops: int) -> tuple[Any, ...]:
        stats = {"hlo_op": "add.3", "program_id": 1, "group_id": group, "flops": flops}
        return "k", start, 10, stats

    events = [event(0, 0, 5), event(10, 0, 7), event(20, 1, 100)]
    space = make_planes(
        [{"name": "/device:GPU:0", "lines": {"s": events}}, metadata_plane(adding_module())]
    )
    ops = device_op_database(space, read_programs(space))
    assert value(ops, "add.3", "own_flops") == 7 * 2 + 100
    assert value(ops, "add.3", "flops") == 3 * 3 * 1024
    assert value(ops, "add.3", "cost_source") == CostSource.STATS


def tpu_plane(**described: Any) -> dict[str, Any]:
    return {"name": "/device:TPU:0", **described}


@pytest.mark.case("E1", "2.O11")
def test_an_aggregated_tpu_operation_counts_every_occurrence(make_planes: MakePlanes) -> None:
    stats = {
        "tf_op": "while:MatMul",
        "hlo_category": "MatMul",
        "flops": 34,
        "program_id": 1,
        "symbol_id": 1,
    }
    plane = tpu_plane(
        metadata={"MatMul": {"stats": stats}},
        lines={
            "Framework Ops": [
                ("MatMul", 0, 10 * NS, {"num_occurrences": 2, "Time Scale Multiplier": 2.0})
            ]
        },
    )
    ops = device_op_database(make_planes([plane]), Programs({}))
    expected = {
        "module_id": 1,
        "occurrences": 2,
        "time_ps": 10_000,
        "self_time_ps": 10_000,
        "min_time_ps": 10_000,
        "normalized_time_ps": 20_000,
        "flops": 68,
        "model_flops": 68,
        "num_cores": 1,
        "core_type": CoreType.TENSOR_CORE,
    }
    assert {name: value(ops, "MatMul", name) for name in expected} == expected
    assert ops.text("provenance", 0) == "while:MatMul"
    assert (ops.total_time_ps, ops.total_op_time_ps) == (10_000, 10_000)
    assert ops.normalized_total_op_time_ps == 20_000
    assert value(ops, "IDLE", "time_ps") == 0


@pytest.mark.case("E2", "E6", "2.O10")
def test_tpu_operations_merge_by_program_and_symbol(make_planes: MakePlanes) -> None:
    def ids(symbol: int) -> dict[str, Any]:
        return {"stats": {"program_id": 1, "symbol_id": symbol}}

    plane = tpu_plane(
        metadata={"m1": ids(1), "m2": ids(2), "m3": {"stats": {"symbol_id": 3}}},
        lines={
            "XLA Ops": [
                ("m1", 0, 100, {"Time Scale Multiplier": 0.5, "vdd_energy_j": 10.0}),
                ("m1", 200, 100, {"Time Scale Multiplier": 1.0, "vdd_energy_j": 20.0}),
                ("m2", 400, 100, {"Time Scale Multiplier": 2.0}),
                ("m3", 600, 100),
            ]
        },
    )
    ops = device_op_database(make_planes([plane]), Programs({}))
    columns = ("occurrences", "time_ps", "normalized_time_ps")
    found = {name: [value(ops, name, column) for column in columns] for name in ("m1", "m2")}
    assert found == {"m1": [2, 200, 150], "m2": [1, 100, 200]}
    assert value(ops, "m1", "energy_j") == 30.0
    assert value(ops, "m1", "min_time_ps") == 100
    assert (ops.total_op_time_ps, ops.normalized_total_op_time_ps) == (300, 350)
    assert ops.text_column("name") == ["m1", "m2", "IDLE"]
    assert ops.total_time_ps == 700


@pytest.mark.case("E5", "E7", "2.O2")
def test_metadata_of_a_tpu_operation_is_kept(make_planes: MakePlanes) -> None:
    stats = {
        "program_id": 1,
        "symbol_id": 2,
        "deduplicated_name": "dedup",
        "tf_op": "a/b:B",
        "hlo_category": "convolution",
        "flops": 3,
        "model_flops": 4,
        "bytes_accessed": 5,
        "source": "my_file.py:123",
        "source_stack": "one\ntwo",
    }
    plane = tpu_plane(
        metadata={"metadata": {"display_name": "display_name", "stats": stats}},
        lines={"XLA Ops": [("metadata", 0, 100)]},
    )
    ops = device_op_database(make_planes([plane]), Programs({}))
    texts = {name: ops.text(name, 0) for name in ("name", "long_name", "category", "provenance")}
    assert texts == {
        "name": "display_name",
        "long_name": "metadata",
        "category": "convolution",
        "provenance": "a/b:B",
    }
    assert ops.text("deduplicated_name", 0) == "dedup"
    assert (ops.text("source_file", 0), ops.column("source_line")[0]) == ("my_file.py", 123)
    assert ops.text("source_stack", 0) == "one\ntwo"
    costs = [
        value(ops, "display_name", name) for name in ("flops", "model_flops", "bytes_accessed")
    ]
    assert costs == [3, 4, 5]


def test_nested_tpu_operations_share_their_time_on_the_device_clock(
    make_planes: MakePlanes,
) -> None:
    plane = tpu_plane(
        metadata={
            name: {"stats": {"program_id": 1, "symbol_id": at}}
            for at, name in enumerate(("while", "add"), start=1)
        },
        lines={
            "XLA Ops": [
                ("while", 0, 9, {"device_offset_ps": 1000, "device_duration_ps": 900}),
                ("add", 5, 9, {"device_offset_ps": 1200, "device_duration_ps": 300}),
            ]
        },
    )
    ops = device_op_database(make_planes([plane]), Programs({}))
    assert (value(ops, "while", "time_ps"), value(ops, "while", "self_time_ps")) == (900, 600)
    assert value(ops, "add", "self_time_ps") == 300


def test_event_costs_of_a_custom_call_are_ours_alone(make_planes: MakePlanes) -> None:
    plane = tpu_plane(
        metadata={
            "call": {"stats": {"program_id": 1, "symbol_id": 1, "hlo_category": "custom-call"}}
        },
        lines={"XLA Ops": [("call", 0, 10, {"flops": 50, "bytes_accessed": 8})]},
    )
    ops = device_op_database(make_planes([plane]), Programs({}))
    assert (value(ops, "call", "flops"), value(ops, "call", "bytes_accessed")) == (0, 0)
    assert (value(ops, "call", "own_flops"), value(ops, "call", "own_bytes_accessed")) == (50, 8)


def sparse_core_planes() -> list[dict[str, Any]]:
    link = {"offload_core_id": ("uint", 0), "tc_offload_start_id": 123}
    tensor_core = tpu_plane(
        metadata={"call-start": {"stats": {"program_id": 1, "symbol_id": 1}}},
        lines={"XLA Ops": [("call-start", 0, 50, link)]},
    )
    sparse_core = {
        "name": "/device:TPU:0 SparseCore 0",
        "id": 1,
        "metadata": {
            "Fusion": {
                "stats": {
                    "program_id": 1,
                    "symbol_id": 2,
                    "hlo_category": "XlaFusionOp",
                    "flops": 20,
                }
            },
            # Nothing says what this one is.
            "unknown": {"stats": {"hlo_category": "XlaFusionOp"}},
        },
        "lines": {
            "Sparse Core Modules": [("module", 0, 100 * NS, link)],
            "Sparse Core Ops": [
                ("Fusion", 0, 10 * NS, {"num_occurrences": 2}),
                ("unknown", 20 * NS, 10 * NS),
            ],
        },
    }
    return [tensor_core, sparse_core]


@pytest.mark.case("E3", "E4")
def test_sparse_core_operations_are_children_of_the_operation_that_offloads(
    make_planes: MakePlanes,
) -> None:
    ops = device_op_database(make_planes(sparse_core_planes()), Programs({}))
    children = ops.children(0)
    names = ops.text_column("name")
    assert [names[row] for row in children] == ["Fusion", "IDLE"]
    assert {name: value(ops, "Fusion", name) for name in ("occurrences", "time_ps", "flops")} == {
        "occurrences": 2,
        "time_ps": 10_000,
        "flops": 40,
    }
    assert value(ops, "Fusion", "core_type") == CoreType.SPARSE_CORE
    assert ops.column("time_ps")[children[1]] == 90_000
    # Children neither add to the totals nor to the operation around them.
    assert ops.total_op_time_ps == 50


def test_combining_planes_adds_and_keeps_children_once(make_planes: MakePlanes) -> None:
    one = device_op_database(make_planes(sparse_core_planes()), Programs({}))
    both = OpDatabase.combine([one, one])
    assert both.top_count == one.top_count
    assert value(both, "call-start", "time_ps") == 100
    assert value(both, "call-start", "num_cores") == 2
    assert [both.text_column("name")[row] for row in both.children(0)] == ["Fusion", "IDLE"]
    assert value(both, "Fusion", "time_ps") == 10_000


def activity_planes(**core_details: Any) -> list[dict[str, Any]]:
    categories = {"infeed": "infeed", "call": "call", "outfeed": "outfeed"}
    starts = {"infeed": [10], "call": [20, 30], "outfeed": [40]}
    events = sorted((name, at, 10) for name, times in starts.items() for at in times)
    tensor_core = tpu_plane(
        stats=core_details,
        metadata={name: {"stats": {"hlo_category": text}} for name, text in categories.items()},
        lines={"XLA Ops": sorted(events, key=lambda e: e[1]), "XLA Modules": [("m", 5, 50)]},
    )
    sparse_core = {
        "name": "/device:TPU:0 SparseCore 0",
        "id": 1,
        "stats": core_details,
        "lines": {
            "Sparse Core Ops": [("op", at, 10) for at in (10, 20, 30, 40)],
            "Sparse Core Modules": [("m", 5, 50)],
        },
    }
    return [tensor_core, sparse_core]


@pytest.mark.case("J1", "J2", "J3")
def test_chips_are_active_while_any_core_works(make_planes: MakePlanes) -> None:
    tensor_core, sparse_core = activity_planes()
    alone = device_op_database(make_planes([tensor_core]), Programs({}))
    assert (alone.busy_time_ps, alone.idle_time_ps) == (20, 30)
    assert duty_cycle_ratio(alone) == pytest.approx(0.4)
    sparse = device_op_database(make_planes([sparse_core]), Programs({}))
    assert (sparse.busy_time_ps, sparse.idle_time_ps) == (40, 10)
    # Field 4 of the core's details is its chip: both cores are on chip 0.
    chip = activity_planes(core_details=b"\x20\x00")
    together = device_op_database(make_planes(chip), Programs({}))
    assert (together.busy_time_ps, together.idle_time_ps) == (40, 10)


@pytest.mark.parametrize(
    ("category", "stats", "busy", "sure"),
    [
        ("custom-call", {}, 300, 200),
        ("custom-call", {"flops": 7}, 300, 300),
        ("custom-call", {"model_flops": 7}, 300, 300),
        ("async-start", {}, 300, 300),
        ("host send", {}, 200, 200),
    ],
)
def test_custom_calls_of_unknown_work_are_not_sure_to_be_active(
    make_planes: MakePlanes, category: str, stats: dict[str, Any], busy: int, sure: int
) -> None:
    plane = tpu_plane(
        metadata={
            "conv": {"stats": {"hlo_category": "convolution", "flops": 1}},
            "other": {"stats": {"hlo_category": category}},
        },
        lines={
            "XLA Modules": [("m", 0, 900)],
            "XLA Ops": [("conv", 0, 200), ("other", 300, 100, stats)],
        },
    )
    ops = device_op_database(make_planes([plane]), Programs({}))
    assert (ops.busy_time_ps, ops.idle_time_ps) == (busy, 900 - busy)
    assert (ops.busy_high_confidence_ps, ops.idle_high_confidence_ps) == (sure, 900 - sure)


@pytest.mark.parametrize(
    ("ops", "busy"),
    [
        # A loop of 30, in it 10 of waiting for input: active for 20.
        ([("while", 0, 30), ("infeed", 5, 10)], 20),
        # What works within a wait, works.
        ([("infeed", 0, 30), ("call", 5, 10)], 10),
        # Begun within the other one, but not over with it: not within it.
        ([("call", 0, 10), ("infeed", 5, 10)], 10),
        # 60 less the infeed's 20 in the second loop, of which the call takes back 5.
        ([("while", 0, 60), ("while", 5, 40), ("infeed", 10, 20), ("call", 12, 5)], 45),
    ],
)
@pytest.mark.parametrize("name", ["/device:TPU:0", "/device:TPU:0 SparseCore 0"])
def test_a_loop_is_not_active_while_it_waits(
    make_planes: MakePlanes, name: str, ops: list[tuple[str, int, int]], busy: int
) -> None:
    sparse = "Sparse" in name
    plane = tpu_plane(
        metadata={one: {"stats": {"hlo_category": one}} for one in ("while", "infeed", "call")},
        lines={
            "Sparse Core Ops" if sparse else "XLA Ops": ops,
            "Sparse Core Modules" if sparse else "XLA Modules": [("m", 0, 100)],
        },
    )
    found = device_op_database(make_planes([plane | {"name": name}]), Programs({}))
    assert (found.busy_time_ps, found.idle_time_ps) == (busy, 100 - busy)
    assert found.busy_high_confidence_ps == busy


def test_shares_of_eager_and_outside_operations(make_planes: MakePlanes) -> None:
    space = make_planes(
        [
            {
                "name": "/device:GPU:0",
                "lines": {
                    "s": [
                        ("a", 0, 30, {"tf_op": "x/a:A", "is_eager": 1}),
                        ("b", 40, 10, {"tf_op": "x/b:XlaSendToHost"}),
                    ]
                },
            }
        ]
    )
    ops = device_op_database(space, Programs({}))
    assert eager_ratio(ops) == 0.75
    assert outside_compilation_ratio(ops) == 0.25
    assert op_placement_ratios(OpDatabase.empty(), ops) == (0.0, 1.0)
    assert op_placement_ratios(OpDatabase.empty(), OpDatabase.empty()) == (0.0, 0.0)


def test_what_goes_to_other_slices_is_not_outside_the_program(make_planes: MakePlanes) -> None:
    done = "%send-done.1 = token[] send-done(s), is_host_transfer=true"
    known = {"program_id": 1, "hlo_category": "host send-done"}
    metadata: dict[str, Any] = {
        name: {"display_name": f"op{number}", "stats": {**known, "symbol_id": number}}
        for number, name in enumerate(("a", done, "c"), start=1)
    }
    metadata["c"]["stats"]["tf_op"] = "x/b:XlaSendToHost"
    events = [kernel("a", 0, 60), kernel(done, 60, 30), kernel("c", 90, 10)]
    plane = {"name": "/device:TPU:0", "lines": {"XLA Ops": events}, "metadata": metadata}
    ops = device_op_database(make_planes([plane]), Programs({}))
    assert outside_compilation_ratio(ops) == pytest.approx(0.4)
    assert outside_compilation_ratio(ops, between_slices_ps=20_000) == pytest.approx(0.2)
    # More than there is takes nothing from what the host was sent by name.
    assert outside_compilation_ratio(ops, between_slices_ps=10**9) == pytest.approx(0.1)


def test_a_database_survives_its_state(make_planes: MakePlanes) -> None:
    ops = device_op_database(make_planes(sparse_core_planes()), Programs({}))
    again = OpDatabase.from_state(ops.to_state())
    assert again.texts == ops.texts
    assert all(np.array_equal(again.column(name), ops.column(name)) for name in ops.columns)
    assert again.total_time_ps == ops.total_time_ps
