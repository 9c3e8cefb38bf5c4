"""A whole module as XLA prints it: header, tables of source locations, computations."""

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from podscope_analyzers.hlo.post_order import post_order
from podscope_analyzers.hlo.text.common_attributes import frontend_attributes_text
from podscope_analyzers.hlo.text.names import sanitised
from podscope_analyzers.hlo.text.printer import Printer, Style
from podscope_analyzers.hlo.text.shape_text import braced, joined, shape_text
from podscope_analyzers.hlo.text.stack_frames import StackFrames
from podscope_protos.v1 import hlo_pb2

Computation = hlo_pb2.HloComputationProto
Instruction = hlo_pb2.HloInstructionProto

_MAIN_THREAD: Final = "main"


class Surroundings(Protocol):
    """The program of the module; see ``programs.Program``."""

    @property
    def module(self) -> hlo_pb2.HloModuleProto:
        """The module itself."""

    @property
    def computations(self) -> Mapping[int, Computation]:
        """Computations by id."""

    @property
    def by_id(self) -> Mapping[int, Instruction]:
        """Instructions by id."""


def module_text(program: Surroundings, style: Style) -> str:
    """The module in a style, as the reference's graph viewer gives it."""
    return "\n".join(ModuleText(program, style).lines())


class ModuleText:
    """The lines of ``module_text``, of which any part is printed by itself.

    Args:
        program: The module's program.
        style: What is shown.
    """

    def __init__(self, program: Surroundings, style: Style) -> None:
        self._module = module = program.module
        frames = StackFrames(module) if style.metadata else None
        self._printer = printer = Printer(program, style, frames)
        self._style = style
        self._before = [", ".join(_header(module)), ""]
        if frames is not None:
            tables = list(frames.lines())
            self._before += [*tables, ""] if tables else []
        orders = {one.id: post_order(one) for one in module.computations}
        inlined = _inlined(printer, orders)
        self._blocks = [
            (one, _scheduled(module, one, orders[one.id]))
            for one in _computations(program)
            if one.id not in inlined
        ]

    def __len__(self) -> int:
        # Every computation is between two lines of its own and an empty one; the text ends in one.
        return len(self._before) + sum(len(block) + 3 for _, block in self._blocks) + 1

    def lines(self, begin: int = 0, end: int | None = None) -> Iterator[str]:
        """The lines from ``begin`` to before ``end``."""
        end = len(self) if end is None else end
        yield from self._before[begin:end]
        at = len(self._before)
        for computation, block in self._blocks:
            if at < end and begin < at + len(block) + 3:
                yield from self._part(computation, block, begin - at, end - at)
            at += len(block) + 3
        if begin <= at < end:
            yield ""

    def _part(
        self, computation: Computation, block: list[Instruction], begin: int, end: int
    ) -> Iterator[str]:
        """Of a computation's lines those from ``begin`` to before ``end``, counted in it."""
        if begin <= 0:
            yield self._opening(computation, block)
        for one in block[max(begin - 1, 0) : max(end - 1, 0)]:
            root = "ROOT " if one.id == computation.root_id else ""
            yield f"  {root}{self._printer.instruction(one)}"
        at = len(block) + 1
        if begin <= at < end:
            thread = computation.execution_thread
            named = thread not in ("", _MAIN_THREAD)
            yield "}" + (f', execution_thread="{thread}"' if named else "")
        if begin <= at + 1 < end:
            yield ""

    def line_of(self, instruction: Instruction) -> int | None:
        """The line of an instruction; None if the text leaves its computation out."""
        at = len(self._before)
        for _, block in self._blocks:
            for place, one in enumerate(block):
                if one.id == instruction.id:
                    return at + 1 + place
            at += len(block) + 3
        return None

    def _opening(self, computation: Computation, block: list[Instruction]) -> str:
        is_entry = computation.id == self._module.entry_computation_id
        signature = self._signature(computation, block) if self._style.signatures else ""
        name = self._printer.name(computation)
        return f"{'ENTRY ' if is_entry else ''}{name} {signature}{{"

    def _signature(self, computation: Computation, block: list[Instruction]) -> str:
        parameters = sorted(
            (one for one in block if one.opcode == "parameter"),
            key=lambda one: one.parameter_number,
        )
        shown = ", ".join(
            f"{sanitised(one.name)}: {shape_text(one.shape, layout=False)}" for one in parameters
        )
        root = next((one.shape for one in block if one.id == computation.root_id), None)
        result = "" if root is None else shape_text(root, layout=False)
        return f"({shown}) -> {result} "


def _header(module: hlo_pb2.HloModuleProto) -> Iterator[str]:
    yield f"HloModule {sanitised(module.name)}"
    if module.HasField("schedule"):
        yield "is_scheduled=true"
    aliases = sorted(
        module.input_output_alias.entries, key=lambda one: list(one.output_shape_index)
    )
    if aliases:
        yield f"input_output_alias={{ {', '.join(map(_alias, aliases))} }}"
    donors = sorted(
        module.buffer_donor.entries,
        key=lambda one: (one.parameter_number, list(one.parameter_shape_index)),
    )
    if donors:
        shown = (f"({d.parameter_number}, {braced(d.parameter_shape_index)})" for d in donors)
        yield f"buffer_donor={{ {', '.join(shown)} }}"
    if module.HasField("host_program_shape"):
        shape = module.host_program_shape
        parameters = joined(map(shape_text, shape.parameters))
        yield f"entry_computation_layout={{({parameters})->{shape_text(shape.result)}}}"
    if module.frontend_attributes.map:
        yield f"frontend_attributes={frontend_attributes_text(module.frontend_attributes)}"


def _alias(one: hlo_pb2.HloInputOutputAliasProto.AliasEntryProto) -> str:
    kind = "may-alias" if one.kind == hlo_pb2.Kind.MAY_ALIAS else "must-alias"
    return (
        f"{braced(one.output_shape_index)}: ({one.parameter_number}, "
        f"{braced(one.parameter_shape_index)}, {kind})"
    )


def _scheduled(
    module: hlo_pb2.HloModuleProto, computation: Computation, order: list[Instruction]
) -> list[Instruction]:
    """The schedule's order where there is one."""
    if computation.id not in module.schedule.sequences:
        return order
    by_id = {one.id: one for one in order}
    sequence = module.schedule.sequences[computation.id].instruction_ids
    return [by_id[one] for one in sequence if one in by_id]


def _computations(program: Surroundings) -> Iterator[Computation]:
    """Computations after those that they call, each once; calls count in the order stored."""
    known = program.computations
    callees = {
        number: [c for one in computation.instructions for c in one.called_computation_ids]
        for number, computation in known.items()
    }
    called = {one for listed in callees.values() for one in listed}
    done: set[int] = set()
    for start in known:
        if start in called or start in done:
            continue
        done.add(start)
        stack = [(start, iter(callees[start]))]
        while stack:
            current, pending = stack[-1]
            inner = next((one for one in pending if one not in done and one in known), None)
            if inner is None:
                stack.pop()
                yield known[current]
            else:
                done.add(inner)
                stack.append((inner, iter(callees[inner])))


def _inlined(printer: Printer, orders: Mapping[int, list[Instruction]]) -> set[int]:
    """Computations that asynchronous instructions stand for, which are not printed."""
    return {
        instruction.called_computation_ids[0]
        for order in orders.values()
        for instruction in order
        if instruction.opcode == "async-start" and printer.trivial_async(instruction) is not None
    }
