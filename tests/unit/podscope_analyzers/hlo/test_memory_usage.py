"""Buffer assignments with known peaks, worked by hand."""

import json
from collections.abc import Sequence

import pytest

from podscope_analyzers.errors import ProgramError
from podscope_analyzers.hlo.buffers import unpadded_bytes
from podscope_analyzers.hlo.memory_usage import MemoryUsage
from podscope_analyzers.hlo.programs import Program
from podscope_analyzers.hlo.text.shape_text import shape_text
from podscope_protos.v1 import hlo_pb2

KIB = 1 << 10
MIB = 1 << 20
ALLOC, FREE, SHARE = 0, 1, 2
Event = tuple[int, ...]


def program(
    sizes: dict[int, int],
    allocations: Sequence[hlo_pb2.BufferAllocationProto],
    events: Sequence[Event] = (),
    *,
    color: int = 0,
    configs: dict[int, object] | None = None,
) -> Program:
    """Buffer n belongs to the instruction ``fusion.n``, a scalar of 8 bytes."""
    module = hlo_pb2.HloModuleProto(name="jit_f", entry_computation_name="main")
    computation = module.computations.add(name="main", id=1)
    for number in sizes:
        instruction = computation.instructions.add(
            name=f"fusion.{number}", id=number, opcode="fusion"
        )
        instruction.shape.element_type = hlo_pb2.U64
        if configs and number in configs:
            instruction.backend_config = json.dumps(configs[number]).encode()
    proto = hlo_pb2.HloProto(hlo_module=module)
    for number, size in sizes.items():
        buffer = proto.buffer_assignment.logical_buffers.add(id=number, size=size, color=color)
        buffer.defined_at.instruction_id = number
    proto.buffer_assignment.buffer_allocations.extend(allocations)
    if events:
        trace = proto.buffer_assignment.heap_simulator_traces.add()
        for kind, number, *shared in events:
            trace.events.add(
                kind=hlo_pb2.HeapSimulatorTrace.Event.Kind.ValueType(kind),
                buffer_id=number,
                instruction_name=f"fusion.{number}",
                share_with_canonical_id=shared[0] if shared else 0,
            )
    return Program(7, proto)


def allocation(
    index: int, size: int, buffers: dict[int, int], **flags: int
) -> hlo_pb2.BufferAllocationProto:
    """An allocation with its buffers at their offsets."""
    proto = hlo_pb2.BufferAllocationProto(index=index, size=size, color=flags.pop("color", 0))
    for flag, is_set in flags.items():
        setattr(proto, flag, bool(is_set))
    for number, offset in buffers.items():
        proto.assigned.add(logical_buffer_id=number, offset=offset, size=512 * KIB)
    return proto


def base(events: Sequence[Event]) -> Program:
    """One MiB for buffers 1 and 2, and a constant of one MiB."""
    return program(
        {1: 512 * KIB, 2: 512 * KIB, 3: MIB},
        [
            allocation(0, MIB, {1: 0, 2: 512 * KIB}),
            allocation(1, MIB, {3: 0}, is_constant=True),
        ],
        events,
    )


@pytest.mark.parametrize(
    "events",
    [
        [(ALLOC, 1), (SHARE, 2, 1), (FREE, 1), (FREE, 2)],
        [(ALLOC, 1), (FREE, 1), (SHARE, 2, 1), (FREE, 2)],
    ],
)
@pytest.mark.case("2.M1", "2.M2")
def test_shared_memory_counts_once(events: Sequence[Event]) -> None:
    usage = MemoryUsage(base(events), 0, 0)
    assert usage.peak_bytes == 3 * 512 * KIB
    assert usage.peak_unpadded_bytes == 8 + MIB
    assert (usage.total_bytes(), usage.indefinite_total_bytes()) == (2 * MIB, MIB)
    assert list(usage.walk.heap_bytes)[-1] == 0
    assert len(usage.walk.heap_bytes) == len(events) + 1


@pytest.mark.case("2.M9")
def test_memory_that_is_used_again_has_two_lives_in_the_picture() -> None:
    """As the released reference has it: the sharer has a block of its own."""
    usage = MemoryUsage(base([(ALLOC, 1), (FREE, 1), (SHARE, 2, 1), (FREE, 2)]), 0, 0)
    assert usage.walk.spans == {1: (0, 1), 2: (2, 3)}
    blocks = [
        (block.buffer.id if block.buffer else None, block.begin, block.end, block.size_bytes)
        for block in usage.blocks
    ]
    assert blocks == [(None, 0, 4, MIB), (1, 0, 1, 512 * KIB), (2, 2, 3, 512 * KIB)]


@pytest.mark.case("2.M3")
def test_a_chain_of_sharing_is_one_buffer() -> None:
    one = allocation(0, 3 * 512 * KIB, {1: 0, 2: 0, 3: 0})
    events = [(ALLOC, 1), (SHARE, 2, 1), (SHARE, 3, 2), (FREE, 1), (FREE, 2), (FREE, 3)]
    usage = MemoryUsage(program(dict.fromkeys((1, 2, 3), 512 * KIB), [one], events), 0, 0)
    assert usage.peak_bytes == 512 * KIB
    assert len(usage.peak_buffers) == 1


@pytest.mark.case("2.M4")
def test_the_peak_names_who_uses_the_memory_then() -> None:
    one = allocation(0, MIB, {1: 0, 2: 0, 3: 0, 4: 256 * KIB}, color=1)
    sizes = {1: 256 * KIB, 2: 256 * KIB, 3: 256 * KIB, 4: 512 * KIB}
    events = [
        (ALLOC, 1), (SHARE, 2, 1), (FREE, 1), (FREE, 2),
        (ALLOC, 4), (SHARE, 3, 2), (FREE, 3), (FREE, 4),
    ]  # fmt: skip
    usage = MemoryUsage(program(sizes, [one], events, color=1), 1, 0)
    assert usage.peak_bytes == 768 * KIB
    assert {one.buffer.name for one in usage.peak_buffers if one.buffer} == {"fusion.3", "fusion.4"}
    assert MemoryUsage(usage.program, 0, 0).peak_bytes == 0


def scoped(*entries: tuple[object, object]) -> object:
    listed = [{"memory_space": space, "size": size} for space, size in entries]
    return {"used_scoped_memory_configs": listed}


@pytest.mark.parametrize(
    ("configs", "color", "expected"),
    [
        ({1: scoped((1, MIB))}, 1, (MIB, "fusion.1")),
        ({1: scoped((1, MIB)), 2: scoped((1, 2 * MIB))}, 1, (2 * MIB, "fusion.2")),
        ({1: scoped(("1", str(MIB))), 2: scoped((1, MIB))}, 1, (MIB, "fusion.1")),
        ({1: scoped((0, MIB), (1, "x"), (1, -5))}, 1, (0, "")),
        ({1: {"used_scoped_memory_configs": 3}}, 1, (0, "")),
        ({}, 1, (0, "")),
        ({1: scoped((1, MIB))}, 0, (0, "")),
    ],
)
@pytest.mark.case("2.M5", "2.M6", "2.M7", "2.M8")
def test_scoped_vector_memory_is_the_largest_reservation(
    configs: dict[int, object], color: int, expected: tuple[int, str]
) -> None:
    found = MemoryUsage(program({1: 8, 2: 8}, [], configs=configs), color, 0).scoped_vmem
    assert (found.size_bytes, found.instruction) == expected


def test_small_buffers_are_one_entry_together() -> None:
    allocations = [
        allocation(0, 100, {1: 0}, maybe_live_out=True),
        allocation(1, 200, {2: 0}, is_entry_computation_parameter=True),
        allocation(2, MIB, {3: 0}, is_constant=True),
        allocation(3, 50, {4: 0}, is_thread_local=True),
    ]
    usage = MemoryUsage(program({1: 100, 2: 200, 3: MIB, 4: 50}, allocations), 0, 16384)
    assert [
        (one.buffer.id if one.buffer else None, one.size_bytes) for one in usage.peak_buffers
    ] == [
        (3, MIB),
        (None, 300),
    ]
    assert usage.total_bytes() == MIB + 300
    assert (usage.live_out_bytes(), usage.parameter_bytes()) == (100, 200)
    assert usage.non_reusable_bytes() == 50


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([(ALLOC, 1), (FREE, 1), (FREE, 1)], "Buffer 1 is freed multiple times"),
        ([(ALLOC, 1), (ALLOC, 3)], "single buffer allocation"),
        ([(SHARE, 1, 9)], "unknown buffer 9"),
        ([(SHARE, 1, 1)], "shares itself"),
        ([(ALLOC, 2), (SHARE, 1, 2), (SHARE, 2, 1)], "shares itself"),
    ],
)
def test_a_trace_that_contradicts_itself_is_refused(events: Sequence[Event], message: str) -> None:
    with pytest.raises(ProgramError, match=f"Failed to process heap simulator trace: .*{message}"):
        MemoryUsage(base(events), 0, 0)


def test_an_output_of_threads_own_is_indefinite_but_in_no_sum() -> None:
    one = allocation(0, MIB, {1: 0}, maybe_live_out=True, is_thread_local=True)
    usage = MemoryUsage(program({1: 512 * KIB}, [one]), 0, 0)
    assert [found.proto.index for found in usage.indefinite] == [0]
    assert (usage.indefinite_total_bytes(), usage.total_bytes()) == (0, 0)
    assert usage.non_reusable_bytes() == MIB


@pytest.mark.parametrize(
    ("element_type", "dimensions", "packed_bits", "expected"),
    [
        (hlo_pb2.F32, [2, 3], 0, 24),
        (hlo_pb2.S4, [7], 0, 7),
        (hlo_pb2.S4, [7], 4, 4),
        (hlo_pb2.PRED, [9], 1, 2),
        (hlo_pb2.OPAQUE_TYPE, [], 0, 8),
        (hlo_pb2.TOKEN, [], 0, 0),
    ],
)
def test_unpadded_sizes_keep_packed_elements_packed(
    element_type: "hlo_pb2.PrimitiveType", dimensions: list[int], packed_bits: int, expected: int
) -> None:
    shape = hlo_pb2.ShapeProto(element_type=element_type, dimensions=dimensions)
    shape.layout.tiles.add(dimensions=[8, 128])
    shape.layout.element_size_in_bits = packed_bits
    assert unpadded_bytes(shape) == expected
    pair = hlo_pb2.ShapeProto(element_type=hlo_pb2.TUPLE, tuple_shapes=[shape, shape])
    assert unpadded_bytes(pair) == 16


def test_a_buffer_of_an_unknown_instruction_is_refused() -> None:
    damaged = program({1: 8}, [allocation(0, 8, {1: 0})])
    damaged.proto.buffer_assignment.logical_buffers[0].defined_at.instruction_id = 99
    with pytest.raises(ProgramError, match="instruction 99"):
        MemoryUsage(damaged, 0, 0)


def test_shapes_are_written_as_xla_does() -> None:
    array = hlo_pb2.ShapeProto(element_type=hlo_pb2.F32, dimensions=[2, 3])
    assert shape_text(array) == "f32[2,3]"
    array.layout.minor_to_major.extend([1, 0])
    assert shape_text(array) == "f32[2,3]{1,0}"
    array.layout.tiles.add(dimensions=[8, 128])
    array.layout.tiles.add(dimensions=[2, 1])
    array.layout.memory_space = 5
    assert shape_text(array) == "f32[2,3]{1,0:T(8,128)(2,1)S(5)}"
    scalar = hlo_pb2.ShapeProto(element_type=hlo_pb2.U32)
    scalar.layout.SetInParent()
    assert shape_text(scalar) == "u32[]"
    scalar.layout.memory_space = 2
    assert shape_text(scalar) == "u32[]{:S(2)}"
    pair = hlo_pb2.ShapeProto(element_type=hlo_pb2.TUPLE, tuple_shapes=[scalar] * 6)
    assert shape_text(pair).endswith(", /*index=5*/u32[]{:S(2)})")
    bounded = hlo_pb2.ShapeProto(
        element_type=hlo_pb2.BF16, dimensions=[10, -(1 << 63)], is_dynamic_dimension=[True, False]
    )
    assert shape_text(bounded) == "bf16[<=10,?]"
