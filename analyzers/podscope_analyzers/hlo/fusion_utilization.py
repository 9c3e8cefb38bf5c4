"""How often the instructions in a fusion are evaluated for each of their elements."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from podscope_analyzers.hlo.instructions import ELEMENTWISE
from podscope_analyzers.hlo.shapes import elements
from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto

_PASSES_ROOTS = ELEMENTWISE | {"map", "rng", "copy", "tuple", "get-tuple-element"}


def post_order(computation: hlo_pb2.HloComputationProto) -> list[Proto]:
    """Instructions after their operands, depth first from those that nothing uses."""
    by_id = {proto.id: proto for proto in computation.instructions}
    used = {operand for proto in computation.instructions for operand in proto.operand_ids}
    order: list[Proto] = []
    done: set[int] = set()
    for start in computation.instructions:
        if start.id in used:
            continue
        stack = [(start, iter(start.operand_ids))]
        pending = {start.id}
        while stack:
            proto, operands = stack[-1]
            for operand in operands:
                if operand in by_id and operand not in done and operand not in pending:
                    pending.add(operand)
                    stack.append((by_id[operand], iter(by_id[operand].operand_ids)))
                    break
            else:
                stack.pop()
                done.add(proto.id)
                order.append(proto)
    return order


def fused_utilization(
    order: Sequence[Proto],
    root: Proto,
    by_id: Mapping[int, Proto],
    operand_utilization: Callable[[Proto], Mapping[int, float]],
) -> dict[int, float]:
    """Evaluations per element of every instruction of a fused computation, by id.

    Elementwise instructions are evaluated where their user is: they share its roots. Any other
    use makes the operand a root of its own, evaluated as often as the user needs.

    Args:
        order: The computation, operands first.
        root: Its result.
        by_id: Its instructions.
        operand_utilization: Share of each operand that an instruction uses, by position; 1
            where it is missing.
    """
    roots: dict[int, set[int]] = {root.id: {root.id}}
    value: dict[int, float] = {root.id: 1.0}
    utilization: dict[int, float] = {}
    for proto in reversed(order):
        own = roots.get(proto.id, set())
        used = utilization[proto.id] = sum(value[one] for one in sorted(own))
        if proto.opcode in _PASSES_ROOTS:
            for operand in proto.operand_ids:
                roots.setdefault(operand, set()).update(own)
            continue
        shares = operand_utilization(proto)
        for position, operand in enumerate(proto.operand_ids):
            if operand not in by_id:
                continue
            roots.setdefault(operand, set()).add(operand)
            count = elements(by_id[operand].shape)
            needed = ceil(used * shares.get(position, 1.0) * count) / count if count else 0.0
            value[operand] = value.get(operand, 0.0) + needed
    return utilization
