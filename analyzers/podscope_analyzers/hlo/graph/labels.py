"""What stands in the boxes of a drawing: names, attributes, shapes, and constants given to them."""

from collections.abc import Iterator
from math import prod
from typing import Final

from podscope_analyzers.hlo.graph.neighbourhood import Instruction
from podscope_analyzers.hlo.graph.selection import Selection
from podscope_analyzers.hlo.shapes import is_tuple, leaves
from podscope_analyzers.hlo.text import Printer, Style
from podscope_analyzers.hlo.text.literal_text import literal_text
from podscope_analyzers.hlo.text.shape_text import shape_text
from podscope_analyzers.html_text import escape

_MAX_CALLS: Final = 64
_MAX_SHAPE: Final = 64
_MAX_GROUPS: Final = 128
_MAX_LITERAL: Final = 64
_LITERAL_ELEMENTS: Final = 8
_LONG_ATTRIBUTES: Final = ("replica_groups=", "source_target_pairs=", "control-predecessors=")
_DIMENSION_NUMBERS: Final = (
    *("lhs_batch", "lhs_contracting", "rhs_batch", "rhs_contracting", "offset_dims"),
    *("collapsed_slice", "start_index_map", "operand_batching", "start_indices_batching"),
    *("update_window", "inserted_window", "scatter_dims", "input_batching", "scatter_indices"),
    "index_vector",
)


def escaped(text: str) -> str:
    """Text inside a label, with quotation marks but no apostrophes escaped."""
    return escape(text, quote=False).replace('"', "&quot;")


class Labels:
    """The lines of text in an instruction's box."""

    def __init__(self, selection: Selection, *, shows_backend: bool) -> None:
        self._selection = selection
        self._shows_backend = shows_backend
        # Of what the framework noted only that on shardings is among the attributes.
        style = Style(percent=True, control_predecessors=True, references=False, metadata=True)
        self._printer = Printer(selection.program, style)

    def label(self, proto: Instruction) -> Iterator[str]:
        """Its name and what it does; of a parameter its number and where it is from."""
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
        callers = self._selection.callers[self._selection.homes[parameter.id].id]
        if len(callers) != 1 or callers[0].opcode != "call":
            return
        operands = self._selection.operands(callers[0])
        if 0 <= parameter.parameter_number < len(operands):
            home = self._selection.homes[callers[0].id]
            is_entry = home.id == self._selection.program.module.entry_computation_id
            picked = operands[parameter.parameter_number]
            given = self._selection.end(picked)
            for _ in range(_MAX_CALLS):
                called = self._selection.called(given) if given.opcode == "call" else []
                root = self._selection.program.by_id.get(called[0].root_id) if called else None
                if root is None:
                    break
                if picked.opcode == "get-tuple-element" and root.opcode == "tuple":
                    inside = self._selection.operands(root)
                    if not 0 <= picked.tuple_index < len(inside):
                        break
                    root = inside[picked.tuple_index]
                home, picked, given, is_entry = called[0], root, self._selection.end(root), False
            where = "the ENTRY computation" if is_entry else escaped(home.name)
            name = escaped(given.name)
            yield f"<i>from {name} in {where}</i>"

    def subcomputations(self, proto: Instruction) -> Iterator[str]:
        """What the called computations do that are too simple to be opened."""
        called = self._selection.called(proto) if proto.opcode != "fusion" else []
        for number, computation in enumerate(called):
            kind = self._selection.trivial(computation)
            if kind:
                which = f" {number}" if len(called) > 1 else ""
                yield f"Subcomputation{which}: <b>{kind}</b>"

    def attributes(self, proto: Instruction) -> Iterator[str]:
        """Attributes and shape, long ones cut."""
        for attribute in self._joined(proto):
            text = attribute
            if text.startswith(_LONG_ATTRIBUTES) and len(text) > _MAX_GROUPS:
                text = text[: _MAX_GROUPS - 3] + "..."
            # Which features are apart is easily overlooked, and changes the cost by a factor.
            is_marked = text.startswith("feature_group_count=")
            yield f"<b>{escaped(text)}</b>" if is_marked else escaped(text)
        if not self._selection.is_drawn_inside(proto):
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

    def inlined(self, proto: Instruction) -> Iterator[str]:
        """Operands that have no box of their own."""
        if proto.opcode == "parameter" and self._selection.is_fused(proto):
            given = self._selection.given(proto)
            text = "" if given is None else self._inlined_text(given)
            if text:
                yield escaped(text)
            return
        operands = self._selection.operands(proto)
        for number, operand in enumerate(operands):
            text = self._inlined_text(operand)
            if text:
                which = f"operand {number}" if len(operands) > 1 else "operand"
                yield f"<b>{which}</b> = {escaped(text)}"

    def _inlined_text(self, proto: Instruction) -> str:
        if not self._selection.is_inlined(proto):
            return ""
        if proto.opcode == "parameter":
            given = self._selection.given(proto) if self._selection.is_fused(proto) else None
            return (
                f"Parameter {proto.parameter_number}"
                if given is None
                else self._constant(given, given)
            )
        if proto.opcode == "get-tuple-element":
            whole = ", ".join(one.name for one in self._selection.operands(proto)[:1])
            shape = shape_text(proto.shape)
            return f"tuple-element {proto.tuple_index} of {whole} {shape}"
        return self._constant(
            self._selection.operands(proto)[0] if proto.opcode == "broadcast" else proto, proto
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

    def backend(self, proto: Instruction) -> Iterator[str]:
        """What the compiler's backend noted, where that is wanted."""
        if self._shows_backend and proto.backend_config:
            text = proto.backend_config.decode("utf-8", "replace")
            yield f'backend_config="{escape(text, quote=False)}"'

    def noted(self, proto: Instruction) -> str:
        """The framework operation and source lines that it is from, for the tooltip."""
        metadata = proto.metadata
        lines = [escaped(metadata.op_name)] if metadata.op_name else []
        if metadata.op_type:
            lines.append(f"op_type: {escaped(metadata.op_type)}")
        if metadata.source_file and metadata.source_line:
            lines.append(f"op_type: {escaped(metadata.source_file)}:{metadata.source_line}")
        lines.extend(self._selection.program.described_stack(metadata.stack_frame_id))
        return "\n".join(lines)
