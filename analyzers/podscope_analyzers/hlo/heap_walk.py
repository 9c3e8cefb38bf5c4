"""The heap over a program's schedule, replayed from the trace of XLA's heap simulator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from podscope_analyzers.errors import ProgramError
from podscope_analyzers.hlo.buffers import Buffer, BufferAssignment
from podscope_protos.v1 import hlo_pb2

_Event = hlo_pb2.HeapSimulatorTrace.Event
_ALLOC: Final = _Event.ALLOC
_FREE: Final = _Event.FREE
_SHARE_WITH: Final = _Event.SHARE_WITH
# A trace that shares through so many buffers is no compiler's, and would take quadratic time.
_MAX_CHAIN: Final = 10_000


@dataclass(frozen=True)
class HeapWalk:
    """What the replay found.

    Attributes:
        heap_bytes: Before every event, and once more after the last; shape (n + 1,).
        unpadded_bytes: Likewise, without padding.
        instructions: Of every event, and an empty name.
        peak_bytes: The most that was in use at once.
        peak_unpadded_bytes: Without padding, at that moment.
        peak_position: The event that reached it.
        peak_buffers: What was live then, in the order of allocation; a buffer that others shared
            after it had been freed stands as the one that used its memory.
        spans: First and last event of every buffer that had memory of its own.
    """

    heap_bytes: Sequence[int] = ()
    unpadded_bytes: Sequence[int] = ()
    instructions: Sequence[str] = ()
    peak_bytes: int = 0
    peak_unpadded_bytes: int = 0
    peak_position: int = 0
    peak_buffers: Sequence[int] = ()
    spans: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def walk_heap(assignment: BufferAssignment, color: int) -> HeapWalk:
    """Replay the trace that shows a memory space; an empty walk when none does.

    Raises:
        ProgramError: the trace contradicts itself.
    """
    number = assignment.trace_of(color)
    if number is None:
        return HeapWalk()
    try:
        return _walk(assignment.buffers, assignment.traces[number].events)
    except ProgramError as error:
        msg = f"{assignment.program.title}: Failed to process heap simulator trace: {error}"
        raise ProgramError(msg) from error


def _walk(buffers: Mapping[int, Buffer], events: Sequence[_Event]) -> HeapWalk:
    replay = _Replay(buffers, len(events) - 1)
    heap, unpadded, instructions = [], [], []
    allocations = set()
    for position, event in enumerate(events):
        heap.append(replay.heap)
        unpadded.append(replay.unpadded)
        instructions.append(event.instruction_name)
        buffer = buffers.get(event.buffer_id)
        if buffer is not None:
            allocations.add(buffer.allocation)
            replay.apply(event, buffer, position)
    if len(allocations) != 1:
        msg = (
            "All heap simulation should work out of a single buffer allocation, "
            f"this one touches {len(allocations)}"
        )
        raise ProgramError(msg)
    peak_bytes, peak_unpadded_bytes, peak_position = replay.peak
    return HeapWalk(
        heap_bytes=[*heap, replay.heap],
        unpadded_bytes=[*unpadded, replay.unpadded],
        instructions=[*instructions, ""],
        peak_bytes=peak_bytes,
        peak_unpadded_bytes=peak_unpadded_bytes,
        peak_position=peak_position,
        peak_buffers=replay.live_after(peak_position) if peak_bytes else [],
        spans={one: (begin, end) for one, (begin, end) in replay.spans.items()},
    )


class _Change(NamedTuple):
    """A buffer's memory begins to be in use, under a name, or is in use no more."""

    position: int
    buffer_id: int
    shown_as: int | None


class _Replay:
    def __init__(self, buffers: Mapping[int, Buffer], last: int) -> None:
        self._buffers = buffers
        self._last = last
        self._changes: list[_Change] = []
        self._references: dict[int, int] = {}
        self._canonical: dict[int, int] = {}
        self.heap = 0
        self.unpadded = 0
        self.peak = (0, 0, 0)
        self.spans: dict[int, list[int]] = {}

    def apply(self, event: _Event, buffer: Buffer, position: int) -> None:
        kind = event.kind
        if kind == _SHARE_WITH:
            self._share(buffer, event.share_with_canonical_id, position)
            return
        root = self._root(buffer.id)
        if kind == _ALLOC:
            self._references[root] = self._references.get(root, 0) + 1
            self.spans[buffer.id] = [position, self._last]
            self._grow(buffer, buffer.id, position)
        elif kind == _FREE:
            left = self._references[root] = self._references.get(root, 0) - 1
            if left < 0:
                msg = f"Buffer {buffer.id} is freed multiple times"
                raise ProgramError(msg)
            if left == 0:
                self._shrink(self._buffers[root], position)
            if buffer.id in self.spans and buffer.id in self._canonical:
                self.spans[buffer.id][1] = position

    def live_after(self, position: int) -> list[int]:
        """What is live after an event, shared memory under the name of its latest user.

        From the changes, once: to copy the live buffers at every new peak is quadratic in a heap
        that grows in many small steps.
        """
        # In the order of allocation; what is allocated again stands there twice, and freeing
        # removes it everywhere.
        live: dict[int, list[int]] = {}
        shown_as: dict[int, int] = {}
        for place, change in enumerate(self._changes):
            if change.position > position:
                break
            if change.shown_as is None:
                live.pop(change.buffer_id, None)
            else:
                live.setdefault(change.buffer_id, []).append(place)
                if change.shown_as != change.buffer_id:
                    shown_as[change.buffer_id] = change.shown_as
        placed = sorted((place, one) for one, places in live.items() for place in places)
        return [shown_as.get(one, one) for _, one in placed]

    def _share(self, buffer: Buffer, canonical: int, position: int) -> None:
        if canonical not in self._buffers:
            msg = f"Buffer {buffer.id} shares the unknown buffer {canonical}"
            raise ProgramError(msg)
        root = self._root(canonical, never=buffer.id)
        self._canonical[buffer.id] = canonical
        count = self._references[root] = self._references.get(root, 0) + 1
        if count == 1:
            # The memory had been freed: the sharer gets it back, under its own name.
            self.spans[buffer.id] = [position, self._last]
            self._grow(self._buffers[root], buffer.id, position)

    def _root(self, buffer_id: int, *, never: int | None = None) -> int:
        root = buffer_id
        for _ in range(_MAX_CHAIN):
            if root == never:
                msg = f"Buffer {never} shares itself"
                raise ProgramError(msg)
            if root not in self._canonical:
                return root
            root = self._canonical[root]
        msg = f"Buffer {buffer_id} shares through more than {_MAX_CHAIN} others"
        raise ProgramError(msg)

    def _grow(self, buffer: Buffer, shown_as: int, position: int) -> None:
        self._changes.append(_Change(position, buffer.id, shown_as))
        self.heap += buffer.size_bytes
        self.unpadded += buffer.unpadded_bytes
        if self.heap > self.peak[0]:
            self.peak = (self.heap, self.unpadded, position)

    def _shrink(self, buffer: Buffer, position: int) -> None:
        self._changes.append(_Change(position, buffer.id, None))
        self.heap -= buffer.size_bytes
        self.unpadded -= buffer.unpadded_bytes
        if self.heap < 0:
            msg = f"the heap is smaller than nothing after buffer {buffer.id} is freed"
            raise ProgramError(msg)
        span = self.spans.get(buffer.id)
        if span is not None and span[1] == self._last:
            span[1] = position
