"""The walk over calls of input pipelines: who asked whom, and what each did itself."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels.compiled import kernel
from podscope_analyzers.kernels.spans import Int32s, Int64s

MAX_LEVEL: Final = 100
"""Calls deeper below their root are not looked at."""

MAX_VISITS: Final = 5_000_000
"""Events may share children, so that a hostile file has more paths than can be walked."""

_FIRST_ROOM: Final = 4096


@dataclass(frozen=True)
class Visits:
    """Calls in the order of the walk, all of shape (v,).

    Attributes:
        root: Index of the root call below which the call was met.
        node: The call.
        self_ps: Its duration less what its children overlap of it.
        is_blocking: Whether its root waited for it.
        is_complete: False when the walk was given up at ``MAX_VISITS``.
    """

    root: Int32s
    node: Int32s
    self_ps: Int64s
    is_blocking: NDArray[np.uint8]
    is_complete: bool


@kernel(
    "i8(i4[::1], i4[::1], i4[::1], i8[::1], i8[::1], u1[::1], i8, i8, i4[::1], i4[::1], i4[::1],"
    " u1[::1], i4[::1], i4[::1], i8[::1], u1[::1])",
)
def _walk(
    roots: Int32s,
    offsets: Int32s,
    children: Int32s,
    start: Int64s,
    end: Int64s,
    counts: NDArray[np.uint8],
    max_level: int,
    max_visits: int,
    stack_node: Int32s,
    stack_next: Int32s,
    stack_last: Int32s,
    stack_blocking: NDArray[np.uint8],
    out_root: Int32s,
    out_node: Int32s,
    out_self: Int64s,
    out_blocking: NDArray[np.uint8],
) -> int:
    visits = 0
    for r in range(roots.size):
        level = -1
        node = roots[r]
        blocking = 1
        while True:
            if node >= 0 and counts[node]:
                if visits >= max_visits:
                    return visits + 1
                own = end[node] - start[node]
                for c in range(offsets[node], offsets[node + 1]):
                    child = children[c]
                    overlap = min(end[node], end[child]) - max(start[node], start[child])
                    own -= max(overlap, 0)
                if visits < out_root.size:
                    out_root[visits] = r
                    out_node[visits] = node
                    out_self[visits] = own
                    out_blocking[visits] = blocking
                visits += 1
                if level < max_level:
                    level += 1
                    stack_node[level] = node
                    stack_next[level] = offsets[node]
                    stack_last[level] = offsets[node + 1]
                    stack_blocking[level] = blocking
            while level >= 0 and stack_next[level] >= stack_last[level]:
                level -= 1
            if level < 0:
                break
            parent = stack_node[level]
            node = children[stack_next[level]]
            stack_next[level] += 1
            overlap = min(end[parent], end[node]) - max(start[parent], start[node])
            blocking = 1 if stack_blocking[level] and overlap > 0 else 0
    return visits


def walk_iterators(
    roots: Int32s,
    offsets: Int32s,
    children: Int32s,
    start_ps: Int64s,
    end_ps: Int64s,
    has_id: NDArray[np.bool_],
    *,
    max_visits: int = MAX_VISITS,
) -> Visits:
    """Walk from every root down, parents first, children in their order.

    Args:
        roots: Nodes, shape (r,).
        offsets: Where each node's children begin, shape (n + 1,).
        children: Nodes, shape (offsets[-1],).
        start_ps: Shape (n,).
        end_ps: Shape (n,).
        has_id: Nodes that count; others, and what is below them, are passed over, shape (n,).
        max_visits: Where the walk is given up.
    """
    room = _FIRST_ROOM
    # Of the deepest level no children are followed: one frame per level above it.
    frames = MAX_LEVEL + 1
    while True:
        visits = Visits(
            np.empty(room, np.int32),
            np.empty(room, np.int32),
            np.empty(room, np.int64),
            np.empty(room, np.uint8),
            is_complete=True,
        )
        count = _walk(
            np.array(roots, np.int32),
            np.array(offsets, np.int32),
            np.array(children, np.int32),
            np.array(start_ps, np.int64),
            np.array(end_ps, np.int64),
            np.array(has_id, np.uint8),
            MAX_LEVEL - 1,
            max_visits,
            np.empty(frames, np.int32),
            np.empty(frames, np.int32),
            np.empty(frames, np.int32),
            np.empty(frames, np.uint8),
            visits.root,
            visits.node,
            visits.self_ps,
            visits.is_blocking,
        )
        kept = min(count, max_visits)
        if kept <= room:
            return Visits(
                visits.root[:kept],
                visits.node[:kept],
                visits.self_ps[:kept],
                visits.is_blocking[:kept],
                is_complete=count <= max_visits,
            )
        room = kept
