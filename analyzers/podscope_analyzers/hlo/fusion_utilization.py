"""How often the instructions in a fusion are evaluated for each of their elements."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from podscope_analyzers.hlo.instructions import ELEMENTWISE
from podscope_analyzers.hlo.shapes import bit_width, elements
from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto

_PASSES_ROOTS = ELEMENTWISE | {"map", "rng", "copy", "tuple", "get-tuple-element"}


def _only_renames_bits(proto: Proto, by_id: Mapping[int, Proto]) -> bool:
    if proto.opcode != "bitcast-convert" or not proto.operand_ids:
        return False
    operand = by_id.get(proto.operand_ids[0])
    return operand is not None and bit_width(operand.shape.element_type) == bit_width(
        proto.shape.element_type
    )


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
        if proto.opcode in _PASSES_ROOTS or _only_renames_bits(proto, by_id):
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
