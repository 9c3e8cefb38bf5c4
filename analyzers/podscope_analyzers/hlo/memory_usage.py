"""What a program needs of one memory space: its peak, what makes it up, what lives for ever."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from podscope_analyzers.hlo.buffers import Allocation, Buffer, BufferAssignment
from podscope_analyzers.hlo.heap_walk import HeapWalk, walk_heap
from podscope_analyzers.hlo.programs import Program

HBM: Final = 0
VMEM: Final = 1
_VMEM_IN_CONFIG: Final = "1"


@dataclass(frozen=True)
class PeakBuffer:
    """A buffer in use at the peak.

    Attributes:
        buffer: None for all those together that are too small to be named.
        size_bytes: With padding.
        category: What its allocation is for.
    """

    buffer: Buffer | None
    size_bytes: int
    unpadded_bytes: int
    category: str


class Block(NamedTuple):
    """A rectangle of the allocations' picture: addresses by events.

    Attributes:
        buffer: None for the allocation as a whole.
        allocation: Index of the allocation.
        offset_bytes: Allocations are stacked on each other.
        begin: First event.
        end: Last event.
    """

    buffer: Buffer | None
    allocation: int
    category: str
    offset_bytes: int
    size_bytes: int
    begin: int
    end: int


@dataclass(frozen=True)
class ScopedVmem:
    """The most vector memory that one instruction reserves for itself.

    Attributes:
        instruction: Empty when none does.
    """

    size_bytes: int = 0
    instruction: str = ""


class MemoryUsage:
    """A program in one memory space.

    Args:
        color: The memory space; 0 is the device's main memory.
        small_buffer_bytes: Buffers below it are one entry together.

    Raises:
        ProgramError: the program's buffers or its heap trace contradict themselves.
    """

    def __init__(self, program: Program, color: int, small_buffer_bytes: int) -> None:
        self.program = program
        self.color = color
        self.small_buffer_bytes = small_buffer_bytes
        self.assignment = BufferAssignment(program)
        self.allocations = self.assignment.of_color(color)
        self.walk: HeapWalk = walk_heap(self.assignment, color)

    @property
    def indefinite(self) -> list[Allocation]:
        """Allocations that outlive the program's run."""
        return [one for one in self.allocations if one.is_indefinite]

    @cached_property
    def _picked(self) -> list[tuple[Allocation, Buffer]]:
        """The largest buffer of every indefinite allocation."""
        found = []
        for one in self.indefinite:
            largest = max(
                (buffer for buffer, _ in one.assigned), key=lambda b: b.size_bytes, default=None
            )
            if largest is not None and largest.size_bytes > 0:
                found.append((one, largest))
        return found

    @property
    def indefinite_bytes(self) -> int:
        """What is in use all the time, and adds to every point of the heap."""
        return sum(one.proto.size for one, _ in self._picked)

    @property
    def peak_bytes(self) -> int:
        """The most in use at once."""
        return self.walk.peak_bytes + self.indefinite_bytes

    @property
    def peak_unpadded_bytes(self) -> int:
        """Without padding; that of the indefinite buffers stays in, as the reference has it."""
        return self.walk.peak_unpadded_bytes + self.indefinite_bytes

    @cached_property
    def live_at_peak(self) -> Sequence[tuple[Buffer, str]]:
        """Every buffer in use at the peak with its category: first what always is."""
        always = [buffer for _, buffer in self._picked] if self.color == HBM else []
        live = [self.assignment.buffers[one] for one in self.walk.peak_buffers]
        allocations = self.assignment.allocations
        return [(one, allocations[one.allocation].category) for one in [*always, *live]]

    @cached_property
    def peak_buffers(self) -> Sequence[PeakBuffer]:
        """What is in use at the peak: first what always is, then in order of allocation."""
        found, small = [], 0
        for buffer, category in self.live_at_peak:
            if buffer.size_bytes < self.small_buffer_bytes:
                small += buffer.size_bytes
            else:
                found.append(PeakBuffer(buffer, buffer.size_bytes, buffer.unpadded_bytes, category))
        if small:
            found.append(PeakBuffer(None, small, 0, ""))
        return found

    @property
    def by_size(self) -> list[int]:
        """Places of the peak's buffers, the largest first."""
        buffers = self.peak_buffers
        return sorted(range(len(buffers)), key=lambda i: -buffers[i].size_bytes)

    def total_bytes(self) -> int:
        """All allocations that threads share."""
        return sum(one.proto.size for one in self.allocations if not one.proto.is_thread_local)

    def indefinite_total_bytes(self) -> int:
        """All indefinite allocations that threads share."""
        return sum(one.proto.size for one in self.indefinite if not one.proto.is_thread_local)

    def parameter_bytes(self) -> int:
        """Allocations of the entry computation's parameters."""
        return sum(
            one.proto.size for one in self.allocations if one.proto.is_entry_computation_parameter
        )

    def live_out_bytes(self) -> int:
        """Allocations of results."""
        return sum(one.proto.size for one in self.allocations if one.proto.maybe_live_out)

    def non_reusable_bytes(self) -> int:
        """Allocations that serve one buffer alone: of threads, and of tuples' tables."""
        return sum(one.proto.size for one in self.allocations if not one.is_reusable)

    @cached_property
    def scoped_vmem(self) -> ScopedVmem:
        """The largest reservation of an instruction; only in vector memory."""
        most = ScopedVmem()
        if self.color != VMEM:
            return most
        for instruction in self.program.by_id.values():
            for size in _scoped_sizes(instruction.backend_config):
                if size > most.size_bytes:
                    most = ScopedVmem(size, instruction.name)
        return most

    @cached_property
    def blocks(self) -> Sequence[Block]:
        """Every allocation that the heap trace laid out, and what lies in it when."""
        traced = [
            one for one in self.allocations if not one.is_indefinite and one.trace is not None
        ]
        total = sum(one.proto.size for one in traced)
        traces = self.assignment.traces
        end = max(
            (len(traces[one.trace].events) for one in traced if one.trace is not None), default=0
        )
        if not total or not end:
            return []
        found = []
        base = 0
        for one in traced:
            index, category = one.proto.index, one.category
            found.append(Block(None, index, category, base, one.proto.size, 0, end))
            for buffer, _ in one.assigned:
                span = self.walk.spans.get(buffer.id)
                if span is not None:
                    offset = base + buffer.offset_bytes
                    size = buffer.size_bytes
                    found.append(Block(buffer, index, category, offset, size, *span))
            base += one.proto.size
        return found


def _scoped_sizes(config: bytes) -> Iterator[int]:
    """Sizes of the vector memory that an instruction's backend configuration names."""
    if b"used_scoped_memory_configs" not in config:
        return
    try:
        parsed: Any = json.loads(config)
    except (ValueError, RecursionError):
        return
    listed = parsed.get("used_scoped_memory_configs") if isinstance(parsed, Mapping) else None
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, Mapping) and str(one.get("memory_space")) == _VMEM_IN_CONFIG:
            size = str(one.get("size", ""))
            if size.isascii() and size.isdecimal() and len(size) < 19:
                yield int(size)
