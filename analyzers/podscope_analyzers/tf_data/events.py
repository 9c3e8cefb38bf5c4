"""Finds the calls of tf.data iterators on a host's threads, and who asked whom for an element."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from podscope_analyzers.grouping.forest import Forest, ForestBuilder, Links, types_of_rows
from podscope_analyzers.kernels.iterators import walk_iterators
from podscope_analyzers.prepared import PreparedPlane, PreparedSpace
from podscope_analyzers.tf_data.pipelines import Bools, Int64s, Iterator, TfDataStats
from podscope_analyzers.xspace import StatColumn

_PREFIX: Final = "Iterator::"
_SECOND: Final = "Iterator::Prefetch::Generator"
_KINDS: Final = (
    "Prefetch",
    "ParallelInterleave",
    "ParallelMap",
    "MapAndBatch",
    "ParseExample",
    "ParallelBatch",
)
_PRODUCES: Final = frozenset(f"{kind}Produce" for kind in _KINDS)
_CONSUMES: Final = frozenset(f"{kind}Consume" for kind in _KINDS)
_STATS: Final = ("id", "parent_id", "element_id")


@dataclass(frozen=True)
class _Stat:
    """A stat of every node: whether it is there, and its value, both (n,)."""

    present: Bools
    values: Int64s


@dataclass(frozen=True)
class _Nodes:
    """The events of a host's threads as the forest numbers them, all of shape (n,)."""

    name: Int64s
    start_ps: Int64s
    end_ps: Int64s
    stats: dict[str, _Stat]


def host_tf_data(space: PreparedSpace) -> TfDataStats:
    """The tf.data pipelines that ran on a host."""
    plane = space.host_plane
    if plane is None:
        return TfDataStats.empty()
    names = plane.event_metadata.names
    if not any(name.startswith(_PREFIX) for name in names):
        return TfDataStats.empty()
    forest, nodes = _forest(plane)
    is_iterator = _named(names, lambda name: name.startswith(_PREFIX))[nodes.name]
    if not is_iterator.any():
        return TfDataStats.empty()
    children = _children(forest, nodes, names, is_iterator)
    identity, parent = nodes.stats["id"], nodes.stats["parent_id"]
    second = _named(names, lambda name: name == _SECOND)[nodes.name]
    others = np.flatnonzero(is_iterator & ~second & identity.present)
    if not len(others):
        return TfDataStats.empty()
    iterators: dict[int, Iterator] = {}
    device_ids: set[int] = set()
    for rows in (others, np.flatnonzero(second & identity.present)):
        ids, first = np.unique(identity.values[rows], return_index=True)
        for own, node in zip(ids.tolist(), rows[first].tolist(), strict=True):
            if own in iterators:
                continue
            above = int(parent.values[node])
            iterators[own] = Iterator(own, above, names[int(nodes.name[node])])
            if rows is not others and parent.present[node]:
                device_ids.add(above)
    is_root = _named(names, lambda name: name.startswith(_PREFIX) and name.count("::") == 1)
    roots = np.flatnonzero(is_root[nodes.name] & identity.present)
    if not len(roots):
        return TfDataStats.empty(iterators)
    # The longest call of each root first; of equally long ones the first in the file.
    length = (nodes.end_ps - nodes.start_ps)[roots]
    roots = roots[np.lexsort((-length, identity.values[roots]))]
    return _stats(nodes, children, roots, sorted(device_ids), iterators)


def _forest(plane: PreparedPlane) -> tuple[Forest, _Nodes]:
    """The host's events with nesting and contexts, and what this analysis reads of each."""
    builder = ForestBuilder()
    types = types_of_rows(plane)
    wanted = [name for name in _STATS if name in plane.stat_names]
    none = np.zeros(0, np.int64)
    name, start, end = [none], [none], [none]
    present: dict[str, list[Bools]] = {stat: [none.astype(np.bool_)] for stat in _STATS}
    values: dict[str, list[Int64s]] = {stat: [none] for stat in _STATS}
    for line in plane.lines:
        if not line.event_count or line.is_derived:
            continue
        builder.add_line(line, types)
        columns = line.columns(wanted)
        name.append(columns.metadata.astype(np.int64))
        start.append(columns.start_ps)
        end.append(columns.start_ps + columns.duration_ps)
        for stat in _STATS:
            found = columns.stat(stat) if stat in wanted else None
            present[stat].append(_present(found, line.event_count))
            values[stat].append(_ints(found, line.event_count))
    forest = builder.build()
    forest.freeze()
    stats = {
        stat: _Stat(np.concatenate(present[stat]), np.concatenate(values[stat])) for stat in _STATS
    }
    return forest, _Nodes(np.concatenate(name), np.concatenate(start), np.concatenate(end), stats)


def _present(found: StatColumn | None, count: int) -> Bools:
    return np.zeros(count, np.bool_) if found is None else found.present()


def _ints(found: StatColumn | None, count: int) -> Int64s:
    # An id stored as an unsigned number reads as 0, as in the reference.
    return np.zeros(count, np.int64) if found is None else found.ints()


def _named(names: list[str], test: Callable[[str], bool]) -> Bools:
    return np.array([test(name) for name in names], np.bool_)


def _children(forest: Forest, nodes: _Nodes, names: list[str], is_iterator: Bools) -> Links:
    """The iterators' calls below every event: nested, caused, and handed over as elements."""
    produces = _named(names, lambda name: name in _PRODUCES)[nodes.name]
    consumes = _named(names, lambda name: name in _CONSUMES)[nodes.name]
    nested = np.flatnonzero(is_iterator & (forest.parent >= 0))
    caused = _caused(forest, np.flatnonzero(is_iterator | produces), is_iterator)
    parents = np.concatenate([forest.parent[nested].astype(np.int64), caused[0]])
    below = np.concatenate([nested, caused[1]])
    links = Links.by(parents, below, len(forest))
    asked = _handed_over(forest, nodes, links, is_iterator, produces, consumes)
    return Links.by(
        np.concatenate([parents, asked[0]]), np.concatenate([below, asked[1]]), len(forest)
    )


def _caused(forest: Forest, producers: Int64s, is_iterator: Bools) -> tuple[Int64s, Int64s]:
    """Pairs of an event and a call that consumes a context which the event produces."""
    parents: list[int] = []
    children: list[int] = []
    made, hubs = forest.made, forest.hub_consumers
    has_context = np.diff(made.offsets)[producers] > 0
    for node in producers[has_context].tolist():
        for hub in made.items[made.offsets[node] : made.offsets[node + 1]].tolist():
            users = hubs.items[hubs.offsets[hub] : hubs.offsets[hub + 1]]
            users = users[is_iterator[users] & (users != node)]
            parents += [node] * len(users)
            children += users.tolist()
    return np.array(parents, np.int64), np.array(children, np.int64)


def _handed_over(
    forest: Forest,
    nodes: _Nodes,
    links: Links,
    is_iterator: Bools,
    produces: Bools,
    consumes: Bools,
) -> tuple[Int64s, Int64s]:
    """Pairs of a consuming iterator's call and the call that made the element elsewhere."""
    element, parent, identity = (nodes.stats[name] for name in ("element_id", "parent_id", "id"))
    made: dict[tuple[int, int], list[int]] = {}
    for node in np.flatnonzero(produces & element.present).tolist():
        below = links.items[links.offsets[node] : links.offsets[node + 1]]
        if len(below) and parent.present[below[0]]:
            key = (int(parent.values[below[0]]), int(element.values[node]))
            made.setdefault(key, []).append(int(below[0]))
    parents: list[int] = []
    children: list[int] = []
    for node in np.flatnonzero(consumes & element.present).tolist() if made else ():
        asker = _first_parent(forest, node)
        if asker < 0 or not is_iterator[asker] or not identity.present[asker]:
            continue
        calls = made.get((int(identity.values[asker]), int(element.values[node])), [])
        parents += [asker] * len(calls)
        children += calls
    return np.array(parents, np.int64), np.array(children, np.int64)


def _first_parent(forest: Forest, node: int) -> int:
    if forest.parent[node] >= 0:
        return int(forest.parent[node])
    used, hubs = forest.used, forest.hub_producers
    for hub in used.items[used.offsets[node] : used.offsets[node + 1]].tolist():
        if hubs.offsets[hub] < hubs.offsets[hub + 1]:
            return int(hubs.items[hubs.offsets[hub]])
    return -1


def _stats(
    nodes: _Nodes,
    children: Links,
    roots: Int64s,
    device_ids: list[int],
    iterators: dict[int, Iterator],
) -> TfDataStats:
    identity = nodes.stats["id"]
    visits = walk_iterators(
        roots.astype(np.int32),
        children.offsets,
        children.items,
        nodes.start_ps,
        nodes.end_ps,
        identity.present,
    )
    ids, code = np.unique(identity.values[visits.node], return_inverse=True)
    keys = visits.root.astype(np.int64) * len(ids) + code
    # The first visit of a key is the walk's first: np.unique sorts stably here.
    found, first, row = np.unique(keys, return_index=True, return_inverse=True)

    def summed(values: Int64s) -> Int64s:
        sums = np.zeros(len(found), np.int64)
        np.add.at(sums, row, values)
        return sums

    blocking = np.zeros(len(found), np.uint8)
    np.maximum.at(blocking, row, visits.is_blocking)
    # Roots that an incomplete walk did not reach have no rows.
    reached = len(roots) if visits.is_complete else int(visits.root[-1])
    kept = found // len(ids) < reached
    root_ids = identity.values[roots[:reached]]
    return TfDataStats(
        iterators=iterators,
        root_ids=root_ids,
        is_device=np.isin(root_ids, device_ids),
        call_ps=(nodes.end_ps - nodes.start_ps)[roots[:reached]],
        entries=np.searchsorted(found[kept] // len(ids), np.arange(reached + 1)),
        iterator_ids=ids[found[kept] % len(ids)],
        start_ps=nodes.start_ps[visits.node[first]][kept],
        duration_ps=summed((nodes.end_ps - nodes.start_ps)[visits.node])[kept],
        self_ps=summed(visits.self_ps)[kept],
        calls=summed(np.ones(len(keys), np.int64))[kept],
        is_blocking=blocking[kept].astype(np.bool_),
        is_complete=visits.is_complete,
    )
