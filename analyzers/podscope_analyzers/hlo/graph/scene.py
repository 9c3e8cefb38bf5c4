"""A neighbourhood as boxes and lines: fusions opened in place, everything with its place."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from podscope_analyzers.hlo.graph.layout import Layout, Size, layered
from podscope_analyzers.hlo.graph.neighbourhood import (
    Computation,
    Connections,
    Instruction,
    Neighbour,
    Neighbourhood,
)
from podscope_analyzers.hlo.programs import Program

_LETTER: Final = 6.7
_NODE_HEIGHT: Final = 40.0
_PADDING: Final = 24.0
_WIDTHS: Final = (96.0, 260.0)
_GROUP_HEAD: Final = 30.0
_GROUP_SIDE: Final = 14.0

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Box:
    """A place in pixels from the upper left corner of the drawing."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> "Box":
        """The same, elsewhere."""
        return replace(self, x=self.x + x, y=self.y + y)


@dataclass(frozen=True)
class SceneNode:
    """An instruction as a box.

    Attributes:
        neighbour: The instruction and how far it is from the centre.
        computation: Name of the one it is in.
        group: Name of the opened fusion that it is in; empty outside of them.
        is_root: Whether it is its computation's result.
    """

    neighbour: Neighbour
    computation: str
    group: str
    rank: int
    box: Box
    is_root: bool


@dataclass(frozen=True)
class SceneEdge:
    """A line from an operand to its user.

    Attributes:
        operand: The operand's position, the first of several.
        points: Where the line begins, bends and ends.
    """

    source: str
    target: str
    operand: int
    points: Points


@dataclass(frozen=True)
class SceneGroup:
    """A fusion that is drawn with what is in it.

    Attributes:
        fusion: The fusion.
        computation: Name of what it computes.
        instructions: How many are in it.
    """

    fusion: Neighbour
    computation: str
    instructions: int
    box: Box


@dataclass(frozen=True)
class Scene:
    """All that is to be drawn."""

    nodes: Sequence[SceneNode]
    edges: Sequence[SceneEdge]
    groups: Sequence[SceneGroup]
    width: float
    height: float


def scene(program: Program, around: Neighbourhood, *, opens_fusions: bool, limit: int) -> Scene:
    """Lay a neighbourhood out.

    Args:
        program: The program of it.
        around: What is shown.
        opens_fusions: Whether fusions are drawn with what is in them.
        limit: Instructions that are drawn in all; fusions that exceed it stay closed.
    """
    inner: dict[int, tuple[Computation, Scene]] = {}
    left = limit - len(around.nodes)
    for neighbour in around.nodes if opens_fusions else ():
        computation = _fused(program, neighbour.proto)
        if computation is not None and len(computation.instructions) <= left:
            left -= len(computation.instructions)
            drawn = _flat(computation, list(_all_of(computation, neighbour.distance)), {})
            inner[neighbour.proto.id] = computation, drawn
    sizes = {number: _group_size(drawn) for number, (_, drawn) in inner.items()}
    outer = _flat(around.computation, around.nodes, sizes)
    nodes, edges, groups = [], list(outer.edges), []
    for node in outer.nodes:
        proto = node.neighbour.proto
        if proto.id not in inner:
            nodes.append(node)
            continue
        computation, drawn = inner[proto.id]
        count = len(computation.instructions)
        groups.append(SceneGroup(node.neighbour, computation.name, count, node.box))
        left_edge, top = node.box.x + _GROUP_SIDE, node.box.y + _GROUP_HEAD
        nodes += [
            replace(one, group=proto.name, box=one.box.moved(left_edge, top)) for one in drawn.nodes
        ]
        edges += [
            replace(one, points=[(x + left_edge, y + top) for x, y in one.points])
            for one in drawn.edges
        ]
    return Scene(nodes, edges, groups, outer.width, outer.height)


def _fused(program: Program, proto: Instruction) -> Computation | None:
    if proto.opcode != "fusion" or not proto.called_computation_ids:
        return None
    return program.computations.get(proto.called_computation_ids[0])


def _all_of(computation: Computation, distance: int) -> Iterator[Neighbour]:
    return (Neighbour(one, distance, 0, 0) for one in computation.instructions)


def _group_size(drawn: Scene) -> Size:
    return drawn.width + 2 * _GROUP_SIDE, drawn.height + _GROUP_HEAD + _GROUP_SIDE


def _flat(
    computation: Computation, neighbours: Sequence[Neighbour], opened: Mapping[int, Size]
) -> Scene:
    """Instructions of one computation, laid out together."""
    by_id = {one.proto.id: one for one in neighbours}
    operands = Connections(computation).operands
    edges = [
        (operand, number) for number in by_id for operand in operands[number] if operand in by_id
    ]
    sizes = {number: opened.get(number) or _size(one.proto) for number, one in by_id.items()}
    layout = layered(sizes, edges)
    return Scene(
        [
            SceneNode(
                one,
                computation.name,
                "",
                layout.rank[number],
                Box(layout.x[number], layout.y[number], *sizes[number]),
                number == computation.root_id,
            )
            for number, one in by_id.items()
        ],
        list(_edges(by_id, edges, layout)),
        [],
        layout.width,
        layout.height,
    )


def _edges(
    by_id: Mapping[int, Neighbour], edges: Sequence[tuple[int, int]], layout: Layout
) -> Iterator[SceneEdge]:
    for (source, target), points in zip(edges, layout.paths, strict=True):
        user = by_id[target].proto
        position = list(user.operand_ids).index(source)
        yield SceneEdge(by_id[source].proto.name, user.name, position, points)


def _size(proto: Instruction) -> Size:
    letters = max(len(proto.name), len(proto.opcode) + 12)
    least, most = _WIDTHS
    return min(most, max(least, letters * _LETTER + _PADDING)), _NODE_HEIGHT
