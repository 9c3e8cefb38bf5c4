"""Groups: a number for every root event, spread to all that it caused."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from podscope_analyzers.grouping.event_types import IMPLICIT_ROOTS, NodeType
from podscope_analyzers.grouping.forest import Forest, Links
from podscope_analyzers.kernels.forest import spread_groups
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.xspace.columns import Bools, Int32s, Int64s

_MOST_PAIRS: Final = 1 << 22


def _cuts(count: Int64s, most: int) -> Int64s:
    """Where to cut rows so that each part's counts add up to about ``most``."""
    part = np.cumsum(count) // most
    return np.flatnonzero(np.diff(part)) + 1


class Groups:
    """Groups of a forest.

    Attributes:
        group: Group of every node, shape (n,); -1 for none.
        root: Root of every group, shape (g,).
    """

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self.group: Int32s = np.full(len(forest), -1, np.int32)
        self.root: Int64s = np.zeros(0, np.int64)
        self._fixed_names = np.zeros(len(forest), np.bool_)
        self._names: dict[int, str] | None = None

    def __len__(self) -> int:
        return len(self.root)

    def spread(self, roots: Int64s, blocked: Bools, *, is_fresh: bool) -> None:
        """Gives each root in turn a new group, and all it reaches that has none.

        Args:
            roots: In the order in which they are processed, shape (r,).
            blocked: Roots that make no group of their own, shape (r,).
            is_fresh: Pass over roots that have a group already.
        """
        forest = self.forest
        before = len(self.root)
        group_root = np.full(before + len(roots), -1, np.int32)
        group_root[:before] = self.root
        after = spread_groups(
            forest.first_child,
            forest.next_sibling,
            forest.down.offsets,
            forest.down.items,
            forest.made.offsets,
            forest.made.items,
            forest.hub_consumers.offsets,
            forest.hub_consumers.items,
            roots.astype(np.int32),
            blocked.astype(np.int32),
            is_fresh,
            before,
            self.group,
            np.full(forest.hub_count, -1, np.int32),
            group_root,
            np.empty(len(forest), np.int32),
        )
        self.root = group_root[:after].astype(np.int64)
        self._names = None

    def spread_in_lock_step(self, cores: list[Int64s]) -> None:
        """Gives the k-th node of every core the k-th of new groups, and all they reach.

        Args:
            cores: Nodes of each core's grouping line.
        """
        base = len(self.root)
        longest = max(len(nodes) for nodes in cores)
        column = np.full((longest, len(cores)), -1, np.int64)
        for at, nodes in enumerate(cores):
            column[: len(nodes), at] = nodes
        root = np.zeros(longest, np.int64)
        for k in range(longest):
            nodes = column[k][column[k] >= 0]
            root[k] = nodes[0]
            self._spread_from(nodes, base + k)
        self.root = np.concatenate([self.root, root])
        self._names = None

    def _spread_from(self, nodes: Int64s, group_id: int) -> None:
        """Gives some nodes a group, and what they reach that has none."""
        forest = self.forest
        front = nodes[self.group[nodes] < 0]
        while len(front):
            self.group[front] = group_id
            found = [_of_all(forest.down, front)]
            hubs = distinct(_of_all(forest.made, front))
            found.append(_of_all(forest.hub_consumers, hubs))
            child = forest.first_child[front]
            while (child >= 0).any():
                child = child[child >= 0]
                found.append(child.astype(np.int64))
                child = forest.next_sibling[child]
            reached = distinct(np.concatenate(found))
            front = reached[self.group[reached] < 0]

    def relations(self) -> set[tuple[int, int]]:
        """Pairs of groups (parent, child): an event of the one caused one of the other."""
        forest, group = self.forest, self.group
        pairs: set[tuple[int, int]] = set()

        def note(parents: Int64s, children: Int64s) -> None:
            a, b = group[parents], group[children]
            apart = (a >= 0) & (b >= 0) & (a != b)
            stacked = np.stack([a[apart], b[apart]], axis=1)
            pairs.update((int(x), int(y)) for x, y in np.unique(stacked, axis=0))

        nested = np.flatnonzero(forest.parent >= 0)
        note(forest.parent[nested].astype(np.int64), nested)
        counts = np.diff(forest.down.offsets)
        note(np.repeat(np.arange(len(forest)), counts), forest.down.items.astype(np.int64))
        for made, used in self._across_hubs():
            pairs.update(zip(made.tolist(), used.tolist(), strict=True))
        return pairs

    def _across_hubs(self) -> Iterator[tuple[Int64s, Int64s]]:
        """Groups that produced a context, and others that consumed it, some pairs at a time."""
        (made_in, made), (used_in, used) = (
            self._groups_of_hubs(links)
            for links in (self.forest.hub_producers, self.forest.hub_consumers)
        )
        low, high = np.searchsorted(made_in, used_in), np.searchsorted(made_in, used_in, "right")
        count = high - low
        # Those of one context at least go together.
        for rows in np.split(np.arange(len(used)), _cuts(count, _MOST_PAIRS)):
            repeated = np.repeat(rows, count[rows])
            first = np.cumsum(count[rows]) - count[rows]
            within = np.arange(len(repeated)) - np.repeat(first, count[rows])
            parents, children = made[low[repeated] + within], used[repeated]
            apart = np.flatnonzero(parents != children)
            yield parents[apart], children[apart]

    def _groups_of_hubs(self, links: Links) -> tuple[Int64s, Int64s]:
        """Hub and group of every group that takes part in a hub, each pair once."""
        hub = np.repeat(np.arange(self.forest.hub_count), np.diff(links.offsets))
        group = self.group[links.items].astype(np.int64)
        known = group >= 0
        width = len(self.root) + 1
        pairs = distinct(hub[known] * width + group[known])
        return pairs // width, pairs % width

    def is_named(self, *, device_roots: Bools | None = None) -> Bools:
        """Which groups a user named, shape (g,).

        Args:
            device_roots: Groups whose root is a step or module of a device.
        """
        implicit = np.isin(self.forest.types[self.root], IMPLICIT_ROOTS)
        if device_roots is not None:
            implicit |= device_roots
        return ~implicit

    def mark_device_roots(self, nodes: Int64s) -> None:
        """Takes the nodes of the devices' grouping lines: as roots they have no names."""
        self._fixed_names[nodes] = True

    @property
    def named(self) -> Bools:
        """Which groups a user named, shape (g,)."""
        return self.is_named(device_roots=self._fixed_names[self.root])

    def name(self, group_id: int) -> str:
        """Name of a group; empty for an id that is none."""
        if self._names is None:
            self._names = dict(enumerate(self._all_names()))
        return self._names.get(group_id, "")

    def _all_names(self) -> list[str]:
        forest = self.forest
        numbers: list[str | None] = [None] * len(self)
        for stat in ("iter_num", "step_num"):
            missing = np.array([g for g in range(len(self)) if numbers[g] is None], np.int64)
            marks = forest.stat(stat)
            if not len(marks.events) or not len(missing):
                continue
            holders = self._holders(missing, marks.events)
            values = marks.values[np.searchsorted(marks.events, holders[holders >= 0])]
            for g, value in zip(missing[holders >= 0].tolist(), values.tolist(), strict=True):
                numbers[g] = str(value)
        graph_types = [""] * len(self)
        if forest.graph_types:
            nodes = np.array(sorted(forest.graph_types), np.int64)
            every = np.arange(len(self))
            for g, holder in zip(every, self._holders(every, nodes), strict=True):
                if holder >= 0:
                    graph_types[int(g)] = forest.graph_types[int(holder)]
        titles = list(graph_types)
        named = np.flatnonzero(self.named)
        for g, name in zip(named.tolist(), forest.names(self.root[named]), strict=True):
            titles[g] = titles[g] or name
        return [
            f"{title} {number or g}" if title else number or str(g)
            for g, (title, number) in enumerate(zip(titles, numbers, strict=True))
        ]

    def _holders(self, groups: Int64s, nodes: Int64s) -> Int64s:
        """Of every group, the nearest of some nodes around its root; -1 for none."""
        mark = np.zeros(len(self.forest), np.int32)
        mark[nodes] = 1
        wanted = np.ones(len(groups), np.int64)
        return self.forest.nearest(self.root[groups], mark, wanted, include_self=True)


@dataclass(frozen=True)
class _Roots:
    nodes: Int64s
    blocked: Bools


def _items(links: Links, at: int) -> Int64s:
    result: Int64s = links.items[links.offsets[at] : links.offsets[at + 1]].astype(np.int64)
    return result


def _of_all(links: Links, keys: Int64s) -> Int64s:
    """Items of several keys together."""
    return np.concatenate([np.zeros(0, np.int64), *(_items(links, int(key)) for key in keys)])


def group_forest(forest: Forest) -> Groups:
    """Connects events across lines and groups them by their roots."""
    forest.join(NodeType.EXECUTOR_PROCESS, NodeType.GET_NEXT, ("id", "iter_num"))
    forest.join(NodeType.EXECUTOR_PROCESS, NodeType.GET_NEXT_AS_OPTIONAL, ("id", "iter_num"))
    forest.join(NodeType.KERNEL_LAUNCH, NodeType.KERNEL_EXECUTE, ("correlation_id",))
    dataset_ids = _dataset_ids(forest)
    loops = _loop_roots(forest, dataset_ids)
    forest.freeze()
    groups = Groups(forest)
    if len(loops):
        groups.spread(loops, np.zeros(len(loops), np.bool_), is_fresh=False)
        return groups
    for roots in _root_levels(forest, dataset_ids):
        groups.spread(roots.nodes, roots.blocked, is_fresh=True)
    return groups


def _dataset_ids(forest: Forest) -> Int64s:
    """Ids of the functions that tf.data runs: they are no steps."""
    ids = forest.stat("id")
    found: Int64s = distinct(ids.values[forest.types[ids.events] == NodeType.TF_DATA_RUN])
    return found


def _loop_roots(forest: Forest, dataset_ids: Int64s) -> Int64s:
    """Iterations of TensorFlow loops: the first event of each, connected to its others."""
    ids, iterations = forest.stat("id"), forest.stat("iter_num")
    nodes: Int64s = np.intersect1d(ids.events, iterations.events, assume_unique=True)
    nodes = nodes[forest.types[nodes] == NodeType.EXECUTOR_PROCESS]
    loop = ids.values[np.searchsorted(ids.events, nodes)]
    iteration = iterations.values[np.searchsorted(iterations.events, nodes)]
    kept = ~np.isin(loop, dataset_ids)
    nodes, loop, iteration = nodes[kept], loop[kept], iteration[kept]
    if not len(nodes):
        return nodes
    # A function that runs once has iteration 0 and no other: no loop.
    loops, inverse = np.unique(loop, return_inverse=True)
    looping = np.zeros(len(loops), np.bool_)
    looping[inverse[iteration != 0]] = True
    kept = looping[inverse]
    nodes, loop, iteration = nodes[kept], loop[kept], iteration[kept]
    if not len(nodes):
        return nodes
    order = np.lexsort((nodes, forest.start_ps[nodes], iteration, loop))
    nodes, loop, iteration = nodes[order], loop[order], iteration[order]
    first = np.ones(len(nodes), np.bool_)
    first[1:] = (loop[1:] != loop[:-1]) | (iteration[1:] != iteration[:-1])
    roots = nodes[first]
    forest.connect(roots[np.cumsum(first) - 1], nodes)
    ordered: Int64s = roots[np.argsort(forest.start_ps[roots], kind="stable")]
    return ordered


def _root_levels(forest: Forest, dataset_ids: Int64s) -> list[_Roots]:
    """Roots by level, the highest first, in order of time within it."""
    nodes, levels = forest.roots.events, forest.roots.values
    if not len(nodes):
        return []
    ids = forest.stat("id")
    of_datasets = np.isin(nodes, ids.events[np.isin(ids.values, dataset_ids)])
    distinct, code = np.unique(levels, return_inverse=True)
    mark = np.zeros(len(forest), np.int32)
    mark[nodes] = code + 1
    # What tf.data runs makes no group, and neither do roots of its level within it.
    around = forest.nearest(nodes, mark, (code + 1).astype(np.int64), include_self=False)
    found = []
    for level in range(len(distinct) - 1, -1, -1):
        of_level = np.flatnonzero((code == level) & ~of_datasets)
        of_level = of_level[np.argsort(forest.start_ps[nodes[of_level]], kind="stable")]
        blocked = (around[of_level] >= 0) | np.isin(nodes[of_level], forest.self_causing)
        found.append(_Roots(nodes[of_level], blocked))
    return found


def eager_nodes(forest: Forest) -> tuple[Int64s, Int64s]:
    """Kernels and TensorFlow operations, and whether each ran eagerly (0 or 1)."""
    nodes = np.flatnonzero(
        (forest.types == NodeType.KERNEL_EXECUTE) | (forest.types == NodeType.TF_OP)
    )
    is_eager = np.zeros(len(nodes), np.int64)
    executes = forest.types == NodeType.EAGER_EXECUTE
    if not executes.any():
        return nodes, is_eager
    mark = executes.astype(np.int32)
    around = forest.nearest(nodes, mark, np.ones(len(nodes), np.int64), include_self=True)
    functions = forest.stat("is_func")
    plain = functions.events[functions.values == 0]
    is_eager[:] = np.isin(around, plain)
    return nodes, is_eager
