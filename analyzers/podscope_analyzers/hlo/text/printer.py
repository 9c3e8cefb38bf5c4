"""One instruction as XLA prints it: result, operands, attributes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from podscope_analyzers.hlo.text.attributes import own_attributes
from podscope_analyzers.hlo.text.common_attributes import common_attributes
from podscope_analyzers.hlo.text.escapes import bare_or_quoted
from podscope_analyzers.hlo.text.literal_text import literal_text
from podscope_analyzers.hlo.text.metadata_text import metadata_text
from podscope_analyzers.hlo.text.names import sanitised
from podscope_analyzers.hlo.text.origin_text import origin_text
from podscope_analyzers.hlo.text.shape_text import ShapeTexts, joined
from podscope_analyzers.hlo.text.stack_frames import StackFrames
from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto
Named = Proto | hlo_pb2.HloComputationProto

_ASYNC: Final = frozenset({"async-start", "async-update", "async-done"})
_MAX_ASYNC_STEPS: Final = 1000
_TO_APPLY: Final = frozenset(
    {
        *("call", "map", "reduce", "reduce-window", "all-reduce", "all-reduce-start"),
        *("reduce-scatter", "scatter", "sort", "scan"),
    }
)
# JSON of a GPU's backend has this member empty, and XLA drops it when it loads the program.
_DROPPED_MEMBER: Final = b'"wait_on_operation_queues":[],'


@dataclass(frozen=True)
class Style:
    """What a text shows beside names, shapes and attributes.

    Attributes:
        percent: ``%`` before every name.
        operand_shapes: The shape before every operand.
        marks: The number of every fifth operand.
        control_predecessors: What must run before without being an operand.
        backend_config: What the compiler's backend noted.
        configs: Configurations of infeeds and outfeeds.
        large_constants: Constants of any size.
        metadata: What the framework noted, with the tables of source locations of a module.
        signatures: Parameters and result of every computation.
        references: Names of the computations that an instruction calls.
    """

    percent: bool = False
    operand_shapes: bool = False
    marks: bool = False
    control_predecessors: bool = False
    backend_config: bool = False
    configs: bool = False
    large_constants: bool = False
    metadata: bool = False
    signatures: bool = False
    references: bool = True


EXPRESSION: Final = Style(percent=True, operand_shapes=True, marks=True, control_predecessors=True)
"""How profiles show a single instruction."""
SHORT: Final = Style(backend_config=True, configs=True)
"""How a module is shown in brief; XLA can read it back, but for large constants."""
LONG: Final = Style(
    percent=True,
    marks=True,
    control_predecessors=True,
    backend_config=True,
    configs=True,
    large_constants=True,
    signatures=True,
)
"""How a module is shown in full."""


class Surroundings(Protocol):
    """The program that an instruction is in."""

    @property
    def computations(self) -> Mapping[int, hlo_pb2.HloComputationProto]:
        """Computations by id."""

    @property
    def by_id(self) -> Mapping[int, Proto]:
        """Instructions by id."""


class Printer:
    """Texts of a program's instructions in one style.

    Args:
        program: The program they are in.
        style: What is shown.
        frames: The tables that numbers of stack frames refer to; needed for metadata.
    """

    def __init__(
        self,
        program: Surroundings,
        style: Style = EXPRESSION,
        frames: StackFrames | None = None,
    ) -> None:
        self._program = program
        self._style = style
        self._frames = frames
        self._shape = ShapeTexts()
        self._names: dict[str, str] = {}

    def instruction(self, proto: Proto) -> str:
        """``name = shape opcode(operands), attributes``; on one line."""
        parts = [f"{self._opcode(proto)}({self._operands(proto)})", *self._attributes(proto)]
        origin = self._origin(proto)
        if origin is not None:
            parts.append(f"origin={{{origin_text(origin)}}}")
        if self._style.metadata and self._frames is not None and proto.HasField("metadata"):
            frame = self._frames.number(proto.metadata.stack_frame_id)
            noted = metadata_text(proto.metadata, frame)
            if noted:
                parts.append(f"metadata={noted}")
        if self._style.backend_config and proto.backend_config:
            config = proto.backend_config.replace(_DROPPED_MEMBER, b"")
            parts.append(f"backend_config={bare_or_quoted(config)}")
        return f"{self.name(proto)} = {self._shape(proto.shape)} {', '.join(parts)}"

    def attributes(self, proto: Proto) -> list[str]:
        """What stands after the operands, without notes of framework and compiler."""
        return list(self._attributes(proto))

    def trivial_async(self, proto: Proto) -> Proto | None:
        """The one instruction that an asynchronous one stands for; None if it runs several."""
        start = self._async_start(proto)
        if start is None or not start.called_computation_ids:
            return None
        computation = self._program.computations.get(start.called_computation_ids[0])
        if computation is None:
            return None
        parameters = {
            one.parameter_number: one.id
            for one in computation.instructions
            if one.opcode == "parameter"
        }
        rest = [one for one in computation.instructions if one.opcode != "parameter"]
        if len(rest) != 1 or rest[0].id != computation.root_id or rest[0].opcode in _ASYNC:
            return None
        in_order = [parameters[number] for number in sorted(parameters)]
        return rest[0] if list(rest[0].operand_ids) == in_order else None

    def _async_start(self, proto: Proto) -> Proto | None:
        for _ in range(_MAX_ASYNC_STEPS):
            if proto.opcode == "async-start":
                return proto
            operand = proto.operand_ids[0] if proto.operand_ids else None
            before = self._program.by_id.get(operand) if operand is not None else None
            if before is None or before.opcode not in _ASYNC:
                return None
            proto = before
        return None

    def name(self, proto: Named) -> str:
        """The name of an instruction or a computation as the style shows it."""
        stored = proto.name
        name = self._names.get(stored)
        if name is None:
            name = sanitised(stored)
            name = self._names[stored] = f"%{name}" if self._style.percent else name
        return name

    def _opcode(self, proto: Proto) -> str:
        if proto.opcode in _ASYNC:
            wrapped = self.trivial_async(proto)
            if wrapped is not None:
                return wrapped.opcode + proto.opcode.removeprefix("async")
        return proto.opcode

    def _operands(self, proto: Proto) -> str:
        if proto.opcode == "parameter":
            return str(proto.parameter_number)
        if proto.opcode == "constant":
            if not proto.HasField("literal"):
                return "{...}"
            return literal_text(proto.literal, large=self._style.large_constants)
        found = (self._program.by_id.get(operand) for operand in proto.operand_ids)
        return joined((self._operand(one) for one in found if one), marked=self._style.marks)

    def _operand(self, proto: Proto) -> str:
        name = self.name(proto)
        return f"{self._shape(proto.shape)} {name}" if self._style.operand_shapes else name

    def _attributes(
        self, proto: Proto, frontend: hlo_pb2.FrontendAttributes | None = None
    ) -> Iterator[str]:
        """The attributes; ``frontend`` are those of the framework where they are not its own."""
        own = frontend
        if proto.opcode == "async-start":
            if proto.async_execution_thread not in ("", "main"):
                yield f'async_execution_thread="{proto.async_execution_thread}"'
            wrapped = self.trivial_async(proto)
            if wrapped is not None:
                # The framework's are shown once: the start's, or what it wraps has them.
                mine = proto.frontend_attributes
                yield from self._attributes(wrapped, mine if mine.map else None)
                own = hlo_pb2.FrontendAttributes()
            elif proto.called_computation_ids and self._style.references:
                yield f"calls={self._computations(proto)}"
        elif proto.opcode not in _ASYNC:
            by_id = self._program.by_id
            types = (
                by_id[operand].shape.element_type
                for operand in proto.operand_ids
                if operand in by_id
            )
            yield from own_attributes(proto, types, configs=self._style.configs)
            if proto.called_computation_ids and self._style.references:
                yield from self._references(proto)
        before = (
            self._program.by_id.get(one)
            for one in proto.control_predecessor_ids
            if self._style.control_predecessors
        )
        names = (self.name(one) for one in before if one)
        shows_metadata = self._style.metadata
        yield from common_attributes(proto, names, metadata=shows_metadata, frontend=own)

    def _origin(self, proto: Proto) -> hlo_pb2.OriginalValueProto | None:
        if proto.HasField("original_value"):
            return proto.original_value
        if proto.opcode != "get-tuple-element" or not proto.operand_ids:
            return None
        # What is taken out of a tuple is what was put into it.
        of = self._program.by_id.get(proto.operand_ids[0])
        if of is None or of.opcode != "tuple" or not 0 <= proto.tuple_index < len(of.operand_ids):
            return None
        element = self._program.by_id.get(of.operand_ids[proto.tuple_index])
        if element is None or not element.HasField("original_value"):
            return None
        return element.original_value

    def _computations(self, proto: Proto) -> str:
        return ", ".join(self._computation(one) for one in proto.called_computation_ids)

    def _computation(self, computation_id: int) -> str:
        found = self._program.computations.get(computation_id)
        return self.name(found) if found else "?"

    def _references(self, proto: Proto) -> Iterator[str]:
        opcode, called = proto.opcode, proto.called_computation_ids
        names = [self._computation(one) for one in called]
        if opcode == "while" and len(names) > 1:
            # The body is stored first.
            yield f"condition={names[1]}"
            yield f"body={names[0]}"
        elif opcode == "select-and-scatter" and len(names) > 1:
            yield f"select={names[0]}"
            yield f"scatter={names[1]}"
        elif opcode == "conditional":
            yield from self._branches(proto, names)
        elif opcode in _TO_APPLY:
            yield f"to_apply={names[0]}"
            if opcode == "call" and proto.is_composite:
                yield "is_composite=true"
        elif opcode == "custom-call":
            yield f"called_computations={{{', '.join(names)}}}"
        else:
            yield f"calls={', '.join(names)}"

    def _branches(self, proto: Proto, names: list[str]) -> Iterator[str]:
        choice = self._program.by_id.get(proto.operand_ids[0]) if proto.operand_ids else None
        is_pred = choice is not None and choice.shape.element_type == hlo_pb2.PrimitiveType.PRED
        if is_pred and len(names) > 1:
            yield f"true_computation={names[0]}"
            yield f"false_computation={names[1]}"
        else:
            yield f"branch_computations={{{', '.join(names)}}}"
