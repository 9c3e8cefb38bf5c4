"""Places for the nodes of a graph in layers: operands above their users, few lines crossing.

After Sugiyama, Tagawa and Toda (1981): layers by the longest path, order within a layer by the
mean place of neighbours, then places that pull neighbours together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

Size = tuple[float, float]
Edge = tuple[int, int]

GAP_X: Final = 24.0
GAP_Y: Final = 44.0
_SWEEPS: Final = 6
_MAX_BENDS: Final = 12_000


@dataclass(frozen=True)
class Layout:
    """Places in pixels from the upper left corner.

    Attributes:
        rank: Layer of each node, 0 above.
        x: Left edge of each node.
        y: Upper edge of each node.
        paths: The bends of each edge from its source to its target.
    """

    rank: Mapping[int, int]
    x: Mapping[int, float]
    y: Mapping[int, float]
    paths: Sequence[Sequence[tuple[float, float]]]
    width: float
    height: float


def layered(sizes: Mapping[int, Size], edges: Sequence[Edge]) -> Layout:
    """Lay a graph out; the same graph always gets the same places.

    Args:
        sizes: Width and height of each node.
        edges: Source and target of each edge; those of a cycle that point upwards are allowed.
    """
    rank = _ranks(list(sizes), edges)
    layers, chains, box = _layers(sizes, edges, rank)
    up, down = _neighbours(layers, chains)
    _order(layers, up, down)
    centre = _places(layers, up, down, box)
    top, height = _tops(layers, box)
    left = min((centre[one] - box[one][0] / 2 for layer in layers for one in layer), default=0.0)
    x = {one: centre[one] - box[one][0] / 2 - left for one in sizes}
    y = {one: top[rank[one]] for one in sizes}
    layer_height = [max((box[one][1] for one in layer), default=0.0) for layer in layers]
    paths = []
    for (source, target), chain in zip(edges, chains, strict=True):
        begin = (centre[source] - left, y[source] + box[source][1])
        bottom = (begin[0], top[rank[source]] + layer_height[rank[source]])
        # Out of the layer first: a lower neighbour would be crossed.
        bends = [bottom] if begin[1] < bottom[1] and rank[source] < rank[target] else []
        for bend, layer in zip(chain[1:-1], range(rank[source] + 1, rank[target]), strict=False):
            bends.append((centre[bend] - left, top[layer]))
            bends.append((centre[bend] - left, top[layer] + layer_height[layer]))
        paths.append([begin, *bends, (centre[target] - left, y[target])])
    width = max((x[one] + box[one][0] for one in sizes), default=0.0)
    return Layout(rank, x, y, paths, width, height)


def _ranks(nodes: Sequence[int], edges: Sequence[Edge]) -> dict[int, int]:
    """Layers by the longest path from above; what has nothing above is next to its users."""
    targets: dict[int, list[int]] = {one: [] for one in nodes}
    waiting = dict.fromkeys(nodes, 0)
    for source, target in edges:
        targets[source].append(target)
        waiting[target] += 1
    sources = [one for one in nodes if not waiting[one]]
    rank = dict.fromkeys(nodes, 0)
    ready = list(sources)
    for one in ready:
        for target in targets[one]:
            rank[target] = max(rank[target], rank[one] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    for one in sources:
        if targets[one]:
            rank[one] = max(0, min(rank[target] for target in targets[one]) - 1)
    return rank


def _layers(
    sizes: Mapping[int, Size], edges: Sequence[Edge], rank: Mapping[int, int]
) -> tuple[list[list[int]], list[list[int]], dict[int, Size]]:
    """Nodes by layer, with a bend of no size wherever an edge passes a layer."""
    box = dict(sizes)
    layers: list[list[int]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for one in sizes:
        layers[rank[one]].append(one)
    spans = [max(0, rank[target] - rank[source] - 1) for source, target in edges]
    has_bends = sum(spans) <= _MAX_BENDS
    chains: list[list[int]] = []
    bend = min(sizes, default=0) - 1
    for (source, _), span in zip(edges, spans, strict=True):
        chain = []
        for step in range(span if has_bends else 0):
            layers[rank[source] + 1 + step].append(bend)
            box[bend] = (4.0, 0.0)
            chain.append(bend)
            bend -= 1
        chains.append([source, *chain])
    for (_, target), chain in zip(edges, chains, strict=True):
        chain.append(target)
    return layers, chains, box


def _neighbours(
    layers: Sequence[Sequence[int]], chains: Sequence[Sequence[int]]
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    up: dict[int, list[int]] = {one: [] for layer in layers for one in layer}
    down: dict[int, list[int]] = {one: [] for layer in layers for one in layer}
    for chain in chains:
        for above, below in pairwise(chain):
            down[above].append(below)
            up[below].append(above)
    return up, down


def _order(
    layers: list[list[int]], up: Mapping[int, list[int]], down: Mapping[int, list[int]]
) -> None:
    """Sort every layer by the mean place of its neighbours, down and up again."""
    place: dict[int, float] = {one: float(at) for layer in layers for at, one in enumerate(layer)}
    for sweep in range(_SWEEPS):
        near, walked = (up, layers) if sweep % 2 == 0 else (down, layers[::-1])
        for layer in walked:
            wanted = {
                one: sum(place[other] for other in near[one]) / len(near[one])
                if near[one]
                else place[one]
                for one in layer
            }
            layer.sort(key=lambda one: wanted[one])
            place.update((one, float(at)) for at, one in enumerate(layer))


def _places(
    layers: Sequence[Sequence[int]],
    up: Mapping[int, list[int]],
    down: Mapping[int, list[int]],
    box: Mapping[int, Size],
) -> dict[int, float]:
    """Centres that are near those of neighbours, in the layers' order and without overlap."""
    centre: dict[int, float] = {}
    for layer in layers:
        edge = 0.0
        for one in layer:
            centre[one] = edge + box[one][0] / 2
            edge += box[one][0] + GAP_X
    for sweep in range(_SWEEPS):
        near, walked = (up, layers) if sweep % 2 == 0 else (down, layers[::-1])
        for layer in walked:
            wanted = [
                sum(centre[other] for other in near[one]) / len(near[one])
                if near[one]
                else centre[one]
                for one in layer
            ]
            _spread(layer, wanted, box, centre)
    return centre


def _spread(
    layer: Sequence[int],
    wanted: Sequence[float],
    box: Mapping[int, Size],
    centre: dict[int, float],
) -> None:
    """The middle of two ways to keep apart what wants the same place: to the right, to the left."""
    right: list[float] = []
    for at, one in enumerate(layer):
        least = (
            right[-1] + (box[layer[at - 1]][0] + box[one][0]) / 2 + GAP_X if right else wanted[at]
        )
        right.append(max(wanted[at], least))
    left: list[float] = []
    for at in range(len(layer) - 1, -1, -1):
        most = (
            left[-1] - (box[layer[at + 1]][0] + box[layer[at]][0]) / 2 - GAP_X
            if left
            else wanted[at]
        )
        left.append(min(wanted[at], most))
    for one, high, low in zip(layer, right, reversed(left), strict=True):
        centre[one] = (high + low) / 2


def _tops(layers: Sequence[Sequence[int]], box: Mapping[int, Size]) -> tuple[list[float], float]:
    tops: list[float] = []
    edge = 0.0
    for layer in layers:
        tops.append(edge)
        edge += max((box[one][1] for one in layer), default=0.0) + GAP_Y
    return tops, max(0.0, edge - GAP_Y)
