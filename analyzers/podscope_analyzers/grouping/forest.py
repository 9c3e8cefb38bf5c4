"""The forest of a host's events: nodes, nesting, edges and contexts as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.grouping.contexts import (
    CONTEXT_STATS,
    LineContexts,
    Marks,
    StatReads,
    line_contexts,
    mix,
)
from podscope_analyzers.grouping.event_types import NodeType, node_types
from podscope_analyzers.kernels import nest
from podscope_analyzers.kernels.forest import (
    BRANCHES,
    link_siblings,
    nearest_marked,
    nearest_on_chains,
)
from podscope_analyzers.planes import HOST_PLANE
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.xspace import Columns
from podscope_analyzers.xspace.columns import Int32s, Int64s

T = TypeVar("T", bound=np.generic)

# A context with this many producers and as many consumers says nothing about causes.
_CROWD = 64
_STATS = ("id", "iter_num", "step_num", "is_func", "correlation_id")


@dataclass(frozen=True)
class Links:
    """Lists of lists: the items of i are ``items[offsets[i]:offsets[i + 1]]``."""

    offsets: Int32s
    items: Int32s

    @classmethod
    def by(cls, keys: Int64s, items: Int64s, count: int) -> "Links":
        """Items listed by key, in their order."""
        # Zeros that nobody writes to take no memory.
        offsets = np.zeros(count + 1, np.int32)
        if not len(keys):
            return cls(offsets, np.zeros(0, np.int32))
        order = np.argsort(keys, kind="stable")
        first = int(keys.min())
        counts = np.bincount(keys - first, minlength=count - first).astype(np.int32)
        np.cumsum(counts, out=offsets[1 + first :])
        return cls(offsets, items[order].astype(np.int32))


@dataclass(frozen=True)
class NodeLine:
    """A line whose events are the ``count`` nodes from ``base`` on.

    Attributes:
        events: Indices of the events that are nodes, ascending; None when all are.
    """

    line: PreparedLine
    base: int
    names: Sequence[str]
    events: Int32s | None = None
    count: int = 0

    def events_of(self, nodes: Int64s) -> Int64s:
        """Indices of the events that some of its nodes are, shape of ``nodes``."""
        at = nodes - self.base
        return at if self.events is None else self.events[at].astype(np.int64)

    def metadata(self) -> Int32s:
        """Row of every node's event in the plane's metadata."""
        if self.events is None:
            return self.line.columns().metadata
        sifted = self.line.notable
        if sifted is None:
            problem = "the line's notable events are gone"
            raise ValueError(problem)
        return sifted.columns.metadata


@dataclass
class _Pieces:
    """Arrays of the lines, collected before they are joined."""

    parent: list[Int32s] = field(default_factory=list)
    between: list[Int32s] = field(default_factory=list)
    types: list[NDArray[np.uint8]] = field(default_factory=list)
    start: list[Int64s] = field(default_factory=list)
    stats: dict[str, list[Marks]] = field(default_factory=dict)
    graph_types: list[tuple[Int64s, list[str]]] = field(default_factory=list)
    roots: list[Marks] = field(default_factory=list)
    producers: list[tuple[Int64s, Int64s]] = field(default_factory=list)
    consumers: list[tuple[Int64s, Int64s]] = field(default_factory=list)


class ForestBuilder:
    """Takes lines one by one, in the order of planes and lines."""

    def __init__(self) -> None:
        self._pieces = _Pieces()
        self._lines: list[NodeLine] = []
        self._count = 0

    def add_line(
        self,
        line: PreparedLine,
        types_of_rows: NDArray[np.uint8],
        *,
        ordinal: int | None = None,
        notable: bool = False,
    ) -> Int64s:
        """Makes a line's events nodes.

        Args:
            line: Of any plane.
            types_of_rows: Type of every row of the plane's metadata.
            ordinal: The device's number, for the line of a TensorCore's modules.
            notable: Take only its notable events, where the line tells these.

        Returns:
            Node of every event that was taken, shape (n,).
        """
        plane = line.plane
        sifted = line.notable if notable else None
        if sifted is None:
            columns = line.columns(CONTEXT_STATS & plane.stat_names)
        else:
            columns = sifted.columns
        types = _typed(types_of_rows[columns.metadata], columns, plane.name == HOST_PLANE)
        base = self._count
        if sifted is None:
            aside = None
            if "_a" in columns.stat_names and columns.stat("_a").kind.any():
                aside = columns.stat("_a").ints() != 0
            parent = nest(columns.start_ps, columns.duration_ps, aside).parent
            between = np.zeros(len(columns), np.int32)
        else:
            parent, between = sifted.parent.copy(), sifted.between
        if base:
            parent[parent >= 0] += base
        pieces = self._pieces
        pieces.parent.append(parent)
        pieces.between.append(between)
        pieces.types.append(types)
        pieces.start.append(columns.start_ps)
        reads = StatReads(columns)
        for name in _STATS:
            unsigned = name != "is_func"
            found = reads.marks(name, unsigned=unsigned)
            if len(found.events):
                pieces.stats.setdefault(name, []).append(Marks(found.events + base, found.values))
        if "graph_type" in columns.stat_names:
            codes, table = columns.stat("graph_type").strings()
            events = np.flatnonzero(codes >= 0)
            pieces.graph_types.append((events + base, [table[c] for c in codes[events]]))
        nodes = np.arange(base, base + len(columns))
        self.add_contexts(line_contexts(types, columns, device_of_modules=ordinal), nodes, plane)
        kept = None if sifted is None else sifted.events
        names = plane.event_metadata.names
        self._lines.append(NodeLine(line, base, names, kept, len(columns)))
        self._count += len(columns)
        return nodes

    def add_contexts(
        self, contexts: LineContexts, nodes: Int64s, plane: PreparedPlane, *, roots: bool = True
    ) -> None:
        """Takes what a line says about causes.

        Args:
            contexts: Of the line.
            nodes: Node that speaks for each event, -1 for none, shape (n,).
            plane: The line's.
            roots: Take root levels too.
        """
        process = plane.stats.get("process_id")
        has_pid, pid = (1, process) if isinstance(process, int) else (0, 0)
        if roots and len(contexts.roots.events):
            self._pieces.roots.append(Marks(nodes[contexts.roots.events], contexts.roots.values))
        producers = contexts.producer_types
        known = np.full(len(producers.events), has_pid, np.int64)
        pids = np.full(len(producers.events), pid, np.int64)
        keys = mix([producers.values, contexts.producer_ids.values, known, pids])
        self._pieces.producers.append((nodes[producers.events], keys))
        consumers = contexts.consumer_types
        known = np.full(len(consumers.events), has_pid, np.int64)
        pids = np.full(len(consumers.events), pid, np.int64)
        override = contexts.consumer_pids
        if len(override.events):
            at = np.searchsorted(override.events, consumers.events)
            at = np.minimum(at, len(override.events) - 1)
            hit = override.events[at] == consumers.events
            known[hit] = 1
            pids[hit] = override.values[at][hit]
        keys = mix([consumers.values, contexts.consumer_ids.values, known, pids])
        self._pieces.consumers.append((nodes[consumers.events], keys))

    def build(self) -> "Forest":
        """The forest of all lines."""
        return Forest(self._lines, self._pieces)


class Forest:
    """Nodes and what connects them.

    Attributes:
        lines: Whose events the nodes are.
        parent: The event around each node, shape (n,); -1 for none.
        types: :class:`NodeType` of every node, shape (n,).
        start_ps: Of every node, shape (n,).
        roots: Root levels.
    """

    def __init__(self, lines: list[NodeLine], pieces: _Pieces) -> None:
        self.lines = lines
        self._bases = np.array([line.base for line in lines], np.int64)
        self.parent: Int32s = _joined(pieces.parent, np.int32)
        self._between = _joined(pieces.between, np.int32)
        self.types: NDArray[np.uint8] = _joined(pieces.types, np.uint8)
        self.start_ps: Int64s = _joined(pieces.start, np.int64)
        self._stats = {
            name: Marks(
                _joined([m.events for m in marks], np.int64),
                _joined([m.values for m in marks], np.int64),
            )
            for name, marks in pieces.stats.items()
        }
        self.graph_types: dict[int, str] = {
            int(node): text
            for nodes, texts in pieces.graph_types
            for node, text in zip(nodes, texts, strict=True)
        }
        self.roots = Marks(
            _joined([m.events for m in pieces.roots], np.int64),
            _joined([m.values for m in pieces.roots], np.int64),
        )
        self._edges: list[tuple[Int64s, Int64s]] = []
        self._producers, self._consumers, self.hub_count = _hubs(pieces.producers, pieces.consumers)

    def __len__(self) -> int:
        return len(self.parent)

    def stat(self, name: str) -> Marks:
        """The nodes that carry a stat, ascending, and its values."""
        empty = np.zeros(0, np.int64)
        return self._stats.get(name, Marks(empty, empty))

    def names(self, nodes: Int64s) -> list[str]:
        """Names of some nodes' events."""
        found = [""] * len(nodes)
        line_of = np.searchsorted(self._bases, nodes, side="right") - 1
        for at in distinct(line_of).tolist():
            line, own = self.lines[at], np.flatnonzero(line_of == at)
            rows = line.metadata()[nodes[own] - line.base]
            for place, row in zip(own.tolist(), rows.tolist(), strict=True):
                found[place] = line.names[row]
        return found

    def connect(self, parents: Int64s, children: Int64s) -> None:
        """Adds edges across lines, both of shape (k,)."""
        apart = parents != children
        self._edges.append((parents[apart], children[apart]))

    def join(
        self,
        parent_type: NodeType,
        child_type: NodeType,
        stats: Sequence[str],
    ) -> None:
        """Makes nodes of one type the parents of those of another with equal stats.

        Of several parents with the same stats, the last counts.
        """
        parents, parent_keys = self._keys(parent_type, stats)
        children, child_keys = self._keys(child_type, stats)
        if not len(parents) or not len(children):
            return
        # The last of equal keys is the first of the reversed ones.
        keys, last = np.unique(parent_keys[::-1], return_index=True)
        at = np.minimum(np.searchsorted(keys, child_keys), len(keys) - 1)
        hit = keys[at] == child_keys
        self.connect(parents[::-1][last][at[hit]], children[hit])

    def _keys(self, kind: NodeType, stats: Sequence[str]) -> tuple[Int64s, Int64s]:
        nodes = self.stat(stats[0]).events
        for name in stats[1:]:
            nodes = np.intersect1d(nodes, self.stat(name).events, assume_unique=True)
        nodes = nodes[self.types[nodes] == kind]
        values = []
        for name in stats:
            marks = self.stat(name)
            values.append(marks.values[np.searchsorted(marks.events, nodes)])
        return nodes, (mix(values) if len(values) > 1 else values[0])

    @property
    def self_causing(self) -> Int64s:
        """Nodes that consume a context that they produce themselves."""
        made_by, made = self._producers
        used_by, used = self._consumers
        width = max(self.hub_count, 1)
        both: Int64s = np.intersect1d(made_by * width + made, used_by * width + used)
        return both // width

    def freeze(self) -> None:
        """Makes the lists that searches follow; no edges may be added after it."""
        count = len(self)
        parents = _joined([p for p, _ in self._edges], np.int64)
        children = _joined([c for _, c in self._edges], np.int64)
        self.down = Links.by(parents, children, count)
        self.up = Links.by(children, parents, count)
        made_by, made = self._producers
        used_by, used = self._consumers
        self.made = Links.by(made_by, made, count)
        self.used = Links.by(used_by, used, count)
        self.hub_producers = Links.by(made, made_by, self.hub_count)
        self.hub_consumers = Links.by(used, used_by, self.hub_count)
        self.first_child = np.empty(count, np.int32)
        self.next_sibling = np.empty(count, np.int32)
        link_siblings(self.parent, self.first_child, self.next_sibling)

    def forget_children(self) -> None:
        """Gives back what only the spreading of groups needs; the forest stays for names."""
        self.first_child = self.next_sibling = np.zeros(0, np.int32)

    def nearest(
        self, starts: Int64s, mark: Int32s, wanted: Int64s, *, include_self: bool
    ) -> Int64s:
        """Nearest ancestor with a mark, breadth first, of every start; -1 for none.

        Args:
            starts: Nodes, shape (k,).
            mark: Of every node, shape (n,).
            wanted: Mark that each start looks for, shape (k,).
            include_self: Whether a start may answer itself.
        """
        count = len(self)
        found = np.empty(len(starts), np.int32)
        nearest_on_chains(
            self.parent,
            self.up.offsets,
            self.used.offsets,
            mark,
            wanted,
            include_self,
            starts.astype(np.int32),
            found,
            np.empty(count, np.int32),
            np.full(count, -1, np.int64),
            np.empty(count, np.int32),
        )
        branching = np.flatnonzero(found == BRANCHES)
        if not len(branching):
            return found.astype(np.int64)
        rest = starts[branching].astype(np.int32)
        nearest_marked(
            self.parent,
            self._between,
            self.up.offsets,
            self.up.items,
            self.used.offsets,
            self.used.items,
            self.hub_producers.offsets,
            self.hub_producers.items,
            mark,
            wanted[branching],
            include_self,
            rest,
            np.full(count, -1, np.int32),
            np.full(self.hub_count, -1, np.int32),
            np.empty((2, count), np.int32),
            np.empty((2, count), np.int32),
        )
        found[branching] = rest
        return found.astype(np.int64)


def types_of_rows(plane: PreparedPlane) -> NDArray[np.uint8]:
    """Type of every row of a plane's metadata, shape (m + 1,)."""
    return node_types(plane.event_metadata.names)


def _typed(types: NDArray[np.uint8], columns: Columns, is_host: bool) -> NDArray[np.uint8]:
    """Events without a name of note are kernels, or launches of them, when they correlate."""
    if "correlation_id" not in columns.stat_names:
        return types
    correlated = (types == NodeType.UNKNOWN) & columns.stat("correlation_id").present()
    kind = NodeType.KERNEL_LAUNCH if is_host else NodeType.KERNEL_EXECUTE
    return np.where(correlated, np.uint8(kind), types)


def _hubs(
    producers: list[tuple[Int64s, Int64s]], consumers: list[tuple[Int64s, Int64s]]
) -> tuple[tuple[Int64s, Int64s], tuple[Int64s, Int64s], int]:
    """Contexts that have both sides: (node, hub) of producers and consumers, and the count."""
    made_by = _joined([n for n, _ in producers], np.int64)
    made = _joined([k for _, k in producers], np.int64)
    used_by = _joined([n for n, _ in consumers], np.int64)
    used = _joined([k for _, k in consumers], np.int64)
    # A node that stands for no event takes no part.
    made_by, made = made_by[made_by >= 0], made[made_by >= 0]
    used_by, used = used_by[used_by >= 0], used[used_by >= 0]
    keys = np.intersect1d(made, used)
    made_by, made = _numbered(made_by, made, keys)
    used_by, used = _numbered(used_by, used, keys)
    crowded = (np.bincount(made, minlength=len(keys)) >= _CROWD) & (
        np.bincount(used, minlength=len(keys)) >= _CROWD
    )
    kept = ~crowded[made] if len(keys) else np.zeros(0, np.bool_)
    made_by, made = made_by[kept], made[kept]
    kept = ~crowded[used] if len(keys) else np.zeros(0, np.bool_)
    return (made_by, made), (used_by[kept], used[kept]), len(keys)


def _numbered(nodes: Int64s, keys: Int64s, known: Int64s) -> tuple[Int64s, Int64s]:
    if not len(known):
        return nodes[:0], keys[:0]
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    hit = known[at] == keys
    return nodes[hit], at[hit].astype(np.int64)


def _joined(arrays: Sequence[NDArray[T]], dtype: type[T]) -> NDArray[T]:
    return np.concatenate([np.zeros(0, dtype), *arrays])
