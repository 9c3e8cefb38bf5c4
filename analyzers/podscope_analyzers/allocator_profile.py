"""The peak of one allocator: when it was, and what made it up."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.allocations import Allocations, Array

BEFORE: Final = "allocated before the capture"
_SIZES: Final = ("allocation_bytes", "requested_bytes")
_TEXTS: Final = ("op_name", "region_type", "data_type", "shape")
UNUSED: Final = "unused preallocated device memory"
STACK: Final = "stack"
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Active:
    """Equal allocations that were live at the peak.

    Attributes:
        row: One of them among the allocator's events in time order; None for memory of no event.
        address: Of that one.
        occurrences: How many.
    """

    row: int | None
    allocation_bytes: int
    requested_bytes: int
    op_name: str
    region_type: str
    data_type: str
    shape: str
    occurrences: int = 1

    @property
    def total_bytes(self) -> int:
        """Of all of them."""
        return self.allocation_bytes * self.occurrences

    @property
    def key(self) -> tuple[int, int, str, str, str, str]:
        """What equal ones have in common, in the order of the table: the largest first."""
        texts = (self.op_name, self.region_type, self.data_type, self.shape)
        return (-self.allocation_bytes, -self.requested_bytes, *texts)


class AllocatorProfile:
    """An allocator's events in time order, and its peak.

    Args:
        events: Of the host.
        name: The allocator's.
        time: The column of ``Allocations`` that is the time.

    Attributes:
        rows: Of the allocator in ``events``, in time order; events of one time as recorded.
        time_ps: Of these rows.
        used_bytes: Stack and heap at these rows.
        step: The step of each; what is between two steps belongs to the later one.
        peak_row: The row of ``events`` at which most was in use; of equals the last recorded.
        peak_bytes: What was in use then.
        lifetime_peak_bytes: What the last recorded event says of the time since the start.
    """

    def __init__(self, events: Allocations, name: str, time: str) -> None:
        self.events = events
        self.name = name
        recorded = events.rows_of(name)
        used = events.columns["stack_bytes"] + events.columns["heap_bytes"]
        own = used[recorded]
        self.peak_row = int(recorded[len(own) - 1 - int(np.argmax(own[::-1]))])
        self.peak_bytes = int(used[self.peak_row])
        self.peak_time_ps = int(events.columns[time][self.peak_row])
        self.lifetime_peak_bytes = int(events.columns["lifetime_peak_bytes"][recorded[-1]])
        self.rows: Int64s = recorded[np.argsort(events.columns[time][recorded], kind="stable")]
        self.time_ps: Int64s = events.columns[time][self.rows]
        self.used_bytes: Int64s = used[self.rows]
        self.step = _filled_steps(events.columns["step"][self.rows])

    def number(self, column: str, row: int) -> int:
        """A number of one of ``events``."""
        return int(self.events.columns[column][row])

    @property
    def capacity_bytes(self) -> int:
        """Of the allocator, used or not; what is used alone where nothing says what is free."""
        return self.peak_bytes + self.number("free_bytes", self.peak_row)

    @cached_property
    def is_free_known(self) -> bool:
        """Whether the trace tells what is free at all: an allocator may not know it."""
        return bool(self.events.columns["free_bytes"][self.rows].any())

    @property
    def known_capacity_bytes(self) -> int | None:
        """The capacity; None where nothing says what is free."""
        return self.capacity_bytes if self.is_free_known else None

    @cached_property
    def _by_address(self) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Places ordered by address, then time; and which of them begin an address."""
        addresses = self.events.columns["address"][self.rows]
        order = np.argsort(addresses, kind="stable")
        ordered = addresses[order]
        return order, np.concatenate([np.ones(1, np.bool_), ordered[1:] != ordered[:-1]])

    @cached_property
    def freed(self) -> Int64s:
        """The allocation that every deallocation undoes, -1 without one; shape (n,), places.

        Of two allocations of an address without a deallocation between them, the first counts.
        """
        order, begins = self._by_address
        is_allocation = self.events.columns["is_allocation"][self.rows][order]
        # A stretch runs from one deallocation of an address to the next: its first event is the
        # allocation that the last one undoes.
        ends_before = np.concatenate([np.zeros(1, np.bool_), ~is_allocation[:-1]])
        at = np.arange(len(order))
        first = np.maximum.accumulate(np.where(begins | ends_before, at, 0))
        matched = np.flatnonzero(~is_allocation & (first < at))
        found = np.full(len(order), -1, np.int64)
        found[order[matched]] = order[first[matched]]
        return found

    @cached_property
    def ends(self) -> Int64s:
        """Where the memory of every event has another use or none: the address's next event.

        Shape (n,), places; n where there is none.
        """
        order, begins = self._by_address
        following = np.append(order[1:], len(order))
        following[np.append(begins[1:], True)] = len(order)
        found = np.empty(len(order), np.int64)
        found[order] = following
        return found

    def live_at(self, place: int) -> Int64s:
        """Recorded allocations in use after an event; shape (m,), places."""
        is_allocation = self.events.columns["is_allocation"][self.rows[: place + 1]]
        return np.flatnonzero(is_allocation & (self.ends[: place + 1] > place))

    def breakdown_at(self, place: int) -> Sequence[Active]:
        """What is in use after an event, the largest first, equal ones together.

        What was allocated before the capture is one row, and so is the stack.
        """
        row = int(self.rows[place])
        live = self.live_at(place)
        sizes = self.events.columns["allocation_bytes"][self.rows[live]]
        before = self.number("heap_bytes", row) - int(sizes.sum())
        found, _ = self.grouped(live)
        found += _special(before, BEFORE, "")
        found += _special(self.number("stack_bytes", row), STACK, STACK)
        return sorted(found, key=lambda one: (-one.total_bytes, *one.key))

    def grouped(self, places: Int64s) -> tuple[list[Active], Int64s]:
        """Equal allocations together, and which group every place is in; the first names it."""
        columns, rows = self.events.columns, self.rows[places]
        if not len(rows):
            return [], np.zeros(0, np.int64)
        keys = np.stack([columns[name][rows] for name in (*_SIZES, *_TEXTS)])
        _, first, group, counts = np.unique(
            keys, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        found = [
            self.allocation(int(places[at]), occurrences=count)
            for at, count in zip(first.tolist(), counts.tolist(), strict=True)
        ]
        return found, group.reshape(-1)

    @property
    def peak_place(self) -> int:
        """Where most was in use, in time order."""
        return int(np.flatnonzero(self.rows == self.peak_row)[0])

    def described(self, place: int) -> tuple[str, str, str, str]:
        """Operation, region, data type and shape; a deallocation has its allocation's."""
        freed = int(self.freed[place])
        row = int(self.rows[freed if freed >= 0 else place])
        events = self.events
        return (
            events.text("op_name", row),
            events.text("region_type", row),
            events.text("data_type", row),
            events.text("shape", row),
        )

    @property
    def peak_step(self) -> int:
        """The step of the last event at which as much was in use."""
        at = np.flatnonzero(self.used_bytes == self.peak_bytes)
        return int(self.step[at[-1]]) if len(at) else 0

    def active(self) -> Sequence[Active]:
        """What was live at the peak, the largest first, equal ones together.

        Memory that was in use before the peak's step, or before the capture, is in one row of
        its own, and so is the stack.
        """
        columns = self.events.columns
        inside = np.flatnonzero((self.time_ps <= self.peak_time_ps) & (self.step == self.peak_step))
        rows = self.rows[inside]
        sizes = columns["allocation_bytes"][rows].tolist()
        addresses = columns["address"][rows].tolist()
        live: dict[int, int] = {}
        unmapped = self.number("heap_bytes", self.peak_row)
        freed = 0
        for i, is_allocation in enumerate(columns["is_allocation"][rows].tolist()):
            if is_allocation:
                live[addresses[i]] = int(inside[i])
                unmapped -= sizes[i]
            else:
                if live.pop(addresses[i], None) is None:
                    freed += sizes[i]
                unmapped += sizes[i]
        found = [self.allocation(place) for place in live.values()]
        found += _special(unmapped - freed, UNUSED, "persist/dynamic")
        found += _special(self.number("stack_bytes", self.peak_row), STACK, STACK)
        return _merged(found)

    def allocation(self, place: int, *, occurrences: int = 1) -> Active:
        """An allocation as a row of its own, or as one of equal ones."""
        row = int(self.rows[place])
        sizes = (self.number("allocation_bytes", row), self.number("requested_bytes", row))
        return Active(place, *sizes, *self.described(place), occurrences)

    def sample(self, limit: int) -> Int64s:
        """Places of at most ``limit`` events: of every few neighbours the one with most in use."""
        count = len(self.rows)
        if count <= limit:
            return np.arange(count)
        width = count // limit
        narrow = limit * (width + 1) - count
        bounds = np.concatenate(
            [np.arange(narrow) * width, narrow * width + np.arange(limit - narrow) * (width + 1)]
        )
        ends = np.append(bounds[1:], count)
        return np.array(
            [b + int(np.argmax(self.used_bytes[b:e])) for b, e in zip(bounds, ends, strict=True)],
            np.int64,
        )


def _filled_steps(step: Array) -> Int64s:
    last = np.maximum.accumulate(np.where(step != -1, np.arange(len(step)), -1))
    before = np.where(last >= 0, step[np.maximum(last, 0)], -1)
    return np.where(step != -1, step, before + 1)


def _special(size_bytes: int, name: str, region: str) -> list[Active]:
    if size_bytes <= 0:
        return []
    return [Active(None, size_bytes, size_bytes, name, region, "INVALID", "unknown")]


def _merged(found: list[Active]) -> list[Active]:
    merged: list[Active] = []
    for one in sorted(found, key=lambda active: active.key):
        if merged and merged[-1].key == one.key:
            count = merged[-1].occurrences + 1
            merged[-1] = Active(**{**vars(merged[-1]), "occurrences": count})
        else:
            merged.append(one)
    return merged
