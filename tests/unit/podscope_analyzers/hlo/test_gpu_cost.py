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
