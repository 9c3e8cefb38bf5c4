"""A neighbourhood as DOT text, with the choice, labels and lines of XLA's own graph dumper.

It draws constants inside their users, opens called computations as clusters, passes over the
users of instructions that have very many, and says by a dashed border what it left out.
"""

import html
from collections import deque
from collections.abc import Iterator
from math import prod
from typing import Final

from podscope_analyzers.hlo.graph.colours import colour
from podscope_analyzers.hlo.graph.neighbourhood import (
    Computation,
    Connections,
    Instruction,
    computation_of,
)
from podscope_analyzers.hlo.instructions import category
from podscope_analyzers.hlo.programs import Program
from podscope_analyzers.hlo.shapes import elements, is_tuple, leaves
from podscope_analyzers.hlo.text import Printer, Style
from podscope_analyzers.hlo.text.literal_text import literal_text
from podscope_analyzers.hlo.text.shape_text import shape_text

_MAX_USERS: Final = 16
_MAX_DEPTH: Final = 64
_TUPLE_USERS: Final = 3
_MAX_SHAPE: Final = 64
_MAX_GROUPS: Final = 128
_MAX_LITERAL: Final = 64
_LITERAL_ELEMENTS: Final = 8
_SMALL_ELEMENTS: Final = 4096
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
_LONG_ATTRIBUTES: Final = ("replica_groups=", "source_target_pairs=", "control-predecessors=")
_DIMENSION_NUMBERS: Final = (
    *("lhs_batch", "lhs_contracting", "rhs_batch", "rhs_contracting", "offset_dims"),
    *("collapsed_slice", "start_index_map", "operand_batching", "start_indices_batching"),
    *("update_window", "inserted_window", "scatter_dims", "input_batching", "scatter_indices"),
    "index_vector",
)


def escaped(text: str) -> str:
    """Text inside a label, with quotation marks but no apostrophes escaped."""
    return html.escape(text, quote=False).replace('"', "&quot;")


def dot_text(
    program: Program,
    node: Instruction | Computation,
    width: int,
    *,
    shows_backend: bool = False,
    opens_fusions: bool = True,
) -> str:
    """The neighbourhood of an instruction, or a whole computation.

    Args:
        program: The program.
        node: The instruction or computation.
        width: Steps over operands, users and called computations.
        shows_backend: Whether boxes show what the compiler's backend noted.
        opens_fusions: Whether fusions are drawn with what is in them.
    """
    return "".join(
        _Drawing(program, node, width, shows_backend, opens_fusions).lines(),
    )


class _Drawing:
    def __init__(
        self,
        program: Program,
        node: Instruction | Computation,
        width: int,
        shows_backend: bool,
        opens_fusions: bool,
    ) -> None:
        self._program = program
        self._width = width
        self._shows_backend = shows_backend
        self._opens_fusions = opens_fusions
        self._printer = Printer(
            program, Style(percent=True, control_predecessors=True, references=False)
        )
        self._homes = {
            one.id: computation
            for computation in program.module.computations
            for one in computation.instructions
        }
        self._fusions = {
            one.called_computation_ids[0]: one
            for one in program.by_id.values()
            if one.opcode == "fusion" and one.called_computation_ids
        }
        self._callers: dict[int, list[Instruction]] = {c.id: [] for c in self._homes.values()}
        for one in program.by_id.values():
            for called in dict.fromkeys(one.called_computation_ids):
                self._callers.setdefault(called, []).append(one)
        self._connections: dict[int, Connections] = {}
        self._edges: list[str] = []
        self._drawn: set[int] = set()
        self._depth = 0
        # Where the reference cuts lists short it says so by a dashed border.
        self._omitted: set[int] = set()
        self._without_operands: set[int] = set()
        if isinstance(node, Instruction):
            self._centre: Instruction | None = node
            self._computation = computation_of(program, node)
            self._shown = self._around(node)
        else:
            self._centre = None
            self._computation = node
            self._shown = set()

    def lines(self) -> Iterator[str]:
        body = self._computation_body(self._computation)
        yield "digraph G {\nrankdir = TB;\ncompound = true;\n"
        yield f"label = <<b>{'<br/>'.join(self._title())}</b>>;\n"
        yield 'labelloc = t;\ntooltip = " ";\n\n'
        yield body
        yield self._root_tag()
        yield "".join(f"{edge}\n" for edge in self._edges)
        yield "}"

    def _title(self) -> Iterator[str]:
        computation = self._computation
        if self._centre is not None:
            yield f"Neighborhood of {self._width} nodes around {escaped(self._centre.name)}"
        else:
            yield ""
        fusion = self._fusions.get(computation.id)
        where = f" (in fusion instruction {escaped(fusion.name)})" if fusion else ""
        yield f"Computation {escaped(computation.name)}{where}"
        if computation.id == self._program.module.entry_computation_id:
            yield "ENTRY computation"
        elif fusion is None and self._callers[computation.id]:
            callers = ", ".join(escaped(one.name) for one in self._callers[computation.id])
            yield f"Caller instructions: {callers}"

    def _of(self, proto: Instruction) -> Connections:
        home = self._homes[proto.id]
        if home.id not in self._connections:
            self._connections[home.id] = Connections(home)
        return self._connections[home.id]

    def _operands(self, proto: Instruction) -> list[Instruction]:
        by_id = self._program.by_id
        return [by_id[one] for one in proto.operand_ids if one in by_id]

    def _users(self, proto: Instruction) -> list[Instruction]:
        by_id = self._program.by_id
        return [by_id[one] for one in self._of(proto).users[proto.id]]

    def _called(self, proto: Instruction) -> list[Computation]:
        known = self._program.computations
        return [known[one] for one in proto.called_computation_ids if one in known]

    def _around(self, centre: Instruction) -> set[int]:
        found: dict[int, bool] = {}
        pending = deque([(centre, 0)])
        while pending:
            one, depth = pending.popleft()
            found.setdefault(one.id, False)
            if depth == self._width:
                continue
            if one.id == centre.id or one.opcode != "tuple":
                for operand in self._operands(one):
                    if operand.id not in found:
                        is_free = "bitcast" in (operand.opcode, one.opcode)
                        pending.append((operand, depth if is_free else depth + 1))
            for computation in self._called(one):
                root = self._program.by_id.get(computation.root_id)
                if root is not None:
                    pending.append((root, depth + 1))
            if one.opcode == "constant":
                continue
            users = self._users(one)
            if len(users) > _MAX_USERS:
                found[one.id] = True
                continue
            pending.extend((user, depth + 1) for user in users if user.id not in found)
        home = self._homes[centre.id].id

        def is_displayed(one: Instruction) -> bool:
            return one.id in found or one.opcode == "constant" or self._homes[one.id].id != home

        for number, has_many in found.items():
            one = self._program.by_id[number]
            shown = [is_displayed(operand) for operand in self._operands(one)]
            if shown and not all(shown):
                self._omitted.add(number)
                self._without_operands.add(number)
            elif has_many and not all(is_displayed(user) for user in self._users(one)):
                self._omitted.add(number)
        self._omitted.discard(centre.id)
        self._without_operands.discard(centre.id)
        return set(found)

    def _shows(self, proto: Instruction) -> bool:
        if self._centre is None:
            return True
        return proto.id in self._shown or self._homes[proto.id].id != self._computation.id

    def _is_opened(self, proto: Instruction, computation: Computation) -> bool:
        if proto.opcode == "fusion":
            return (
                self._opens_fusions
                and self._shows(proto)
                and proto.id not in self._without_operands
            )
        if self._trivial(computation):
            return False
        return any(self._shows(one) for one in computation.instructions)

    def _is_drawn_inside(self, proto: Instruction) -> bool:
        """A fusion in whose place its instructions stand."""
        called = self._called(proto) if proto.opcode == "fusion" else []
        return bool(called) and self._is_opened(proto, called[0])

    def _is_inlined(self, proto: Instruction) -> bool:
        """Whether it is told in the boxes of its users instead of having its own."""
        if proto.opcode in ("constant", "get-tuple-element") or self._is_scalar_broadcast(proto):
            return proto.id != self._homes[proto.id].root_id
        if proto.opcode != "parameter":
            return False
        if self._is_fused(proto):
            given = self._given(proto)
            return given is not None and given.opcode == "constant"
        if not is_tuple(proto.shape):
            return False
        users = [user for user in self._users(proto) if self._shows(user)]
        return len(users) > _TUPLE_USERS and all(
            user.opcode == "get-tuple-element" for user in users
        )

    def _given(self, parameter: Instruction) -> Instruction | None:
        """What a fusion gives to a parameter inside it."""
        operands = self._operands(self._fusions[self._homes[parameter.id].id])
        number = parameter.parameter_number
        return operands[number] if 0 <= number < len(operands) else None

    def _is_fused(self, proto: Instruction) -> bool:
        return self._homes[proto.id].id in self._fusions

    def _is_scalar_broadcast(self, proto: Instruction) -> bool:
        if proto.opcode != "broadcast" or not self._is_fused(proto):
            return False
        operand = self._operands(proto)[:1]
        return (
            bool(operand)
            and operand[0].opcode == "constant"
            and all(size == 1 for size in operand[0].shape.dimensions)
        )

    def _computation_body(self, computation: Computation) -> str:
        parts: list[str] = []
        for one in sorted(computation.instructions, key=lambda one: one.id):
            if not self._shows(one):
                continue
            for inner in self._called(one):
                if not self._is_opened(one, inner):
                    continue
                if one.opcode != "fusion":
                    self._returned(inner, one)
                if inner.id not in self._drawn:
                    self._drawn.add(inner.id)
                    self._depth += 1
                    if self._depth <= _MAX_DEPTH:
                        parts.append(self._cluster(inner, one))
                    self._depth -= 1
            if not self._is_inlined(one) and not self._is_drawn_inside(one):
                parts.append(self._box(one))
                self._incoming(one)
        return "".join(parts)

    def _cluster(self, computation: Computation, caller: Instruction) -> str:
        name = f"cluster_{computation.id}"
        if caller.opcode == "fusion":
            fill = "#ffcdd2" if self._is_centre(caller) else "#f4f5f7"
            style = f'style="rounded,filled,bold"; fillcolor="{fill}"; color="#4a525c;"'
            label = [
                f"Fused expression for <b>{escaped(caller.name)}</b>",
                escaped(category(self._program, caller)),
                *self._extra(caller),
                *self._backend(caller),
            ]
        else:
            style = "style=rounded; color=black;"
            label = [
                f"Subcomputation for <b>{escaped(caller.name)}</b>",
                escaped(computation.name),
            ]
        body = self._computation_body(computation)
        return (
            f"subgraph {name} {{\n{style}\nlabel = <{'<br/>'.join(label)}>;\nlabelloc = t;\n"
            f'tooltip = " ";\n{body}\n}}  // {name}\n\n'
        )

    def _returned(self, computation: Computation, caller: Instruction) -> None:
        """The line from a called computation's result to its caller."""
        root = self._program.by_id.get(computation.root_id)
        if root is not None:
            title = f"{computation.name} -> {caller.name}"
            self._edges.append(
                f'{self._end(root).id} -> {caller.id} [ltail="cluster_{computation.id}", '
                f'style="dashed" tooltip="{title}"];'
            )

    def _is_centre(self, proto: Instruction) -> bool:
        return self._centre is not None and proto.id == self._centre.id

    def _box(self, proto: Instruction) -> str:
        body = "<br/>".join(
            [
                *self._label(proto),
                *self._subcomputations(proto),
                *self._extra(proto),
                *self._inlined(proto),
                *self._backend(proto),
            ]
        )
        shape = "ellipse" if proto.opcode == "while" else "rect"
        style, font, fill = "filled", "black", colour(proto.opcode)
        line = "#4a525c"
        if proto.id in self._omitted:
            style, fill = "filled,dashed", "white"
        if self._is_centre(proto):
            shape, font, fill, line = "diamond", "white", "#b71c1c", "#7f0000"
        return (
            f'{proto.id} [label=<{body}>, shape={shape}, tooltip="{self._noted(proto)}", '
            f'style="{style}", fontcolor="{font}", color="{line}", fillcolor="{fill}"];\n'
        )

    def _label(self, proto: Instruction) -> Iterator[str]:
        if proto.opcode == "parameter":
            yield f"<b>Parameter {proto.parameter_number}</b>"
            yield from self._origin(proto)
            return
        yield f"<b>{escaped(proto.name)}</b>"
        if not proto.name.startswith(proto.opcode):
            kind = f":{proto.fusion_kind}" if proto.opcode == "fusion" else ""
            yield escaped(proto.opcode) + kind

    def _origin(self, parameter: Instruction) -> Iterator[str]:
        """Which instruction a called computation has its parameter from."""
        callers = self._callers[self._homes[parameter.id].id]
        if len(callers) != 1 or callers[0].opcode != "call":
            return
        operands = self._operands(callers[0])
        if parameter.parameter_number < len(operands):
            home = self._homes[callers[0].id]
            is_entry = home.id == self._program.module.entry_computation_id
            picked = operands[parameter.parameter_number]
            given = self._end(picked)
            for _ in range(_MAX_DEPTH):
                called = self._called(given) if given.opcode == "call" else []
                root = self._program.by_id.get(called[0].root_id) if called else None
                if root is None:
                    break
                if picked.opcode == "get-tuple-element" and root.opcode == "tuple":
                    inside = self._operands(root)
                    if picked.tuple_index >= len(inside):
                        break
                    root = inside[picked.tuple_index]
                home, picked, given, is_entry = called[0], root, self._end(root), False
            where = "the ENTRY computation" if is_entry else escaped(home.name)
            name = escaped(given.name)
            yield f"<i>from {name} in {where}</i>"

    def _subcomputations(self, proto: Instruction) -> Iterator[str]:
        called = self._called(proto) if proto.opcode != "fusion" else []
        for number, computation in enumerate(called):
            kind = self._trivial(computation)
            if kind:
                which = f" {number}" if len(called) > 1 else ""
                yield f"Subcomputation{which}: <b>{kind}</b>"

    def _trivial(self, computation: Computation) -> str:
        """What a computation of two scalars and one operation does; empty for any other."""
        instructions = computation.instructions
        root = next((one for one in instructions if one.id == computation.root_id), None)
        if len(instructions) != len(("one", "other", "root")) or root is None:
            return ""
        operands = self._operands(root)
        numbers = [one.parameter_number for one in operands if one.opcode == "parameter"]
        if sorted(numbers) != [0, 1] or any(prod(o.shape.dimensions) != 1 for o in operands):
            return ""
        if root.opcode == "compare":
            direction = root.comparison_direction
            return _COMPARES.get(direction, "") if numbers == [0, 1] or direction in "EQNE" else ""
        if numbers == [1, 0] and root.opcode not in _COMMUTES:
            return ""
        return _TRIVIAL.get(root.opcode, "")

    def _extra(self, proto: Instruction) -> Iterator[str]:
        for attribute in self._joined(proto):
            text = attribute
            if text.startswith(_LONG_ATTRIBUTES) and len(text) > _MAX_GROUPS:
                text = text[: _MAX_GROUPS - 3] + "..."
            # Which features are apart is easily overlooked, and changes the cost by a factor.
            is_marked = text.startswith("feature_group_count=")
            yield f"<b>{escaped(text)}</b>" if is_marked else escaped(text)
        if not self._is_drawn_inside(proto):
            is_wide = any(len(leaf.dimensions) > 1 for _, leaf in leaves(proto.shape))
            text = shape_text(proto.shape, layout=proto.opcode != "tuple" and is_wide)
            if len(text) > _MAX_SHAPE:
                text = text[: _MAX_SHAPE - 3] + "..."
            yield escaped(text)

    def _joined(self, proto: Instruction) -> Iterator[str]:
        """Attributes, those of one set of dimension numbers on one line."""
        together: list[str] = []
        for attribute in self._printer.attributes(proto):
            if attribute.startswith(_DIMENSION_NUMBERS):
                together.append(attribute)
                continue
            if together:
                yield ", ".join(together)
                together = []
            yield attribute
        if together:
            yield ", ".join(together)

    def _inlined(self, proto: Instruction) -> Iterator[str]:
        if proto.opcode == "parameter" and self._is_fused(proto):
            given = self._given(proto)
            text = "" if given is None else self._inlined_text(given)
            if text:
                yield escaped(text)
            return
        operands = self._operands(proto)
        for number, operand in enumerate(operands):
            text = self._inlined_text(operand)
            if text:
                which = f"operand {number}" if len(operands) > 1 else "operand"
                yield f"<b>{which}</b> = {escaped(text)}"

    def _inlined_text(self, proto: Instruction) -> str:
        if not self._is_inlined(proto):
            return ""
        if proto.opcode == "parameter":
            given = self._given(proto) if self._is_fused(proto) else None
            return (
                f"Parameter {proto.parameter_number}"
                if given is None
                else self._constant(given, given)
            )
        if proto.opcode == "get-tuple-element":
            whole = self._operands(proto)[0]
            shape = shape_text(proto.shape)
            return f"tuple-element {proto.tuple_index} of {whole.name} {shape}"
        return self._constant(
            self._operands(proto)[0] if proto.opcode == "broadcast" else proto, proto
        )

    def _constant(self, constant: Instruction, shown_as: Instruction) -> str:
        shape = shape_text(shown_as.shape, layout=False)
        if 0 in shown_as.shape.dimensions:
            return f"{{}} ({shape})"
        if constant.HasField("literal") and not is_tuple(constant.shape):
            text = literal_text(constant.literal, large=False, max_elements=_LITERAL_ELEMENTS)
            count = prod(constant.shape.dimensions)
            if count <= _LITERAL_ELEMENTS and len(text) <= _MAX_LITERAL:
                return f"{shape} {text}"
        name = constant.name
        return f"{name if name.startswith('constant') else f'constant {name}'} {shape}"

    def _backend(self, proto: Instruction) -> Iterator[str]:
        if self._shows_backend and proto.backend_config:
            text = proto.backend_config.decode("utf-8", "replace")
            yield f'backend_config="{html.escape(text, quote=False)}"'

    def _noted(self, proto: Instruction) -> str:
        metadata = proto.metadata
        lines = [escaped(metadata.op_name)] if metadata.op_name else []
        if metadata.op_type:
            lines.append(f"op_type: {escaped(metadata.op_type)}")
        if metadata.source_file and metadata.source_line:
            lines.append(f"op_type: {escaped(metadata.source_file)}:{metadata.source_line}")
        lines.extend(self._program.described_stack(metadata.stack_frame_id))
        return "\n".join(lines)

    def _end(self, proto: Instruction) -> Instruction:
        """What a line from an instruction begins at: of an opened fusion, its result."""
        for _ in range(len(self._homes)):
            if self._is_drawn_inside(proto):
                inner = self._program.by_id.get(self._called(proto)[0].root_id)
            elif proto.opcode == "get-tuple-element":
                inner = next(iter(self._operands(proto)), None)
            else:
                return proto
            if inner is None:
                break
            proto = inner
        return proto

    def _incoming(self, proto: Instruction) -> None:
        if proto.opcode == "parameter" and self._is_fused(proto):
            home = self._homes[proto.id]
            if home.id != self._computation.id:
                given = self._given(proto)
                if given is not None:
                    self._edge(given, proto, "")
            return
        operands = self._operands(proto)
        for number, operand in enumerate(operands):
            label = f' headlabel="{number}", labeldistance=2' if len(operands) > 1 else ""
            self._edge(operand, proto, label)
        by_id = self._program.by_id
        for before in proto.control_predecessor_ids:
            if before in by_id:
                self._edge(by_id[before], proto, 'style="dotted" color="gray" label="ctrl"')

    def _edge(self, source: Instruction, target: Instruction, label: str) -> None:
        begin = self._end(source)
        if not self._shows(begin) or self._is_inlined(begin):
            return
        head = "empty" if elements(begin.shape) < _SMALL_ELEMENTS else "normal"
        title = f"{begin.name} -> {target.name}"
        self._edges.append(
            f'{begin.id} -> {target.id} [arrowhead={head} tooltip="{title}" {label}];'
        )

    def _root_tag(self) -> str:
        root = self._program.by_id.get(self._computation.root_id)
        if root is None:
            return ""
        begin = self._end(root)
        if not self._shows(begin) or begin.opcode == "constant" or self._is_inlined(begin):
            return ""
        name = f"root_{self._computation.id}"
        self._edges.append(f'{begin.id} -> {name} [tooltip=" "];')
        return (
            f'{name} [label=<ROOT>, shape=circle, tooltip=" ", style="filled", '
            'fontcolor="black", color="#8c7b75", fillcolor="#bcaaa4"];\n'
        )
