"""A whole module as XLA prints it: header, tables of source locations, computations."""

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from podscope_analyzers.hlo.post_order import post_order
from podscope_analyzers.hlo.text.attributes import frontend_attributes_text
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
    return "\n".join(module_lines(program, style))


def module_lines(program: Surroundings, style: Style) -> Iterator[str]:
    """The lines of ``module_text``."""
    module = program.module
    frames = StackFrames(module) if style.metadata else None
    printer = Printer(program, style, frames)
    yield ", ".join(_header(module))
    yield ""
    if frames is not None:
        before = tuple(frames.lines())
        yield from before
        if before:
            yield ""
    orders = {one.id: post_order(one) for one in module.computations}
    inlined = _inlined(printer, orders)
    for computation in _computations(program):
        if computation.id in inlined:
            continue
        yield _opening(module, computation, style)
        for instruction in _scheduled(module, computation, orders[computation.id]):
            root = "ROOT " if instruction.id == computation.root_id else ""
            yield f"  {root}{printer.instruction(instruction)}"
        thread = computation.execution_thread
        yield "}" + (f', execution_thread="{thread}"' if thread not in ("", _MAIN_THREAD) else "")
        yield ""
    yield ""


def _header(module: hlo_pb2.HloModuleProto) -> Iterator[str]:
    yield f"HloModule {module.name}"
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
    kind = "must-alias" if one.kind == hlo_pb2.Kind.MUST_ALIAS else "may-alias"
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


def _opening(module: hlo_pb2.HloModuleProto, computation: Computation, style: Style) -> str:
    entry = "ENTRY " if computation.id == module.entry_computation_id else ""
    name = f"%{computation.name}" if style.percent else computation.name
    return f"{entry}{name} {_signature(computation) if style.signatures else ''}{{"


def _signature(computation: Computation) -> str:
    shape = computation.program_shape
    parameters = ", ".join(
        f"{name}: {shape_text(parameter, layout=False)}"
        for name, parameter in zip(shape.parameter_names, shape.parameters, strict=False)
    )
    return f"({parameters}) -> {shape_text(shape.result, layout=False)} "
