"""The buffers that XLA assigned to memory: allocations, and the logical buffers within them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final

from podscope_analyzers.errors import ProgramError
from podscope_analyzers.hlo.programs import Program
from podscope_analyzers.hlo.shapes import POINTER_BYTES, bit_width, is_tuple
from podscope_analyzers.hlo.text.shape_text import shape_text
from podscope_protos.v1 import hlo_pb2

_TYPE: Final = hlo_pb2.PrimitiveType


@dataclass(frozen=True)
class BufferSource:
    """Where in the program's text a buffer's instruction is from.

    Attributes:
        stack: One ``file:line:column`` per line, innermost first.
    """

    file: str
    line: int
    stack: str


class ShapeSize:
    """What is asked of a shape again and again: a program has few shapes and many buffers.

    Attributes:
        unpadded_bytes: What it would take without tiling.
    """

    def __init__(self, shape: hlo_pb2.ShapeProto) -> None:
        self._shape = shape
        self.unpadded_bytes = unpadded_bytes(shape)

    @cached_property
    def text(self) -> str:
        """The shape with layout."""
        return shape_text(self._shape)


@dataclass(frozen=True)
class Buffer:
    """One logical buffer within an allocation.

    Attributes:
        id: As the assignment numbers it.
        size_bytes: With padding.
        offset_bytes: From its allocation's start.
        allocation: Its allocation's place among ``BufferAssignment.allocations``.
        color: Memory space.
        shape_index: Which part of the instruction's result it holds; empty for all of it.
        shape: Of that part.
    """

    id: int
    size_bytes: int
    offset_bytes: int
    allocation: int
    color: int
    shape_index: tuple[int, ...]
    shape: ShapeSize
    instruction: hlo_pb2.HloInstructionProto
    program: Program

    @property
    def name(self) -> str:
        """The instruction's name, with the shape index if there is one."""
        index = f"{{{','.join(map(str, self.shape_index))}}}" if self.shape_index else ""
        return self.instruction.name + index

    @property
    def op_name(self) -> str:
        """The framework's operation."""
        return self.instruction.metadata.op_name

    @property
    def shape_text(self) -> str:
        """Its shape with layout."""
        return self.shape.text

    @property
    def unpadded_bytes(self) -> int:
        """What it would take without tiling."""
        return self.shape.unpadded_bytes

    @property
    def source(self) -> BufferSource | None:
        """Where it is from; None when no file is known."""
        metadata = self.instruction.metadata
        file, line, stack = self.program.caller(metadata.stack_frame_id)
        if metadata.source_file:
            return BufferSource(metadata.source_file, metadata.source_line, stack)
        return BufferSource(file, line, stack) if file else None


@dataclass(frozen=True)
class Allocation:
    """One allocation of memory.

    Attributes:
        proto: As serialised.
        trace: The heap trace that laid it out; None without one.
        assigned: Its buffers and their sizes within it.
    """

    proto: hlo_pb2.BufferAllocationProto
    trace: int | None
    assigned: Sequence[tuple[Buffer, int]]

    @property
    def is_indefinite(self) -> bool:
        """Whether it outlives the program: a parameter, an output, or a constant."""
        proto = self.proto
        return proto.is_entry_computation_parameter or proto.is_constant or proto.maybe_live_out

    @property
    def is_reusable(self) -> bool:
        """Whether its memory may serve several buffers."""
        return not (self.proto.is_thread_local or self.proto.is_tuple)

    @property
    def category(self) -> str:
        """What it is for, in one word."""
        proto = self.proto
        if proto.is_entry_computation_parameter:
            return "Parameter"
        if proto.maybe_live_out:
            return "Output"
        if proto.is_thread_local:
            return "Thread-local"
        return "Constant" if proto.is_constant else "Temporary"


class BufferAssignment:
    """A program's buffer assignment.

    Attributes:
        allocations: In the assignment's order.
        buffers: Logical buffers by id; of an id in two allocations, the later.
        traces: The heap simulator's traces.

    Raises:
        ProgramError: a logical buffer belongs to an instruction that the program does not have.
    """

    def __init__(self, program: Program) -> None:
        proto = program.proto.buffer_assignment
        self.program = program
        self.traces = proto.heap_simulator_traces
        logical = {buffer.id: buffer for buffer in proto.logical_buffers}
        for buffer in logical.values():
            if buffer.defined_at.instruction_id not in program.by_id:
                msg = (
                    f"{program.title}: buffer {buffer.id} belongs to instruction "
                    f"{buffer.defined_at.instruction_id}, which the program does not have"
                )
                raise ProgramError(msg)
        self.buffers: dict[int, Buffer] = {}
        self._shapes: dict[bytes, ShapeSize] = {}
        listed = [
            [
                (self._buffer(logical[one.logical_buffer_id], one.offset, place), one.size)
                for one in allocation.assigned
                if one.logical_buffer_id in logical
            ]
            for place, allocation in enumerate(proto.buffer_allocations)
        ]
        links = self._trace_links()
        self.allocations = [
            Allocation(allocation, links.get(place), listed[place])
            for place, allocation in enumerate(proto.buffer_allocations)
        ]

    def _buffer(self, proto: hlo_pb2.LogicalBufferProto, offset: int, place: int) -> Buffer:
        instruction = self.program.by_id[proto.defined_at.instruction_id]
        index = tuple(proto.defined_at.shape_index)
        buffer = self.buffers[proto.id] = Buffer(
            id=proto.id,
            size_bytes=proto.size,
            offset_bytes=offset,
            allocation=place,
            color=proto.color,
            shape_index=index,
            shape=self._shape(_part(instruction.shape, index)),
            instruction=instruction,
            program=self.program,
        )
        return buffer

    def _shape(self, proto: hlo_pb2.ShapeProto) -> ShapeSize:
        key = proto.SerializeToString()
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = ShapeSize(proto)
        return known

    def _trace_links(self) -> Mapping[int, int]:
        """Trace of every allocation that a trace's first event touches; the last trace wins."""
        links = {}
        for number, trace in enumerate(self.traces):
            first = self.buffers.get(trace.events[0].buffer_id) if trace.events else None
            if first is not None:
                links[first.allocation] = number
        return links

    def of_color(self, color: int) -> list[Allocation]:
        """The allocations in a memory space."""
        return [one for one in self.allocations if one.proto.color == color]

    @property
    def colors(self) -> list[int]:
        """The memory spaces in which something is allocated, in order."""
        return sorted({one.proto.color for one in self.allocations})

    def trace_of(self, color: int) -> int | None:
        """The heap trace that shows a memory space.

        That of its first allocation that ends with the program; else the one with most events on
        its buffers.
        """
        for one in self.of_color(color):
            if not one.is_indefinite and one.trace is not None:
                return one.trace
        counts = [self._events_in(trace.events, color) for trace in self.traces]
        most = max(counts, default=0)
        return counts.index(most) if most else None

    def _events_in(self, events: Iterable[hlo_pb2.HeapSimulatorTrace.Event], color: int) -> int:
        found = (self.buffers.get(event.buffer_id) for event in events)
        return sum(1 for buffer in found if buffer is not None and buffer.color == color)


def _part(shape: hlo_pb2.ShapeProto, index: tuple[int, ...]) -> hlo_pb2.ShapeProto:
    """The element of a tuple that an index's last number names; the whole shape without one."""
    if index and 0 <= index[-1] < len(shape.tuple_shapes):
        return shape.tuple_shapes[index[-1]]
    return shape


def unpadded_bytes(shape: hlo_pb2.ShapeProto) -> int:
    """Bytes of a shape in the plain row-major layout; of a tuple, its table of pointers.

    Elements that the layout packs stay packed: only the order and the tiles are left out.
    """
    if is_tuple(shape):
        return POINTER_BYTES * len(shape.tuple_shapes)
    if shape.element_type == _TYPE.OPAQUE_TYPE:
        return POINTER_BYTES
    if shape.element_type == _TYPE.BUFFER:
        return unpadded_bytes(shape.tuple_shapes[0]) if shape.tuple_shapes else 0
    bits = bit_width(shape.element_type)
    if packed := shape.layout.element_size_in_bits if bits else 0:
        return -(-prod(shape.dimensions) * packed // 8)
    return prod(shape.dimensions) * max(1, bits // 8) if bits else 0
