"""Kernels on the forest of events: who caused whom, across threads and devices.

A node's parents are the event around it, the parents of its extra edges, and the producers of
the contexts (hubs) that it consumes; its children likewise. Lists of lists come as offsets and
items.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels.compiled import kernel
from podscope_analyzers.kernels.spans import Bools, Int32s, Int64s

UInt8s = npt.NDArray[np.uint8]

BRANCHES: Final = -2
"""What ``nearest_on_chains`` finds where there are several ways up."""


@kernel("void(i4[::1], i4[::1], i4[::1])")
def link_siblings(parent: Int32s, first_child: Int32s, next_sibling: Int32s) -> None:
    """First child and next sibling of every node, -1 for none; all arrays (n,)."""
    for i in range(parent.size):
        first_child[i] = -1
    for i in range(parent.size - 1, -1, -1):
        p = parent[i]
        next_sibling[i] = -1
        if p >= 0:
            next_sibling[i] = first_child[p]
            first_child[p] = i


@kernel(
    "i8(i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1],"
    " b1, i8, i4[::1], i4[::1], i4[::1], i4[::1])"
)
def spread_groups(
    first_child: Int32s,
    next_sibling: Int32s,
    edge_offsets: Int32s,
    edge_children: Int32s,
    made_offsets: Int32s,
    made_hubs: Int32s,
    hub_offsets: Int32s,
    hub_consumers: Int32s,
    roots: Int32s,
    blocked: Int32s,
    is_fresh: bool,
    next_group: int,
    group: Int32s,
    hub_group: Int32s,
    group_root: Int32s,
    queue: Int32s,
) -> int:
    """Gives each root in turn a new group, and all it reaches that has none.

    Args:
        first_child: Shape (n,), as are ``next_sibling``, ``group`` and ``queue``.
        next_sibling: See ``link_siblings``.
        edge_offsets: Shape (n + 1,).
        edge_children: Children by extra edges.
        made_offsets: Shape (n + 1,).
        made_hubs: Hubs that a node produces.
        hub_offsets: Shape (h + 1,).
        hub_consumers: Nodes that consume a hub.
        roots: In the order in which they are processed, shape (r,).
        blocked: Of every root, 1 for one that makes no group of its own, shape (r,).
        is_fresh: Pass over a root that has a group already.
        next_group: Id of the next group.
        group: Filled; -1 for none.
        hub_group: Last group that went through each hub, shape (h,).
        group_root: Root of every group, filled from ``next_group``.
        queue: Room for the search.

    Returns:
        Id of the next group.
    """
    for r in range(roots.size):
        root = roots[r]
        if blocked[r] or (is_fresh and group[root] >= 0):
            continue
        g = next_group
        next_group += 1
        group_root[g] = root
        if group[root] >= 0:
            continue
        group[root] = g
        head = 0
        tail = 1
        queue[0] = root
        while head < tail:
            node = queue[head]
            head += 1
            child = first_child[node]
            while child >= 0:
                if group[child] < 0:
                    group[child] = g
                    queue[tail] = child
                    tail += 1
                child = next_sibling[child]
            for e in range(edge_offsets[node], edge_offsets[node + 1]):
                child = edge_children[e]
                if group[child] < 0:
                    group[child] = g
                    queue[tail] = child
                    tail += 1
            for m in range(made_offsets[node], made_offsets[node + 1]):
                hub = made_hubs[m]
                if hub_group[hub] == g:
                    continue
                hub_group[hub] = g
                for c in range(hub_offsets[hub], hub_offsets[hub + 1]):
                    child = hub_consumers[c]
                    if group[child] < 0:
                        group[child] = g
                        queue[tail] = child
                        tail += 1
    return next_group


@kernel(
    "void(i4[::1], i4[::1], i4[::1], i4[::1], i8[::1], b1, i4[::1], i4[::1], i4[::1], i8[::1],"
    " i4[::1])"
)
def nearest_on_chains(
    parent: Int32s,
    edge_offsets: Int32s,
    used_offsets: Int32s,
    mark: Int32s,
    wanted: Int64s,
    is_self_included: bool,
    starts: Int32s,
    found: Int32s,
    known: Int32s,
    known_of: Int64s,
    path: Int32s,
) -> None:
    """Nearest ancestor of a mark, of starts that have no ancestors but parents.

    What holds for a node holds for all below it, so that a deep nest is walked once and not once
    for each event in it.

    Args:
        parent: Shape (n,).
        edge_offsets: As for ``nearest_marked``, and so are the next four.
        used_offsets: Shape (n + 1,).
        mark: What is looked for.
        wanted: Mark that each start looks for, shape (k,).
        is_self_included: Whether a start may answer itself.
        starts: Nodes to start at, shape (k,).
        found: Filled, shape (k,): the ancestor, -1 for none, or ``BRANCHES``.
        known: Room for what was found at or above a node, shape (n,).
        known_of: Mark that this is of, filled with -1, shape (n,).
        path: Room for the nodes on the way up, shape (n,).
    """
    for s in range(starts.size):
        node = starts[s]
        count = 0
        result = -1
        if not is_self_included:
            if (
                edge_offsets[node] != edge_offsets[node + 1]
                or used_offsets[node] != used_offsets[node + 1]
            ):
                found[s] = BRANCHES
                continue
            node = parent[node]
        while node >= 0:
            if known_of[node] == wanted[s]:
                result = known[node]
                break
            path[count] = node
            count += 1
            if mark[node] == wanted[s]:
                result = node
                break
            if (
                edge_offsets[node] != edge_offsets[node + 1]
                or used_offsets[node] != used_offsets[node + 1]
            ):
                result = BRANCHES
                break
            node = parent[node]
        for i in range(count):
            known[path[i]] = result
            known_of[path[i]] = wanted[s]
        found[s] = result


@kernel(
    "void(i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1],"
    " i8[::1], b1, i4[::1], i4[::1], i4[::1], i4[:, ::1], i4[:, ::1])"
)
def nearest_marked(
    parent: Int32s,
    between: Int32s,
    edge_offsets: Int32s,
    edge_parents: Int32s,
    used_offsets: Int32s,
    used_hubs: Int32s,
    hub_offsets: Int32s,
    hub_producers: Int32s,
    mark: Int32s,
    wanted: Int64s,
    is_self_included: bool,
    starts: Int32s,
    visited: Int32s,
    hub_visited: Int32s,
    queue: Int32s,
    left: Int32s,
) -> None:
    """Nearest ancestor of a mark, breadth first; replaces every start by it, or by -1.

    Args:
        parent: Shape (n,), as are ``mark`` and ``visited``.
        between: Events between a node and its parent that are no nodes, shape (n,); each is a
            step of the search.
        edge_offsets: Shape (n + 1,).
        edge_parents: Parents by extra edges.
        used_offsets: Shape (n + 1,).
        used_hubs: Hubs that a node consumes.
        hub_offsets: Shape (h + 1,).
        hub_producers: Nodes that produce a hub.
        mark: What is looked for.
        wanted: Mark that each start looks for, shape (k,).
        is_self_included: Whether a start may answer itself.
        starts: Nodes to start at, shape (k,).
        visited: Filled with -1.
        hub_visited: Filled with -1, shape (h,).
        queue: Room for two steps of the search, shape (2, n).
        left: Room for the steps that are left to each of their nodes, shape (2, n).
    """
    for s in range(starts.size):
        start = starts[s]
        starts[s] = -1
        visited[start] = s
        if is_self_included and mark[start] == wanted[s]:
            starts[s] = start
            continue
        side = 0
        count = 1
        queue[0, 0] = start
        left[0, 0] = 0
        while count > 0 and starts[s] < 0:
            other = 1 - side
            tail = 0
            for head in range(count):
                node = queue[side, head]
                before = tail
                steps = left[side, head]
                up = node if steps > 0 else parent[node]
                if steps == 0 and up >= 0:
                    steps = between[node] + 1
                # Whoever is further away comes later, and may find the node visited.
                if up >= 0 and visited[up] != s:
                    steps -= 1
                    if steps == 0:
                        visited[up] = s
                    queue[other, tail] = up
                    left[other, tail] = steps
                    tail += 1
                if left[side, head] == 0:
                    for e in range(edge_offsets[node], edge_offsets[node + 1]):
                        up = edge_parents[e]
                        if visited[up] != s:
                            visited[up] = s
                            queue[other, tail] = up
                            left[other, tail] = 0
                            tail += 1
                    for u in range(used_offsets[node], used_offsets[node + 1]):
                        hub = used_hubs[u]
                        if hub_visited[hub] == s:
                            continue
                        hub_visited[hub] = s
                        for p in range(hub_offsets[hub], hub_offsets[hub + 1]):
                            up = hub_producers[p]
                            if visited[up] != s:
                                visited[up] = s
                                queue[other, tail] = up
                                left[other, tail] = 0
                                tail += 1
                for q in range(before, tail):
                    if left[other, q] == 0 and mark[queue[other, q]] == wanted[s]:
                        starts[s] = queue[other, q]
                        break
                if starts[s] >= 0:
                    break
            side = other
            count = tail


@kernel("void(i4[::1], i4[::1], i4[::1], i4[::1])")
def spread_kept(parent: Int32s, kept: Int32s, group: Int32s, found: Int32s) -> None:
    """Groups of all events of a line: an event that is no node has that of the one around it.

    Args:
        parent: Of every event, -1 for none, shape (n,).
        kept: Events that are nodes, ascending, shape (k,).
        group: Of each of them, -1 for none, shape (k,).
        found: Filled, shape (n,); may be ``parent`` itself.
    """
    at = 0
    for i in range(parent.size):
        around = parent[i]
        found[i] = -1
        if at < kept.size and kept[at] == i:
            found[i] = group[at]
            at += 1
        elif around >= 0:
            found[i] = found[around]


@kernel("void(i8[::1], i8[::1], i8[::1], i8[::1], b1, i4[::1])")
def find_around(
    outer_start: Int64s,
    outer_end: Int64s,
    start: Int64s,
    duration: Int64s,
    must_include: bool,
    found: Int32s,
) -> None:
    """The span of a sorted line that belongs to each event of another; -1 for none.

    With ``must_include``, the first span that ends after the event's start, if it includes the
    event; else the span found last as long as it overlaps, then the next that does. Neither
    goes back.

    Args:
        outer_start: Shape (m,).
        outer_end: Shape (m,).
        start: Shape (n,).
        duration: Shape (n,).
        must_include: Which rule.
        found: Filled, shape (n,).
    """
    at = 0 if must_include else -1
    for i in range(start.size):
        found[i] = -1
        end = start[i] + duration[i]
        if must_include:
            while at < outer_start.size and outer_end[at] <= start[i]:
                at += 1
            if at < outer_start.size and outer_start[at] <= start[i] and end <= outer_end[at]:
                found[i] = at
            continue
        if at >= 0 and outer_start[at] <= end and start[i] <= outer_end[at]:
            found[i] = at
            continue
        j = at + 1
        while j < outer_start.size and outer_start[j] <= end:
            if outer_end[j] >= start[i]:
                at = j
                found[i] = j
                break
            j += 1


@kernel("void(i4[::1], b1[::1], b1[::1], b1[::1])")
def spread_below(parent: Int32s, own: Bools, source: Bools, below: Bools) -> None:
    """Whether each event, or one around it, is ``own``, or lies in a ``source``; all (n,)."""
    for i in range(parent.size):
        p = parent[i]
        below[i] = own[i] or (p >= 0 and (below[p] or source[p]))


@kernel("i8(i4[::1], i8[::1], i8[::1], i8[::1], i4[::1])")
def merge_runs(code: Int32s, group: Int64s, start: Int64s, end: Int64s, run: Int32s) -> int:
    """Numbers runs of events that a derived line shows as one; all arrays (n,).

    Consecutive events of one code and group are one; those without a group only while the gap
    before the next is at most twice as long as the run so far.

    Args:
        code: What the events are.
        group: -1 for none.
        start: Ascending.
        end: Of every event.
        run: Filled, ascending from 0.

    Returns:
        How many runs.
    """
    count = 0
    run_start = np.int64(0)
    run_end = np.int64(0)
    for i in range(code.size):
        joins = i > 0 and code[i] == code[i - 1] and group[i] == group[i - 1]
        if joins and group[i] < 0:
            joins = run_end + 2 * (run_end - run_start) >= start[i]
        if joins:
            run_end = max(run_end, end[i])
        else:
            count += 1
            run_start = start[i]
            run_end = end[i]
        run[i] = count - 1
    return count
