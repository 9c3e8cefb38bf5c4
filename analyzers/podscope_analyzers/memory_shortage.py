"""Memory that ran out, or nearly: what was asked for, what there was, what to make smaller."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np

from podscope_analyzers.allocations import Allocations, FailedAllocation
from podscope_analyzers.allocator_profile import BEFORE, STACK, Active, AllocatorProfile
from podscope_analyzers.out_of_memory import read_message, tells_of_no_memory

NEARLY_FULL_RATIO: Final = 0.95
"""Of the capacity: from here on a little more of anything fails."""
_ADVISED_ROWS: Final = 5

Kind = Literal["failed_allocation", "reported", "nearly_full"]


@dataclass(frozen=True)
class Shortage:
    """A request that could not be served, or an allocator with hardly anything left.

    Attributes:
        allocator: Empty where nothing says it.
        start_ps: From the capture's base; None where only a message tells of it.
        requested_bytes: None where nothing says it, as are the others.
        profile: Of the allocator; None where it recorded nothing.
        place: Its last event by then; None without a profile.
    """

    kind: Kind
    allocator: str
    start_ps: int | None
    requested_bytes: int | None
    free_bytes: int | None
    used_bytes: int | None
    cached_bytes: int
    capacity_bytes: int | None
    op_name: str
    message: str
    profile: AllocatorProfile | None
    place: int | None

    @cached_property
    def in_use(self) -> Sequence[Active]:
        """What was in use then, the largest first."""
        if self.profile is None or self.place is None:
            return ()
        return self.profile.breakdown_at(self.place)

    @property
    def is_fragmented(self) -> bool:
        """Whether there was enough, but not in one piece."""
        if self.requested_bytes is None or self.free_bytes is None:
            return False
        return self.kind != "nearly_full" and self.requested_bytes <= (
            self.free_bytes + self.cached_bytes
        )

    @property
    def missing_bytes(self) -> int | None:
        """What would have had to be free besides; for a program that is too large, what exceeds."""
        if self.requested_bytes is not None and self.free_bytes is not None:
            return max(self.requested_bytes - self.free_bytes, 0)
        if self.used_bytes is not None and self.capacity_bytes is not None:
            return max(self.used_bytes - self.capacity_bytes, 0) or None
        return None


def shortages(
    events: Allocations, profiles: Sequence[AllocatorProfile], messages: Iterable[str]
) -> list[Shortage]:
    """What ran out: recorded failures in time order, then reports, then what is nearly full."""
    by_name = {profile.name: profile for profile in profiles}
    recorded = sorted(events.failures, key=lambda one: one.start_ps)
    found = [_recorded(one, by_name) for one in recorded]
    known = {one.message for one in found}
    found += [
        _reported(text, -1, by_name)
        for text in messages
        if text not in known and tells_of_no_memory(text)
    ]
    if not found:
        found = [_nearly_full(profile) for profile in profiles if _is_nearly_full(profile)]
    return found


def _recorded(one: FailedAllocation, by_name: dict[str, AllocatorProfile]) -> Shortage:
    if one.message:
        return _reported(one.message, one.start_ps, by_name)
    profile = by_name.get(one.allocator)
    place = _place(profile, one.start_ps)
    capacity = one.used_bytes + one.free_bytes if one.free_bytes > 0 else None
    return Shortage(
        kind="failed_allocation",
        allocator=one.allocator,
        start_ps=one.start_ps,
        requested_bytes=one.requested_bytes or None,
        free_bytes=one.free_bytes if one.free_bytes >= 0 else None,
        used_bytes=one.used_bytes or _used(profile, place),
        cached_bytes=one.cached_bytes,
        capacity_bytes=capacity or (profile.known_capacity_bytes if profile else None),
        op_name=one.op_name,
        message="",
        profile=profile,
        place=place,
    )


def _reported(text: str, start_ps: int, by_name: dict[str, AllocatorProfile]) -> Shortage:
    said = read_message(text)
    profile = by_name.get(said.allocator) or max(by_name.values(), key=_fill, default=None)
    place = _place(profile, start_ps)
    row = int(profile.rows[place]) if profile and place is not None else None
    free = said.free_bytes
    if free is None and row is not None and profile and profile.is_free_known:
        free = profile.number("free_bytes", row)
    return Shortage(
        kind="reported",
        allocator=said.allocator or (profile.name if profile else ""),
        start_ps=start_ps if start_ps >= 0 else None,
        requested_bytes=said.requested_bytes,
        free_bytes=free,
        used_bytes=said.used_bytes if said.used_bytes is not None else _used(profile, place),
        cached_bytes=profile.number("cached_bytes", row) if profile and row is not None else 0,
        capacity_bytes=said.capacity_bytes or (profile.known_capacity_bytes if profile else None),
        op_name="",
        message=said.text,
        profile=profile,
        place=place,
    )


def _nearly_full(profile: AllocatorProfile) -> Shortage:
    place = profile.peak_place
    row = profile.peak_row
    return Shortage(
        kind="nearly_full",
        allocator=profile.name,
        start_ps=profile.peak_time_ps,
        requested_bytes=None,
        free_bytes=profile.number("free_bytes", row),
        used_bytes=profile.peak_bytes,
        cached_bytes=profile.number("cached_bytes", row),
        capacity_bytes=profile.capacity_bytes,
        op_name=profile.described(place)[0],
        message="",
        profile=profile,
        place=place,
    )


def _is_nearly_full(profile: AllocatorProfile) -> bool:
    return profile.is_free_known and _fill(profile) >= NEARLY_FULL_RATIO


def _fill(profile: AllocatorProfile) -> float:
    return profile.peak_bytes / profile.capacity_bytes if profile.capacity_bytes else 0.0


def _place(profile: AllocatorProfile | None, start_ps: int) -> int | None:
    """The allocator's last event by then; its peak when there is no time."""
    if profile is None:
        return None
    if start_ps < 0:
        return profile.peak_place
    before = int(np.searchsorted(profile.time_ps, start_ps, side="right"))
    return max(before - 1, 0)


def _used(profile: AllocatorProfile | None, place: int | None) -> int | None:
    return int(profile.used_bytes[place]) if profile and place is not None else None


def advice_for(shortage: Shortage) -> list[str]:
    """What to do, the most effective first; every sentence once."""
    found = []
    if _asks_for_too_much(shortage):
        asked_by = f" ({shortage.op_name})" if shortage.op_name else ""
        found.append(
            f"What was asked for{asked_by} is more than all the memory, or all that was in use: "
            "make that array smaller, or spread it over devices, before anything else."
        )
    if shortage.is_fragmented:
        found.append(
            "Enough is free, but not in one piece: allocate large buffers once and early, keep "
            "shapes constant, or let the allocator grow its pieces (PyTorch: "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; TensorFlow: "
            "TF_GPU_ALLOCATOR=cuda_malloc_async)."
        )
    found += [_advice_of(one) for one in shortage.in_use[:_ADVISED_ROWS]]
    if not shortage.in_use:
        found.append(
            "The capture does not show what was in use: look at memory_viewer for what the program "
            "needs, and capture with host_tracer_level 2 from before the failure."
        )
    return list(dict.fromkeys(found))


def _asks_for_too_much(shortage: Shortage) -> bool:
    """Whether nothing that is in use could be freed for it."""
    limit = shortage.capacity_bytes or shortage.used_bytes
    return bool(limit and shortage.requested_bytes and shortage.requested_bytes > limit)


def _advice_of(one: Active) -> str:
    names = f"{one.op_name} {one.region_type}".lower()
    if one.op_name == BEFORE:
        return (
            "What was there before the capture is mostly parameters and optimizer state: spread "
            "them over more devices (FSDP, ZeRO), keep optimizer state in 16 bits, or begin the "
            "capture earlier to see who made it."
        )
    if one.op_name == STACK:
        return (
            "The stack is what compiled programs reserve for themselves: memory_viewer shows which "
            "buffers; fewer are needed with a smaller batch or with rematerialisation."
        )
    if any(word in names for word in ("activation", "jvp", "forward", "temp", "autograd")):
        return (
            "Temporary values of the forward pass go away with rematerialisation (jax.checkpoint, "
            "torch.utils.checkpoint), and shrink with a smaller or split batch."
        )
    if any(word in names for word in ("gradient", "transpose", "backward", "optimizer")):
        return (
            "Gradients and optimizer state shrink when they are spread over devices or kept in "
            "16 bits; donated arguments (donate_argnums) are not kept twice."
        )
    return (
        "The largest buffers are by operation and shape in to_shrink: a smaller batch, shorter "
        "sequences or 16-bit types make them smaller."
    )
