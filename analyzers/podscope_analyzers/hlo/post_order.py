"""In which order XLA walks the instructions of a computation that has no schedule."""

from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto


def post_order(computation: hlo_pb2.HloComputationProto) -> list[Proto]:
    """Instructions after their operands, depth first from those that nothing uses.

    Instructions count in the order in which they are stored. What must run before by a control
    dependency is walked before the operands, the last one named first.
    """
    by_id: dict[int, Proto] = {}
    operands: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    used: set[int] = set()
    # A message's fields are slow to come by: each is read once.
    for one in computation.instructions:
        number = one.id
        by_id[number] = one
        operands[number] = listed = list(one.operand_ids)
        used.update(listed)
        if one.control_predecessor_ids:
            before[number] = list(one.control_predecessor_ids)
    order: list[Proto] = []
    entered: set[int] = set()
    done: set[int] = set()
    for start in by_id:
        if start in used:
            continue
        stack = [start]
        while stack:
            current = stack[-1]
            if current in entered:
                stack.pop()
                if current not in done:
                    done.add(current)
                    order.append(by_id[current])
                continue
            entered.add(current)
            wanted = (*reversed(operands[current]), *before.get(current, ()))
            stack.extend(one for one in wanted if one not in done and one in by_id)
    return order
