"""A neighbourhood as DOT text, with the choice, labels and lines of XLA's own graph dumper.

It draws constants inside their users, opens called computations as clusters, passes over the
users of instructions that have very many, and says by a dashed border what it left out.
"""

from collections.abc import Iterator
from typing import Final

from podscope_analyzers.hlo.graph.colours import colour
from podscope_analyzers.hlo.graph.labels import Labels, escaped
from podscope_analyzers.hlo.graph.neighbourhood import Computation, Instruction
from podscope_analyzers.hlo.graph.selection import Selection
from podscope_analyzers.hlo.instructions import category
from podscope_analyzers.hlo.programs import Program
from podscope_analyzers.hlo.shapes import elements

_MAX_DEPTH: Final = 64
_SMALL_ELEMENTS: Final = 4096


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
    selection = Selection(program, node, width, opens_fusions=opens_fusions)
    labels = Labels(selection, shows_backend=shows_backend)
    return "".join(_Drawing(selection, labels).lines())


class _Drawing:
    def __init__(self, selection: Selection, labels: Labels) -> None:
        self._selection = selection
        self._labels = labels
        self._edges: list[str] = []
        self._drawn: set[int] = set()
        self._depth = 0

    def lines(self) -> Iterator[str]:
        body = self._computation_body(self._selection.computation)
        yield "digraph G {\nrankdir = TB;\ncompound = true;\n"
        yield f"label = <<b>{'<br/>'.join(self._title())}</b>>;\n"
        yield 'labelloc = t;\ntooltip = " ";\n\n'
        yield body
        yield self._root_tag()
        yield "".join(f"{edge}\n" for edge in self._edges)
        yield "}"

    def _title(self) -> Iterator[str]:
        selection = self._selection
        computation, centre = selection.computation, selection.centre
        if centre is not None:
            yield f"Neighborhood of {selection.width} nodes around {escaped(centre.name)}"
        else:
            yield ""
        fusion = selection.fusions.get(computation.id)
        where = f" (in fusion instruction {escaped(fusion.name)})" if fusion else ""
        yield f"Computation {escaped(computation.name)}{where}"
        if computation.id == selection.program.module.entry_computation_id:
            yield "ENTRY computation"
        elif fusion is None and selection.callers[computation.id]:
            callers = ", ".join(escaped(one.name) for one in selection.callers[computation.id])
            yield f"Caller instructions: {callers}"

    def _computation_body(self, computation: Computation) -> str:
        selection = self._selection
        parts: list[str] = []
        for one in sorted(computation.instructions, key=lambda one: one.id):
            if not selection.shows(one):
                continue
            for inner in selection.called(one):
                if not selection.is_opened(one, inner):
                    continue
                if one.opcode != "fusion":
                    self._returned(inner, one)
                if inner.id not in self._drawn:
                    self._drawn.add(inner.id)
                    self._depth += 1
                    if self._depth <= _MAX_DEPTH:
                        parts.append(self._cluster(inner, one))
                    self._depth -= 1
            if not selection.is_inlined(one) and not selection.is_drawn_inside(one):
                parts.append(self._box(one))
                self._incoming(one)
        return "".join(parts)

    def _cluster(self, computation: Computation, caller: Instruction) -> str:
        name = f"cluster_{computation.id}"
        if caller.opcode == "fusion":
            fill = "#ffcdd2" if self._selection.is_centre(caller) else "#f4f5f7"
            style = f'style="rounded,filled,bold"; fillcolor="{fill}"; color="#4a525c;"'
            label = [
                f"Fused expression for <b>{escaped(caller.name)}</b>",
                escaped(category(self._selection.program, caller)),
                *self._labels.attributes(caller),
                *self._labels.backend(caller),
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
        root = self._selection.program.by_id.get(computation.root_id)
        if root is not None:
            title = f"{computation.name} -> {caller.name}"
            self._edges.append(
                f'{self._selection.end(root).id} -> {caller.id} [ltail="cluster_{computation.id}", '
                f'style="dashed" tooltip="{title}"];'
            )

    def _box(self, proto: Instruction) -> str:
        body = "<br/>".join(
            [
                *self._labels.label(proto),
                *self._labels.subcomputations(proto),
                *self._labels.attributes(proto),
                *self._labels.inlined(proto),
                *self._labels.backend(proto),
            ]
        )
        shape = "ellipse" if proto.opcode == "while" else "rect"
        style, font, fill = "filled", "black", colour(proto.opcode)
        line = "#4a525c"
        if proto.id in self._selection.omitted:
            style, fill = "filled,dashed", "white"
        if self._selection.is_centre(proto):
            shape, font, fill, line = "diamond", "white", "#b71c1c", "#7f0000"
        return (
            f'{proto.id} [label=<{body}>, shape={shape}, tooltip="{self._labels.noted(proto)}", '
            f'style="{style}", fontcolor="{font}", color="{line}", fillcolor="{fill}"];\n'
        )

    def _incoming(self, proto: Instruction) -> None:
        if proto.opcode == "parameter" and self._selection.is_fused(proto):
            home = self._selection.homes[proto.id]
            if home.id != self._selection.computation.id:
                given = self._selection.given(proto)
                if given is not None:
                    self._edge(given, proto, "")
            return
        operands = self._selection.operands(proto)
        for number, operand in enumerate(operands):
            label = f' headlabel="{number}", labeldistance=2' if len(operands) > 1 else ""
            self._edge(operand, proto, label)
        by_id = self._selection.program.by_id
        for before in proto.control_predecessor_ids:
            if before in by_id:
                self._edge(by_id[before], proto, 'style="dotted" color="gray" label="ctrl"')

    def _edge(self, source: Instruction, target: Instruction, label: str) -> None:
        begin = self._selection.end(source)
        if not self._selection.shows(begin) or self._selection.is_inlined(begin):
            return
        head = "empty" if elements(begin.shape) < _SMALL_ELEMENTS else "normal"
        title = f"{begin.name} -> {target.name}"
        self._edges.append(
            f'{begin.id} -> {target.id} [arrowhead={head} tooltip="{title}" {label}];'
        )

    def _root_tag(self) -> str:
        selection = self._selection
        root = selection.program.by_id.get(selection.computation.root_id)
        if root is None:
            return ""
        begin = selection.end(root)
        if not selection.shows(begin) or selection.is_inlined(begin) or begin.opcode == "constant":
            return ""
        name = f"root_{selection.computation.id}"
        self._edges.append(f'{begin.id} -> {name} [tooltip=" "];')
        return (
            f'{name} [label=<ROOT>, shape=circle, tooltip=" ", style="filled", '
            'fontcolor="black", color="#8c7b75", fillcolor="#bcaaa4"];\n'
        )
