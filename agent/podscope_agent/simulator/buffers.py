"""Buffer assignment of the simulated program, with the heap trace that led to it."""

from dataclasses import dataclass, field

from podscope_agent.simulator.program import Program
from podscope_protos.v1 import hlo_pb2

_ALIGNMENT = 1024
_FREE_OPCODES = {
    "get-tuple-element", "tuple", "parameter", "constant", "after-all", "while", "send-done",
    "recv-done"}  # fmt: skip


@dataclass
class _Heap:
    """First-fit allocation of buffers that live and die in one region."""

    live: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0

    def allocate(self, size: int) -> int:
        offset = 0
        for start, end in sorted(self.live):
            if start - offset >= size:
                break
            offset = max(offset, end)
        self.live.append((offset, offset + size))
        self.size = max(self.size, offset + size)
        return offset

    def free(self, offset: int, size: int) -> None:
        self.live.remove((offset, offset + size))


class _Assignment:
    def __init__(self, program: Program) -> None:
        self.proto = hlo_pb2.BufferAssignmentProto()
        self._element_bytes = program.element_bytes

    def size_bytes(self, shape: hlo_pb2.ShapeProto) -> int:
        """Bytes of an array, padded as the allocator pads; tuples are tables of pointers."""
        if shape.element_type == hlo_pb2.TUPLE:
            return 8 * len(shape.tuple_shapes)
        if shape.element_type == hlo_pb2.TOKEN:
            return 0
        size = 4 if shape.element_type in (hlo_pb2.S32, hlo_pb2.U32) else self._element_bytes
        for dim in shape.dimensions:
            size *= dim
        return size

    def define(self, instruction: hlo_pb2.HloInstructionProto, index: tuple[int, ...] = ()) -> int:
        """A new logical buffer; its id."""
        shape = instruction.shape.tuple_shapes[index[0]] if index else instruction.shape
        number = len(self.proto.logical_buffers) + 1
        self.proto.logical_buffers.add(
            id=number,
            size=self.size_bytes(shape),
            defined_at=hlo_pb2.LogicalBufferProto.Location(
                instruction_id=instruction.id, shape_index=index
            ),
        )
        return number

    def allocate(self, size: int) -> hlo_pb2.BufferAllocationProto:
        """A new allocation."""
        return self.proto.buffer_allocations.add(
            index=len(self.proto.buffer_allocations), size=size
        )

    def assign(
        self, allocation: hlo_pb2.BufferAllocationProto, buffer: int, offset: int = 0
    ) -> None:
        """Place a logical buffer into an allocation."""
        size = self.proto.logical_buffers[buffer - 1].size
        allocation.assigned.add(logical_buffer_id=buffer, offset=offset, size=size)


def assign_buffers(
    program: Program, entry: hlo_pb2.HloComputationProto, body: hlo_pb2.HloComputationProto
) -> hlo_pb2.BufferAssignmentProto:
    """Allocations of the program.

    Parameters and results have an allocation each; the gradient sums of the loop reuse those of
    their accumulators; everything else shares one heap, whose trace is recorded.
    """
    assignment = _Assignment(program)
    accumulators: dict[str, hlo_pb2.BufferAllocationProto] = {}
    outputs = {op.name for op in program.updates}
    for instruction in entry.instructions:
        if instruction.opcode == "parameter":
            buffer = assignment.define(instruction)
            allocation = assignment.allocate(assignment.size_bytes(instruction.shape))
            allocation.is_entry_computation_parameter = True
            allocation.parameter_number = instruction.parameter_number
            assignment.assign(allocation, buffer)
            if instruction.name.startswith("accumulator."):
                accumulators[instruction.name.removeprefix("accumulator.")] = allocation
        elif instruction.opcode == "constant":
            allocation = assignment.allocate(4)
            allocation.is_constant = True
            assignment.assign(allocation, assignment.define(instruction))
        elif instruction.name in outputs or instruction.id == entry.root_id:
            allocation = assignment.allocate(assignment.size_bytes(instruction.shape))
            allocation.maybe_live_out = True
            allocation.is_tuple = instruction.opcode == "tuple"
            assignment.assign(allocation, assignment.define(instruction))
    sums = {
        op.name: op.operands[2].removeprefix("state.g")
        for op in program.body
        if op.kind == "matmul_add"
    }
    schedule = []
    for instruction in entry.instructions:
        if instruction.opcode == "while":
            schedule += [(body, inner) for inner in body.instructions]
        schedule.append((entry, instruction))
    last_use = _last_uses([instruction for _, instruction in schedule])
    heap, trace = _Heap(), hlo_pb2.HeapSimulatorTrace(whole_module_simulation=True)
    heap_allocation = assignment.allocate(0)
    placed: dict[int, list[tuple[int, int, int]]] = {}
    for position, (computation, instruction) in enumerate(schedule):
        if instruction.name in sums:
            assignment.assign(accumulators[sums[instruction.name]], assignment.define(instruction))
        elif instruction.opcode not in _FREE_OPCODES and instruction.name not in outputs:
            indices: list[tuple[int, ...]] = [()]
            if instruction.shape.element_type == hlo_pb2.TUPLE:
                indices = [
                    (i,)
                    for i, part in enumerate(instruction.shape.tuple_shapes)
                    if part.element_type != hlo_pb2.TOKEN
                ]
            if instruction.opcode == "copy-start":
                indices = [(2,)]
            elif instruction.opcode == "send":
                # What it sends stays where it is.
                indices = [(1,)]
            for index in indices:
                buffer = assignment.define(instruction, index)
                size = -(-assignment.proto.logical_buffers[buffer - 1].size // _ALIGNMENT)
                offset = heap.allocate(size * _ALIGNMENT)
                assignment.assign(heap_allocation, buffer, offset)
                placed.setdefault(instruction.id, []).append((buffer, offset, size * _ALIGNMENT))
                _record(
                    trace, hlo_pb2.HeapSimulatorTrace.Event.ALLOC, buffer, computation, instruction
                )
        for dying in last_use.get(position, ()):
            for buffer, offset, size in placed.pop(dying, ()):
                heap.free(offset, size)
                _record(
                    trace, hlo_pb2.HeapSimulatorTrace.Event.FREE, buffer, computation, instruction
                )
    heap_allocation.size = heap.size
    trace.buffer_allocation_index = heap_allocation.index
    assignment.proto.heap_simulator_traces.append(trace)
    return assignment.proto


def _record(
    trace: hlo_pb2.HeapSimulatorTrace,
    kind: "hlo_pb2.HeapSimulatorTrace.Event.Kind",
    buffer: int,
    computation: hlo_pb2.HloComputationProto,
    instruction: hlo_pb2.HloInstructionProto,
) -> None:
    trace.events.add(
        kind=kind,
        buffer_id=buffer,
        computation_name=computation.name,
        instruction_name=instruction.name,
    )


def _last_uses(schedule: list[hlo_pb2.HloInstructionProto]) -> dict[int, list[int]]:
    """Position in the schedule -> instructions whose values die there.

    Values seen through a tuple or one of its elements are still uses of what is inside.
    """
    inside: dict[int, set[int]] = {}
    last: dict[int, int] = {}
    for position, instruction in enumerate(schedule):
        seen: set[int] = set()
        for operand in instruction.operand_ids:
            seen |= inside.get(operand, {operand})
        for value in seen:
            last[value] = position
        if instruction.opcode in {"get-tuple-element", "tuple", "while", "recv-done"}:
            inside[instruction.id] = seen
        else:
            inside[instruction.id] = {instruction.id}
        last[instruction.id] = position
    dying: dict[int, list[int]] = {}
    for value, position in last.items():
        dying.setdefault(position, []).append(value)
    return dying
