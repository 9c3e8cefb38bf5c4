"""Which instructions a drawing shows, and how: as boxes, opened, or inside their users.

The choice is that of XLA's own graph dumper: constants are told inside their users, called
computations are opened, and the users of instructions that have very many are passed over.
"""

from collections import deque
from math import prod
from typing import Final

from podscope_analyzers.hlo.graph.neighbourhood import (
    Computation,
    Connections,
    Instruction,
    computation_of,
)
from podscope_analyzers.hlo.programs import Program
from podscope_analyzers.hlo.shapes import is_tuple

_MAX_USERS: Final = 16
_TUPLE_USERS: Final = 3
_COMMUTES: Final = frozenset({"add", "and", "maximum", "minimum", "multiply", "or", "xor"})
_TRIVIAL: Final = {
    **{name: name for name in ("add", "multiply", "xor", "and", "or")},
    "minimum": "min",
    "maximum": "max",
}
_COMPARES: Final = {
    "LE": "less-or-equal",
    "GE": "greater-or-equal",
    "GT": "greater-than",
    "LT": "less-than",
    "EQ": "equal-to",
    "NE": "not-equal-to",
}


class Selection:
    """What is shown of a program around an instruction, or of a whole computation.

    Attributes:
        program: The program.
        width: Steps over operands, users and called computations.
        computation: The one that is drawn; others are opened inside it.
        centre: The instruction in the middle; None where a whole computation is shown.
        homes: The computation that each instruction is in, by id.
        fusions: The fusion that a computation is of, by the computation's id.
        callers: Instructions that call a computation, by its id.
        omitted: Ids of instructions whose operands or users are not all shown.
    """

    def __init__(
        self,
        program: Program,
        node: Instruction | Computation,
        width: int,
        *,
        opens_fusions: bool,
    ) -> None:
        self.program = program
        self.width = width
        self._opens_fusions = opens_fusions
        self.homes = {
            one.id: computation
            for computation in program.module.computations
            for one in computation.instructions
        }
        self.fusions = {
            one.called_computation_ids[0]: one
            for one in program.by_id.values()
            if one.opcode == "fusion" and one.called_computation_ids
        }
        self.callers: dict[int, list[Instruction]] = {c.id: [] for c in self.homes.values()}
        for one in program.by_id.values():
            for called in dict.fromkeys(one.called_computation_ids):
                self.callers.setdefault(called, []).append(one)
        self._connections: dict[int, Connections] = {}
        self.omitted: set[int] = set()
        self._without_operands: set[int] = set()
        self.centre: Instruction | None = None
        self._shown: set[int] = set()
        if isinstance(node, Instruction):
            self.centre = node
            self.computation = computation_of(program, node)
            self._shown = self._around(node)
        else:
            self.computation = node

    def _of(self, proto: Instruction) -> Connections:
        home = self.homes[proto.id]
        if home.id not in self._connections:
            self._connections[home.id] = Connections(home)
        return self._connections[home.id]

    def operands(self, proto: Instruction) -> list[Instruction]:
        """Those of its operands that the program has."""
        by_id = self.program.by_id
        return [by_id[one] for one in proto.operand_ids if one in by_id]

    def _users(self, proto: Instruction) -> list[Instruction]:
        by_id = self.program.by_id
        return [by_id[one] for one in self._of(proto).users[proto.id]]

    def called(self, proto: Instruction) -> list[Computation]:
        """Those of its called computations that the program has."""
        known = self.program.computations
        return [known[one] for one in proto.called_computation_ids if one in known]

    def _around(self, centre: Instruction) -> set[int]:
        """Ids of the instructions within ``width`` steps, and notes of which lists are cut."""
        found: dict[int, bool] = {}
        reached: dict[int, int] = {}
        pending = deque([(centre, 0)])
        while pending:
            one, depth = pending.popleft()
            # Where many paths lead to one instruction, the shortest is gone on from, once.
            if reached.get(one.id, depth + 1) <= depth:
                continue
            reached[one.id] = depth
            found.setdefault(one.id, False)
            if depth == self.width:
                continue
            if one.id == centre.id or one.opcode != "tuple":
                for operand in self.operands(one):
                    if operand.id not in found:
                        is_free = "bitcast" in (operand.opcode, one.opcode)
                        pending.append((operand, depth if is_free else depth + 1))
            for computation in self.called(one):
                root = self.program.by_id.get(computation.root_id)
                if root is not None:
                    pending.append((root, depth + 1))
            if one.opcode == "constant":
                continue
            users = self._users(one)
            if len(users) > _MAX_USERS:
                found[one.id] = True
                continue
            pending.extend((user, depth + 1) for user in users if user.id not in found)
        home = self.homes[centre.id].id

        def is_displayed(one: Instruction) -> bool:
            return one.id in found or one.opcode == "constant" or self.homes[one.id].id != home

        for number, has_many in found.items():
            one = self.program.by_id[number]
            shown = [is_displayed(operand) for operand in self.operands(one)]
            if shown and not all(shown):
                self.omitted.add(number)
                self._without_operands.add(number)
            elif has_many and not all(is_displayed(user) for user in self._users(one)):
                self.omitted.add(number)
        self.omitted.discard(centre.id)
        self._without_operands.discard(centre.id)
        return set(found)

    def shows(self, proto: Instruction) -> bool:
        """Whether it is drawn, be it inside another's box."""
        if self.centre is None:
            return True
        return proto.id in self._shown or self.homes[proto.id].id != self.computation.id

    def is_opened(self, proto: Instruction, computation: Computation) -> bool:
        """Whether a computation that an instruction calls is drawn."""
        if proto.opcode == "fusion":
            return (
                self._opens_fusions and self.shows(proto) and proto.id not in self._without_operands
            )
        if self.trivial(computation):
            return False
        return any(self.shows(one) for one in computation.instructions)

    def is_drawn_inside(self, proto: Instruction) -> bool:
        """A fusion in whose place its instructions stand."""
        called = self.called(proto) if proto.opcode == "fusion" else []
        return bool(called) and self.is_opened(proto, called[0])

    def is_inlined(self, proto: Instruction) -> bool:
        """Whether it is told in the boxes of its users instead of having its own."""
        if proto.opcode in ("constant", "get-tuple-element") or self._is_scalar_broadcast(proto):
            return proto.id != self.homes[proto.id].root_id
        if proto.opcode != "parameter":
            return False
        if self.is_fused(proto):
            given = self.given(proto)
            return given is not None and given.opcode == "constant"
        if not is_tuple(proto.shape):
            return False
        users = [user for user in self._users(proto) if self.shows(user)]
        return len(users) > _TUPLE_USERS and all(
            user.opcode == "get-tuple-element" for user in users
        )

    def given(self, parameter: Instruction) -> Instruction | None:
        """What a fusion gives to a parameter inside it."""
        operands = self.operands(self.fusions[self.homes[parameter.id].id])
        number = parameter.parameter_number
        return operands[number] if 0 <= number < len(operands) else None

    def is_fused(self, proto: Instruction) -> bool:
        """Whether it stands in a fusion."""
        return self.homes[proto.id].id in self.fusions

    def _is_scalar_broadcast(self, proto: Instruction) -> bool:
        if proto.opcode != "broadcast" or not self.is_fused(proto):
            return False
        operand = self.operands(proto)[:1]
        return (
            bool(operand)
            and operand[0].opcode == "constant"
            and all(size == 1 for size in operand[0].shape.dimensions)
        )

    def trivial(self, computation: Computation) -> str:
        """What a computation of two scalars and one operation does; empty for any other."""
        instructions = computation.instructions
        if len(instructions) != len(("one", "other", "root")):
            return ""
        root = next((one for one in instructions if one.id == computation.root_id), None)
        if root is None:
            return ""
        operands = self.operands(root)
        numbers = [one.parameter_number for one in operands if one.opcode == "parameter"]
        if sorted(numbers) != [0, 1] or any(prod(o.shape.dimensions) != 1 for o in operands):
            return ""
        if root.opcode == "compare":
            direction = root.comparison_direction
            return _COMPARES.get(direction, "") if numbers == [0, 1] or direction in "EQNE" else ""
        if numbers == [1, 0] and root.opcode not in _COMMUTES:
            return ""
        return _TRIVIAL.get(root.opcode, "")

    def end(self, proto: Instruction) -> Instruction:
        """What a line from an instruction begins at: of an opened fusion, its result."""
        for _ in range(len(self.homes)):
            if self.is_drawn_inside(proto):
                inner = self.program.by_id.get(self.called(proto)[0].root_id)
            elif proto.opcode == "get-tuple-element":
                inner = next(iter(self.operands(proto)), None)
            else:
                return proto
            if inner is None:
                break
            proto = inner
        return proto

    def is_centre(self, proto: Instruction) -> bool:
        """Whether the drawing is of its neighbourhood."""
        return self.centre is not None and proto.id == self.centre.id
