"""The peak of one allocator: when it was, and what made it up."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.allocations import Allocations, Array

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
        """Of the allocator, used or not."""
        return self.peak_bytes + self.number("free_bytes", self.peak_row)

    @cached_property
    def freed(self) -> Int64s:
        """The allocation that every deallocation undoes, -1 without one; shape (n,), places.

        Of two allocations of an address without a deallocation between them, the first counts.
        """
        found = np.full(len(self.rows), -1, np.int64)
        live: dict[int, int] = {}
        addresses = self.events.columns["address"][self.rows].tolist()
        is_allocation = self.events.columns["is_allocation"][self.rows].tolist()
        for place, address in enumerate(addresses):
            if is_allocation[place]:
                live.setdefault(address, place)
            else:
                found[place] = live.pop(address, -1)
        return found

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
        found = [self._active(place) for place in live.values()]
        found += _special(unmapped - freed, UNUSED, "persist/dynamic")
        found += _special(self.number("stack_bytes", self.peak_row), STACK, STACK)
        return _merged(found)

    def _active(self, place: int) -> Active:
        row = int(self.rows[place])
        sizes = (self.number("allocation_bytes", row), self.number("requested_bytes", row))
        return Active(place, *sizes, *self.described(place))

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
