"""Costs of single instructions and fusions, worked by hand."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from podscope_analyzers.hlo import Program
from podscope_analyzers.hlo.cost import InstructionCost, instruction_cost
from podscope_protos.v1 import hlo_pb2

Shape = tuple[str, Sequence[int]]


def set_shape(proto: hlo_pb2.ShapeProto, shape: Shape, space: int = 0) -> None:
    proto.element_type = getattr(hlo_pb2.PrimitiveType, shape[0])
    proto.dimensions.extend(shape[1])
    proto.layout.minor_to_major.extend(reversed(range(len(shape[1]))))
    proto.layout.memory_space = space


class Module:
    """A module that is written one instruction after the other."""

    def __init__(self) -> None:
        self.proto = hlo_pb2.HloModuleProto(name="m")
        self._ids = 0
        self._current = self.computation("main")

    def computation(self, name: str) -> hlo_pb2.HloComputationProto:
        self._current = self.proto.computations.add(name=name, id=len(self.proto.computations) + 1)
        return self._current

    def resume(self, computation: hlo_pb2.HloComputationProto) -> None:
        self._current = computation

    def add(self, opcode: str, shape: Shape, *operands: int, space: int = 0, **fields: Any) -> int:
        self._ids += 1
        one = self._current.instructions.add(
            id=self._ids, name=f"i{self._ids}", opcode=opcode, operand_ids=operands, **fields
        )
        set_shape(one.shape, shape, space)
        self._current.root_id = self._ids
        return self._ids

    def last(self) -> hlo_pb2.HloInstructionProto:
        return self._current.instructions[-1]

    def cost(self, number: int) -> InstructionCost:
        program = Program(1, hlo_pb2.HloProto(hlo_module=self.proto))
        instruction = program.instruction(f"i{number}")
        assert instruction is not None
        return instruction_cost(instruction)


KIB = ("F32", (1024,))


def with_main(*shapes: Shape) -> tuple[Module, list[int]]:
    module = Module()
    return module, [module.add("parameter", shape) for shape in shapes]


@pytest.mark.case("W19")
@pytest.mark.parametrize(
    ("opcode", "flops"), [("add", 3072), ("exponential", 88064), ("tanh", 190 * 1024)]
)
def test_elementwise_operations_count_their_weight_per_element(opcode: str, flops: int) -> None:
    module, (a,) = with_main(KIB)
    cost = module.cost(module.add(opcode, KIB, a))
    assert cost == InstructionCost(flops, flops, 8192, 4096, 4096)


def test_a_product_counts_two_flops_for_every_pair() -> None:
    module, (a, b) = with_main(("F32", (8, 32)), ("F32", (32, 16)))
    numbers = hlo_pb2.DotDimensionNumbers(lhs_contracting_dimensions=[1])
    cost = module.cost(module.add("dot", ("F32", (8, 16)), a, b, dot_dimension_numbers=numbers))
    assert cost.model_flops == 2 * 8 * 16 * 32
    assert cost.read_bytes == 4 * (8 * 32 + 32 * 16)
    assert cost.written_bytes == 4 * 8 * 16


def test_narrow_operands_halve_and_quarter_the_flops() -> None:
    found = {}
    for kind in ("S8", "S4", "BF16", "PRED"):
        module, (a, b) = with_main((kind, (8, 32)), (kind, (32, 16)))
        numbers = hlo_pb2.DotDimensionNumbers(lhs_contracting_dimensions=[1])
        cost = module.cost(module.add("dot", ("F32", (8, 16)), a, b, dot_dimension_numbers=numbers))
        assert cost.model_flops == 8192
        found[kind] = cost.flops
    assert found == {"S8": 4096, "S4": 2048, "BF16": 8192, "PRED": 8192}


@pytest.mark.parametrize(("size", "flops"), [(32, 6 * 64), (33, 400 * 66)])
def test_concatenating_along_rows_that_are_not_aligned_is_dear(size: int, flops: int) -> None:
    module, (a, b) = with_main(("F32", (1, size)), ("F32", (1, size)))
    cost = module.cost(module.add("concatenate", ("F32", (1, 2 * size)), a, b, dimensions=[1]))
    assert cost.model_flops == flops


def reducer(module: Module) -> int:
    main = module.proto.computations[0]
    computation = module.computation("sum")
    one, other = (module.add("parameter", ("F32", ())) for _ in range(2))
    module.add("add", ("F32", ()), one, other)
    module.resume(main)
    return computation.id


@pytest.mark.case("W19")
def test_a_window_of_six_adds_five_times_per_result() -> None:
    module, (a, zero) = with_main(("F32", (32, 64)), ("F32", ()))
    of_sum = reducer(module)
    number = module.add(
        "reduce-window", ("F32", (31, 62)), a, zero, called_computation_ids=[of_sum]
    )
    for size in (2, 3):
        module.last().window.dimensions.add(size=size, stride=1, window_dilation=1, base_dilation=1)
    assert module.cost(number).model_flops == 28830


def test_a_reduction_reads_its_start_value_once_per_result() -> None:
    module, (a, zero) = with_main(("F32", (8, 16)), ("F32", ()))
    of_sum = reducer(module)
    number = module.add("reduce", ("F32", (8,)), a, zero, called_computation_ids=[of_sum])
    cost = module.cost(number)
    assert cost.model_flops == 3 * (128 - 8)
    assert cost.bytes_accessed == 512 + 32 + 32


@pytest.mark.case("W19")
def test_sorting_takes_its_logarithm() -> None:
    module, (a,) = with_main(("F32", (2048,)))
    assert module.cost(module.add("sort", ("F32", (2048,)), a)).model_flops == 22528


def test_slices_touch_only_their_part() -> None:
    module, (a, at) = with_main(KIB, ("S32", ()))
    part = module.cost(module.add("dynamic-slice", ("F32", (16,)), a, at))
    assert (part.bytes_accessed, part.read_bytes, part.written_bytes) == (2 * 64 + 4, 64 + 4, 64)
    module, (a, update, at) = with_main(KIB, ("F32", (16,)), ("S32", ()))
    update_cost = module.cost(module.add("dynamic-update-slice", KIB, a, update, at))
    assert update_cost.bytes_accessed == 2 * 64 + 4
    assert update_cost.written_bytes == 64


def test_other_memories_do_not_count_as_device_memory() -> None:
    module = Module()
    a = module.add("parameter", KIB, space=5)
    cost = module.cost(module.add("add", KIB, a, a))
    assert (cost.bytes_accessed, cost.read_bytes, cost.written_bytes) == (3 * 4096, 0, 4096)


def fused(module: Module, operand: int) -> int:
    """A fusion of exp(broadcast(parameter)), whose operand is one element per row."""
    main = module.proto.computations[0]
    computation = module.computation("fused")
    parameter = module.add("parameter", ("F32", (8,)))
    small = module.add("exponential", ("F32", (8,)), parameter)
    wide = module.add("broadcast", ("F32", (8, 4)), small, dimensions=[0])
    module.add("add", ("F32", (8, 4)), wide, wide)
    module.resume(main)
    return module.add(
        "fusion",
        ("F32", (8, 4)),
        operand,
        fusion_kind="kLoop",
        called_computation_ids=[computation.id],
    )


def test_a_fusion_reads_its_edge_and_evaluates_what_is_used() -> None:
    module, (a,) = with_main(("F32", (8,)))
    cost = module.cost(fused(module, a))
    # The sum for 32 elements; the exponential, behind a broadcast, once for each of its 8.
    assert cost.model_flops == 3 * 32 + 86 * 8
    assert (cost.read_bytes, cost.written_bytes, cost.bytes_accessed) == (32, 128, 160)


def test_matrix_products_of_the_library_are_read_from_their_configuration() -> None:
    module, (a, b) = with_main(("BF16", (8, 32)), ("BF16", (32, 16)))
    config = {
        "gemm_backend_config": {"dot_dimension_numbers": {"lhs_contracting_dimensions": ["1"]}}
    }
    number = module.add(
        "custom-call",
        ("BF16", (8, 16)),
        a,
        b,
        custom_call_target="__cublas$lt$matmul",
        backend_config=json.dumps(config).encode(),
    )
    assert module.cost(number).model_flops == 8192


@pytest.mark.case("2.O31", "2.O32", "2.O33")
@pytest.mark.parametrize(
    ("rows", "inner", "columns", "element_type", "result", "scalars", "counted"),
    [
        (65536, 32800, 32, "F16", "F16", 0, 1.0),
        (65536, 32800, 32, "S8", "S32", 0, 0.5),
        (2048, 5120, 5120, "F8E4M3FN", "BF16", 2, 0.5),
    ],
)
def test_narrow_library_products_count_for_less(
    rows: int,
    inner: int,
    columns: int,
    element_type: str,
    result: str,
    scalars: int,
    counted: float,
) -> None:
    scales: list[Shape] = [("F32", ())] * scalars
    module, operands = with_main(
        (element_type, (rows, inner)), (element_type, (inner, columns)), *scales
    )
    numbers = {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["0"]}
    number = module.add(
        "custom-call",
        (result, (rows, columns)),
        *operands,
        custom_call_target="__cublas$lt$matmul",
        backend_config=json.dumps(
            {"gemm_backend_config": {"dot_dimension_numbers": numbers}}
        ).encode(),
    )
    cost = module.cost(number)
    assert cost.model_flops == pytest.approx(2 * rows * inner * columns, rel=1e-6)
    assert cost.flops == pytest.approx(counted * cost.model_flops, rel=1e-6)


@pytest.mark.case("2.O34")
@pytest.mark.parametrize("target", ["mine", "__cublas$lt$matmul"])
def test_a_custom_call_without_operands_is_unknown(target: str) -> None:
    module, _ = with_main()
    number = module.add("custom-call", KIB, custom_call_target=target)
    assert module.cost(number).flops == 0


def test_an_unreadable_configuration_makes_the_whole_program_unknown() -> None:
    module, (a, b) = with_main(KIB, KIB)
    add = module.add("add", KIB, a, b)
    module.add(
        "custom-call",
        KIB,
        add,
        b,
        custom_call_target="__cublas$lt$matmul",
        backend_config=b"no JSON",
    )
    assert module.cost(add) == InstructionCost()


def test_a_reduction_whose_computation_has_no_root_makes_the_whole_program_unknown() -> None:
    module, (a, b) = with_main(KIB, KIB)
    main = module.proto.computations[0]
    broken = module.computation("sum")
    module.add("parameter", ("F32", ()))
    broken.root_id = 99
    module.resume(main)
    add = module.add("add", KIB, a, b)
    module.add("all-reduce", KIB, add, called_computation_ids=[broken.id])
    assert module.cost(add) == InstructionCost()


def test_other_custom_calls_are_unknown() -> None:
    module, (a,) = with_main(KIB)
    number = module.add("custom-call", KIB, a, custom_call_target="mine")
    assert module.cost(number) == InstructionCost()


def test_a_padded_convolution_counts_only_elements_of_the_input() -> None:
    module, (image, kernel) = with_main(("F32", (2, 5, 3)), ("F32", (3, 3, 7)))
    numbers = hlo_pb2.ConvolutionDimensionNumbers(
        input_batch_dimension=0,
        input_spatial_dimensions=[1],
        input_feature_dimension=2,
        kernel_spatial_dimensions=[0],
        kernel_input_feature_dimension=1,
        kernel_output_feature_dimension=2,
        output_batch_dimension=0,
        output_spatial_dimensions=[1],
        output_feature_dimension=2,
    )
    number = module.add(
        "convolution",
        ("F32", (2, 5, 7)),
        image,
        kernel,
        convolution_dimension_numbers=numbers,
        feature_group_count=1,
        batch_group_count=1,
    )
    module.last().window.dimensions.add(
        size=3, stride=1, padding_low=1, padding_high=1, window_dilation=1, base_dilation=1
    )
    # Of 15 pairs of window and result position, the first and the last fall on padding.
    assert module.cost(number).model_flops == 2 * 3 * 7 * 2 * 13


def test_collectives_move_parts_of_every_device() -> None:
    module, (a,) = with_main(("F32", (64,)))
    number = module.add("all-gather", ("F32", (256,)), a, dimensions=[0])
    module.last().iota_collective_device_list.num_devices_per_group = 4
    # Four parts of 256 bytes: seven read, four written.
    assert module.cost(number).bytes_accessed == 256 * 7 + 256 * 4


def with_callee(opcode: str, *, bodies: int = 1) -> tuple[Module, int]:
    """A caller of computations that add up 8 numbers, the second one also takes their tangent."""
    module, (a,) = with_main(("F32", (8,)))
    ids = []
    for number in range(bodies):
        main = module.proto.computations[0]
        computation = module.computation(f"body{number}")
        inner = module.add("parameter", ("F32", (8,)))
        for _ in range(number + 1):
            inner = module.add("add", ("F32", (8,)), inner, inner)
        module.resume(main)
        ids.append(computation.id)
    module.proto.entry_computation_id = 1
    return module, module.add(opcode, ("F32", (8,)), a, called_computation_ids=ids)


def test_a_call_costs_what_it_calls_operand_by_operand() -> None:
    module, number = with_callee("call")
    # One sum of 8 elements: two operands of 32 bytes, of which the call has only the first.
    assert module.cost(number) == InstructionCost(24, 24, 96, 32, 32)


def test_a_loop_costs_one_iteration_of_both_parts() -> None:
    module, number = with_callee("while", bodies=2)
    assert module.cost(number).model_flops == 24 + 48


def test_a_conditional_costs_its_dearest_branch() -> None:
    module, number = with_callee("conditional", bodies=2)
    cost = module.cost(number)
    assert (cost.model_flops, cost.bytes_accessed) == (48, 192)


def test_unknown_calls_count_one_less_in_sums() -> None:
    module, (a,) = with_main(KIB)
    main = module.proto.computations[0]
    computation = module.computation("body")
    inner = module.add("parameter", KIB)
    module.add("custom-call", KIB, module.add("add", KIB, inner, inner), custom_call_target="x")
    module.resume(main)
    number = module.add("call", KIB, a, called_computation_ids=[computation.id])
    module.proto.entry_computation_id = 1
    cost = module.cost(number)
    assert (cost.model_flops, cost.bytes_accessed) == (3 * 1024 - 1, 3 * 4096 - 1)


def test_comparators_of_sorts_cost_nothing_by_themselves() -> None:
    module, (a,) = with_main(("F32", (2048,)))
    compare = reducer(module)
    inside = module.proto.computations[1].instructions[-1].name
    number = module.add("sort", ("F32", (2048,)), a, called_computation_ids=[compare])
    module.proto.entry_computation_id = 1
    assert module.cost(number).model_flops == 22528
    assert module.cost(int(inside.removeprefix("i"))) == InstructionCost()


def test_a_scatter_reads_only_what_it_updates() -> None:
    module, (a, at, update) = with_main(KIB, ("S32", (4,)), ("F32", (4,)))
    of_sum = reducer(module)
    number = module.add("scatter", KIB, a, at, update, called_computation_ids=[of_sum])
    cost = module.cost(number)
    assert (cost.model_flops, cost.bytes_accessed) == (12, 3 * 16 + 16)
    assert (cost.read_bytes, cost.written_bytes) == (16 + 16 + 16, 16)


def test_running_sums_of_one_column_are_a_plain_window() -> None:
    module, (a, zero) = with_main(("F32", (3, 1)), ("F32", ()))
    of_sum = reducer(module)
    number = module.add("reduce-window", ("F32", (3, 1)), a, zero, called_computation_ids=[of_sum])
    for size, pad in ((3, 2), (1, 0)):
        module.last().window.dimensions.add(
            size=size, stride=1, padding_low=pad, window_dilation=1, base_dilation=1
        )
    assert module.cost(number).model_flops == 3 * 2 * 3


@pytest.mark.parametrize(("is_result", "read"), [(True, 0), (False, 4032)])
def test_an_update_in_place_reads_nothing_of_the_rest(is_result: bool, read: int) -> None:
    module, (a, update, at) = with_main(KIB, ("F32", (16,)), ("S32", ()))
    main = module.proto.computations[0]
    computation = module.computation("fused")
    inner = [module.add("parameter", shape) for shape in (KIB, ("F32", (16,)), ("S32", ()))]
    for number, one in enumerate(computation.instructions):
        one.parameter_number = number
    updated = module.add("dynamic-update-slice", KIB, *inner)
    if not is_result:
        module.add("reverse", KIB, updated, dimensions=[0])
    module.resume(main)
    number = module.add(
        "fusion", KIB, a, update, at, fusion_kind="kLoop", called_computation_ids=[computation.id]
    )
    assert module.cost(number).read_bytes == read + 64 + 4


@pytest.mark.parametrize(
    ("opcode", "operands", "result", "fields", "flops"),
    [
        ("fft", [("F32", (8, 64))], ("C64", (8, 33)), {"fft_length": [64]}, 8 * 6 * 512),
        ("triangular-solve", [("F32", (16, 16)), ("F32", (16, 4))], ("F32", (16, 4)), {}, 2048),
        ("cholesky", [("F32", (16, 16))], ("F32", (16, 16)), {}, 16 * 256 // 3),
        ("concatenate", [KIB, KIB], ("F32", (2048,)), {"dimensions": [0]}, 6 * 2048),
        ("power", [KIB, KIB], KIB, {}, 925 * 1024),
        ("divide", [("S32", (8,)), ("S32", (8,))], ("S32", (8,)), {}, 306 * 8),
        ("convert", [KIB], ("BF16", (1024,)), {}, 3 * 1024),
        ("broadcast", [("F32", ())], KIB, {}, 0),
        ("copy", [KIB], KIB, {}, 0),
        ("iota", [], ("S32", (8,)), {}, 0),
    ],
)
def test_flops_of_single_opcodes(
    opcode: str, operands: list[Shape], result: Shape, fields: dict[str, Any], flops: int
) -> None:
    module, ids = with_main(*operands)
    assert module.cost(module.add(opcode, result, *ids, **fields)).model_flops == flops


def test_a_ragged_product_counts_rows_of_the_result_once() -> None:
    module, ids = with_main(("F32", (12, 8)), ("F32", (3, 8, 5)), ("S32", (3,)))
    numbers = hlo_pb2.RaggedDotDimensionNumbers(
        dot_dimension_numbers=hlo_pb2.DotDimensionNumbers(lhs_contracting_dimensions=[1]),
        rhs_group_dimensions=[0],
    )
    number = module.add("ragged-dot", ("F32", (12, 5)), *ids, ragged_dot_dimension_numbers=numbers)
    # The first dimension of the result is left out, as XLA does it.
    assert module.cost(number).model_flops == 2 * 5 * 8


def test_select_and_scatter_selects_and_adds() -> None:
    module, (a, source, zero) = with_main(("F32", (8, 8)), ("F32", (4, 4)), ("F32", ()))
    select, scatter = reducer(module), reducer(module)
    number = module.add(
        "select-and-scatter",
        ("F32", (8, 8)),
        *(a, source, zero),
        called_computation_ids=[select, scatter],
    )
    for _ in range(2):
        module.last().window.dimensions.add(size=2, stride=2, window_dilation=1, base_dilation=1)
    assert module.cost(number).model_flops == 3 * 16 * 3 + 3 * 16
