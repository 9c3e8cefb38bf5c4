"""What a capture lost on its way: dropped events, caps, truncated traces, missing hosts.

Tracers say so in three ways: a stat of the plane that counts what was dropped, a sentence among
the errors or warnings of the XSpace, or, on TPUs, nothing at all while one core has fewer steps
than its neighbours.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, Protocol

from podscope_analyzers.planes import STEPS, is_tensor_core
from podscope_analyzers.result import Loss, Scope
from podscope_analyzers.xspace import XSpace
from podscope_analyzers.xspace.metadata import StatValue

EVENTS_DROPPED: Final = "events_dropped"
TRACE_TRUNCATED: Final = "trace_truncated"
STEPS_NOT_TRACED: Final = "steps_not_traced"
ALLOCATIONS_NOT_KEPT: Final = "allocations_not_kept"
HOST_MISSING: Final = "host_missing"
UNKNOWN_COUNT: Final = 0
"""A tracer that says that it lost something, and not how much."""

MAX_LOSSES: Final = 1000
"""Of one host; a hostile file may have a sentence of its own for every event."""
_MAX_MESSAGE: Final = 4096

# What only some tools' numbers rest on.
_TOUCHES_ONLY: Final[Mapping[str, frozenset[str]]] = {
    ALLOCATIONS_NOT_KEPT: frozenset({"memory_profile"}),
}
_THINGS: Final = (
    r"(?:(?:activity|api|callback|cupti|device|driver|gpu|host|kernel|python|trace|traceme|tpu)\s+)*"
    r"(?:events?|records?|activities|traces?|spans?|samples?|kernels?|buffers?)"
)
_LOST: Final = r"(?:dropped|lost|discarded|overwritten|not\s+(?:recorded|collected))"
# "12 events dropped because of the limit", "dropped 12 device events".
# These take longer to compile than a capture without messages takes to look through: the module
# ``re`` does so at the first message, and keeps them.
_COUNTED: Final = (
    rf"\b([0-9][0-9,]*)\s+{_THINGS}\s+(?:(?:was|were|have\s+been)\s+)?{_LOST}",
    rf"\b{_LOST}:?\s+([0-9][0-9,]*)\s+{_THINGS}",
)
_UNCOUNTED: Final = (
    rf"\b{_THINGS}\s+(?:(?:was|were|have\s+been|may\s+be|are|being)\s+)*{_LOST}"
    rf"|\b{_LOST}\s+(?:some\s+)?{_THINGS}"
)
_TRUNCATED: Final = (
    r"truncat|buffers?\s+(?:is|was|were|are)?\s*(?:full|exhausted)|buffer\s+overflow"
    r"|exceed\w*\s+(?:the\s+)?\S*\s*(?:limit|maximum|size)|too\s+many\s+events|ran\s+out\s+of\s+buffer"
)
# `dropped_traces` of TPU planes; `drop_remainder` of tf.data is something else.
_DROP_STAT: Final = re.compile(r"(?:^|[_ ])(?:dropped|lost|discarded)(?:[_ ]|$)", re.I)
_MAX_COUNT: Final = (1 << 63) - 1


class _Host(Protocol):
    @property
    def left_out(self) -> int: ...


def host_losses(space: XSpace, host: str, allocations: _Host) -> tuple[Loss, ...]:
    """What one host's capture lost, each thing once.

    Args:
        space: The host's XSpace.
        host: Its name in the capture.
        allocations: What was read of its allocators.
    """
    found: list[Loss] = []
    for plane in space.planes:
        found += _of_plane_stats(host, plane.name, plane.stats)
    for message in islice(dict.fromkeys((*space.errors, *space.warnings)), MAX_LOSSES):
        # Longer ones are no sentences, and may be made to take forever.
        found += _of_message(host, message[:_MAX_MESSAGE])
    found += _of_steps(host, space)
    if allocations.left_out:
        found.append(Loss(host, "/host:CPU", ALLOCATIONS_NOT_KEPT, allocations.left_out))
    return tuple(dict.fromkeys(found[:MAX_LOSSES]))


def result_losses(
    tool: str, own: Iterable[Loss], captured: Iterable[Loss], scope: Scope
) -> tuple[Loss, ...]:
    """The losses that touch one tool's result.

    Args:
        tool: Its name.
        own: What the tool itself left out.
        captured: What the hosts lost.
        scope: Says which hosts are missing.
    """
    touching = [loss for loss in captured if tool in _TOUCHES_ONLY.get(loss.kind, (tool,))]
    missing = [Loss(missing.host, "", HOST_MISSING, 1) for missing in scope.missing_hosts]
    return tuple(dict.fromkeys((*touching, *own, *missing)))


def _of_plane_stats(host: str, plane: str, stats: Mapping[str, StatValue]) -> list[Loss]:
    return [
        Loss(host, plane, EVENTS_DROPPED, min(int(value), _MAX_COUNT))
        for name, value in stats.items()
        if _DROP_STAT.search(name) and isinstance(value, int | float) and 0 < value < float("inf")
    ]


def _of_message(host: str, message: str) -> list[Loss]:
    counts = [
        min(int(number.replace(",", "")[:19]), _MAX_COUNT)
        for pattern in _COUNTED
        for number in re.findall(pattern, message, re.IGNORECASE)
    ]
    if counts:
        # A tracer may say that it dropped nothing.
        total = min(sum(counts), _MAX_COUNT)
        return [Loss(host, "", EVENTS_DROPPED, total)] if total else []
    if re.search(_UNCOUNTED, message, re.IGNORECASE):
        return [Loss(host, "", EVENTS_DROPPED, UNKNOWN_COUNT)]
    if re.search(_TRUNCATED, message, re.IGNORECASE):
        return [Loss(host, "", TRACE_TRUNCATED, UNKNOWN_COUNT)]
    return []


def _of_steps(host: str, space: XSpace) -> list[Loss]:
    """TensorCores that recorded fewer steps than the others of their host.

    They run one program in lock step; a capture's begin and end may cut one step each.
    """
    counts = {
        plane.name: sum(line.event_count for line in plane.lines if line.name == STEPS)
        for plane in space.planes
        if is_tensor_core(plane.name)
    }
    recorded = [count for count in counts.values() if count]
    most = max(recorded, default=0)
    return [
        Loss(host, plane, STEPS_NOT_TRACED, most - count)
        for plane, count in counts.items()
        if 0 < count < most - 1
    ]
