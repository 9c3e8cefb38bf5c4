"""The scopes that ranges of a tracer's call stack form."""

from collections.abc import Mapping
from typing import Final

from podscope_analyzers.xspace import XSpace

_PLANE: Final = "/host:__ScopeRangeCallStack__"
_MAX_DEPTH: Final = 1000


def scope_parents(space: XSpace) -> dict[int, int]:
    """The id of the range around each range of the call stack."""
    plane = space.plane(_PLANE)
    if plane is None:
        return {}
    return {key: value for key, value in plane.stats_by_id.items() if isinstance(value, int)}


def scope_stack(scope: int, parents: Mapping[int, int]) -> list[int]:
    """A range and those around it, outermost first; a circle is followed once."""
    stack = [scope]
    seen = {scope}
    while len(stack) < _MAX_DEPTH:
        parent = parents.get(stack[-1])
        if parent is None or parent in seen:
            break
        seen.add(parent)
        stack.append(parent)
    return stack[::-1]
