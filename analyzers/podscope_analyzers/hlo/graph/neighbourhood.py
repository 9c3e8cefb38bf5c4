"""Which instructions are around one: over operands and users, nearest first, a page at a time."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podscope_analyzers.hlo.programs import Program
from podscope_protos.v1 import hlo_pb2

Instruction = hlo_pb2.HloInstructionProto
Computation = hlo_pb2.HloComputationProto


@dataclass(frozen=True)
class Neighbour:
    """An instruction of a neighbourhood.

    Attributes:
        proto: The instruction.
        distance: Steps from the centre over operands and users.
        operands_left_out: Operands that are not shown, each once.
        users_left_out: Users that are not shown.
    """

    proto: Instruction
    distance: int
    operands_left_out: int
    users_left_out: int


@dataclass(frozen=True)
class Neighbourhood:
    """A page of the instructions around one, all of one computation.

    Attributes:
        nodes: In order of distance; the centre is on every page.
        total: Instructions within the distance, shown or not.
        begin: Where among them the page begins.
        cursor: Where the next page begins; None on the last.
    """

    computation: Computation
    nodes: Sequence[Neighbour]
    total: int
    begin: int
    cursor: int | None


class Connections:
    """Operands and users of a computation's instructions, each once."""

    def __init__(self, computation: Computation) -> None:
        self.by_id = {one.id: one for one in computation.instructions}
        self.operands = {
            number: [i for i in dict.fromkeys(one.operand_ids) if i in self.by_id]
            for number, one in self.by_id.items()
        }
        self.users: dict[int, list[int]] = {number: [] for number in self.by_id}
        for number, operands in self.operands.items():
            for operand in operands:
                self.users[operand].append(number)


def computation_of(program: Program, node: Instruction) -> Computation:
    """The computation that an instruction is in."""
    for computation in program.module.computations:
        for one in computation.instructions:
            if one.id == node.id and one.name == node.name:
                return computation
    msg = f"{node.name} is in no computation"
    raise KeyError(msg)


def neighbourhood(
    computation: Computation,
    centre: Instruction | None,
    width: int,
    *,
    limit: int,
    begin: int = 0,
) -> Neighbourhood:
    """The instructions around one; around none, the whole computation in its order.

    Args:
        computation: Where the centre is.
        centre: The instruction.
        width: How many steps away instructions may be.
        limit: How many of them one page has.
        begin: Where the page begins.
    """
    connections = Connections(computation)
    order: Mapping[int, int] = (
        dict.fromkeys(connections.by_id, 0)
        if centre is None
        else _distances(connections, centre.id, width)
    )
    listed = list(order)
    page = listed[begin : begin + limit]
    if centre is not None and begin and centre.id not in page:
        page.insert(0, centre.id)
    shown = set(page)
    nodes = [
        Neighbour(
            connections.by_id[number],
            order[number],
            sum(one not in shown for one in connections.operands[number]),
            sum(one not in shown for one in connections.users[number]),
        )
        for number in page
    ]
    end = begin + limit
    return Neighbourhood(computation, nodes, len(listed), begin, end if end < len(listed) else None)


def _distances(connections: Connections, centre: int, width: int) -> Mapping[int, int]:
    distance = {centre: 0}
    pending = deque([centre])
    while pending:
        current = pending.popleft()
        if distance[current] == width:
            continue
        for other in (*connections.operands[current], *connections.users[current]):
            if other not in distance:
                distance[other] = distance[current] + 1
                pending.append(other)
    return distance


def adjacent_names(program: Program, node: Instruction) -> tuple[list[str], list[str]]:
    """Direct operands and users; what only picks an element of a tuple is passed through."""
    connections = Connections(computation_of(program, node))
    by_id = connections.by_id

    def reached(number: int, edges: Mapping[int, Sequence[int]]) -> list[str]:
        found: dict[str, None] = {}
        pending = list(edges[number])
        seen = {number}
        for one in pending:
            if one in seen:
                continue
            seen.add(one)
            if by_id[one].name.startswith("get-tuple-element"):
                pending.extend(edges[one])
            else:
                found[by_id[one].name] = None
        return list(found)

    return reached(node.id, connections.operands), reached(node.id, connections.users)
