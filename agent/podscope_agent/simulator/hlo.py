"""The HLO proto of the simulated program, as the compiler of each device would leave it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from podscope_agent.simulator.buffers import assign_buffers
from podscope_agent.simulator.program import MODULE, SOURCE_FILE, TRANSFERS, Array, Op, Program
from podscope_agent.simulator.slices import attributes, channel
from podscope_protos.v1 import hlo_pb2

MAX_LISTED_REPLICAS: Final = 512
"""Replica groups of larger pods are left empty, which means all replicas."""

_STACK: Final = (("main", 201), ("train", 158))
"""Callers of the training step, the outermost first."""


def shape_proto(program: Program, array: Array) -> hlo_pb2.ShapeProto:
    """The shape of an array in the program's element type, with the device's layout."""
    element = hlo_pb2.F32 if program.element_bytes == 4 else hlo_pb2.BF16
    shape = _plain_shape(element, array.dims)
    if program.device.family == "tpu":
        shape.layout.tiles.add(dimensions=(8, 128))
        shape.layout.tiles.add(dimensions=(2, 1))
    return shape


def shape_text(program: Program, array: Array) -> str:
    """The same as HLO text."""
    name = "f32" if program.element_bytes == 4 else "bf16"
    dims = ",".join(str(size) for size in array.dims)
    order = ",".join(str(i) for i in reversed(range(len(array.dims))))
    tiles = ":T(8,128)(2,1)" if program.device.family == "tpu" else ""
    return f"{name}[{dims}]{{{order}{tiles}}}"


def op_text(program: Program, op: Op) -> str:
    """The expression of an op as XLA prints it, which is what the TPU's tracer uses as its name."""
    results = [shape_text(program, output) for output in op.outputs]
    operands = [
        f"{shape_text(program, shape)} %{name}"
        for name, shape in zip(op.operands, op.operand_shapes, strict=True)
    ]
    if op.kind == "infeed":
        results.append("token[]")
        operands = ["token[] %after-all"]
    elif op.kind == "copy-start":
        results = [*results * 2, "u32[]"]
    elif op.kind == "while":
        weights = [shape_text(program, shape) for shape in program.weights]
        results = ["s32[]", shape_text(program, program.activation), *weights, *weights]
        operands = [f"({_comma_list(results)}) %loop_state"]
    elif op.kind in TRANSFERS:
        results, operands = _transfer_texts(op, results[0], operands)
    result = results[0] if len(results) == 1 else f"({_comma_list(results)})"
    opcode = _opcode(op)
    text = f"%{op.name} = {result} {opcode}({_comma_list(operands)})"
    if opcode == "fusion":
        text += f", kind={_fusion_kind(program, op)}, calls=%fused_computation.{op.symbol_id}"
    elif op.kind == "while":
        text += ", condition=%condition, body=%body"
    elif op.kind == "all-reduce":
        text += f", channel_id={_channel(op)}, replica_groups={_groups_text(program)}"
        text += ", to_apply=%add_reducer"
    elif op.kind in TRANSFERS:
        text += f", channel_id={channel(op)}, is_host_transfer=true"
        if op.kind in {"send", "recv"}:
            listed = ",".join(f'{name}="{value}"' for name, value in attributes(op).items())
            text += f", frontend_attributes={{{listed}}}"
    return text


def _transfer_texts(op: Op, array: str, operands: list[str]) -> tuple[list[str], list[str]]:
    """Results and operands of an exchange's operation."""
    begun = f"({array}, u32[], token[]) %{op.name.replace('-done', '')}"
    match op.kind:
        case "send" | "recv":
            return [array, "u32[]", "token[]"], [*operands, f"token[] %{_after_all(op)}"]
        case "send-done":
            return ["token[]"], [begun]
        case _:
            return [array, "token[]"], [begun]


def _after_all(op: Op) -> str:
    """The token that a send or a recv begins with."""
    return f"after-all.{channel(op)}"


def _comma_list(items: Sequence[str]) -> str:
    """Items joined as XLA joins them: every fifth is numbered."""
    numbered = (
        f"/*index={i}*/{item}" if i and i % 5 == 0 else item for i, item in enumerate(items)
    )
    return ", ".join(numbered)


def _groups_text(program: Program) -> str:
    if program.replicas > MAX_LISTED_REPLICAS:
        return "{}"
    members = ",".join(str(i) for i in range(program.replicas))
    return f"{{{{{members}}}}}, use_global_device_ids=true"


def hlo_proto(program: Program) -> hlo_pb2.HloProto:
    """The module with its schedule and buffer assignment."""
    return _ModuleBuilder(program).build()


def _opcode(op: Op) -> str:
    return "fusion" if op.kind in {"matmul", "matmul_add", "elementwise", "update"} else op.kind


def _fusion_kind(program: Program, op: Op) -> str:
    if op.kind in {"elementwise", "update"}:
        return "kLoop"
    return "kOutput" if program.device.family == "tpu" else "kCustom"


def _channel(op: Op) -> int:
    return 1 + int(op.name.partition(".")[2] or 0)


def _plain_shape(element: "hlo_pb2.PrimitiveType", dims: Sequence[int]) -> hlo_pb2.ShapeProto:
    return hlo_pb2.ShapeProto(
        element_type=element,
        dimensions=dims,
        is_dynamic_dimension=[False] * len(dims),
        layout=hlo_pb2.LayoutProto(
            minor_to_major=reversed(range(len(dims))), tail_padding_alignment_in_elements=1
        ),
    )


def _tuple_shape(parts: Iterable[hlo_pb2.ShapeProto]) -> hlo_pb2.ShapeProto:
    return hlo_pb2.ShapeProto(element_type=hlo_pb2.TUPLE, tuple_shapes=parts)


_TOKEN: Final = hlo_pb2.ShapeProto(element_type=hlo_pb2.TOKEN)


@dataclass
class _Computation:
    """A computation under construction; instruction ids carry its own id in their upper half."""

    proto: hlo_pb2.HloComputationProto
    ids: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, hlo_pb2.ShapeProto] = field(default_factory=dict)

    def add(
        self, name: str, opcode: str, shape: hlo_pb2.ShapeProto, operands: Iterable[str] = ()
    ) -> hlo_pb2.HloInstructionProto:
        number = self.proto.id << 32 | len(self.ids)
        self.ids[name] = number
        self.shapes[name] = shape
        self.proto.root_id = number
        return self.proto.instructions.add(
            name=name,
            opcode=opcode,
            shape=shape,
            id=number,
            operand_ids=[self.ids[operand] for operand in operands],
        )

    def parameter(self, number: int, name: str, shape: hlo_pb2.ShapeProto) -> None:
        self.add(name, "parameter", shape).parameter_number = number
        self.proto.program_shape.parameters.append(shape)
        self.proto.program_shape.parameter_names.append(name)

    def element(self, name: str, source: str, index: int) -> None:
        shape = self.shapes[source].tuple_shapes[index]
        self.add(name, "get-tuple-element", shape, (source,)).tuple_index = index

    def finish(self) -> hlo_pb2.HloComputationProto:
        root = self.proto.instructions[-1]
        self.proto.program_shape.result.CopyFrom(root.shape)
        return self.proto


class _ModuleBuilder:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._computations: list[_Computation] = []
        self._frames: dict[int, int] = {}
        self._reducer = self._new("add_reducer")

    def build(self) -> hlo_pb2.HloProto:
        self._build_reducer()
        condition = self._build_condition()
        body = self._build_body()
        entry = self._build_entry(condition, body)
        proto = hlo_pb2.HloProto()
        module = proto.hlo_module
        module.name = MODULE
        module.id = 1
        module.entry_computation_name = entry.proto.name
        module.entry_computation_id = entry.proto.id
        # A reader meets every computation before the one that calls it.
        callers = (body, entry)
        inner = [c for c in self._computations if c not in callers]
        for computation in (*inner, *callers):
            module.computations.append(computation.finish())
            if not computation.proto.is_fusion_computation:
                sequence = module.schedule.sequences[computation.proto.id]
                sequence.instruction_ids.extend(i.id for i in computation.proto.instructions)
        module.host_program_shape.CopyFrom(entry.proto.program_shape)
        self._write_stack_frames(module.stack_frame_index)
        proto.buffer_assignment.CopyFrom(assign_buffers(self._program, entry.proto, body.proto))
        return proto

    def _new(self, name: str, *, fused: bool = False) -> _Computation:
        proto = hlo_pb2.HloComputationProto(
            name=name, id=len(self._computations) + 1, is_fusion_computation=fused
        )
        self._computations.append(_Computation(proto))
        return self._computations[-1]

    def _array(self, array: Array) -> hlo_pb2.ShapeProto:
        return shape_proto(self._program, array)

    def _build_reducer(self) -> None:
        element = hlo_pb2.F32 if self._program.element_bytes == 4 else hlo_pb2.BF16
        scalar = _plain_shape(element, ())
        for number, name in enumerate(("lhs", "rhs")):
            self._reducer.parameter(number, name, scalar)
        self._reducer.add("sum", "add", scalar, ("lhs", "rhs"))

    def _state_shape(self) -> hlo_pb2.ShapeProto:
        weights = [self._array(shape) for shape in self._program.weights]
        counter = _plain_shape(hlo_pb2.S32, ())
        return _tuple_shape([counter, self._array(self._program.activation), *weights, *weights])

    def _build_condition(self) -> _Computation:
        condition = self._new("condition")
        condition.parameter(0, "condition_state", self._state_shape())
        condition.element("condition_counter", "condition_state", 0)
        scalar = _plain_shape(hlo_pb2.S32, ())
        limit = condition.add("microbatches", "constant", scalar)
        limit.literal.shape.CopyFrom(scalar)
        limit.literal.s32s.append(self._program.size.microbatches)
        result = condition.add(
            "is_less",
            "compare",
            _plain_shape(hlo_pb2.PRED, ()),
            ("condition_counter", "microbatches"),
        )
        result.comparison_direction = "LT"
        return condition

    def _build_body(self) -> _Computation:
        program = self._program
        count = len(program.weights)
        body = self._new("body")
        body.parameter(0, "state", self._state_shape())
        body.element("state.counter", "state", 0)
        body.element("state.x", "state", 1)
        for i in range(count):
            body.element(f"state.w{i}", "state", 2 + i)
        for i in range(count):
            body.element(f"state.g{i}", "state", 2 + count + i)
        gradients = {}
        last = "state.x"
        for op in program.body:
            self._add_op(body, op)
            if op.kind == "matmul_add":
                gradients[op.operands[2].removeprefix("state.")] = op.name
            else:
                last = op.name
        scalar = _plain_shape(hlo_pb2.S32, ())
        one = body.add("one", "constant", scalar)
        one.literal.shape.CopyFrom(scalar)
        one.literal.s32s.append(1)
        body.add("next_counter", "add", scalar, ("state.counter", "one"))
        new_state = [
            "next_counter",
            last,
            *(f"state.w{i}" for i in range(count)),
            *(gradients[f"g{i}"] for i in range(count)),
        ]
        body.add("next_state", "tuple", self._state_shape(), new_state)
        return body

    def _build_entry(self, condition: _Computation, body: _Computation) -> _Computation:
        program = self._program
        count = len(program.weights)
        entry = self._new("main")
        for i, shape in enumerate(program.weights):
            entry.parameter(i, f"param.{i}", self._array(shape))
        for i, shape in enumerate(program.weights):
            entry.parameter(count + i, f"accumulator.{i}", self._array(shape))
        if program.device.family == "tpu":
            for op in program.prologue:
                self._add_op(entry, op)
        else:
            entry.parameter(2 * count, "batch", self._array(program.activation))
        if program.lead is not None:
            self._add_op(entry, program.lead)
        scalar = _plain_shape(hlo_pb2.S32, ())
        zero = entry.add("zero", "constant", scalar)
        zero.literal.shape.CopyFrom(scalar)
        zero.literal.s32s.append(0)
        names = [
            "zero",
            "batch",
            *(f"param.{i}" for i in range(count)),
            *(f"accumulator.{i}" for i in range(count)),
        ]
        entry.add("loop_state", "tuple", self._state_shape(), names)
        loop = entry.add(program.loop.name, "while", self._state_shape(), ("loop_state",))
        loop.called_computation_ids.extend((body.proto.id, condition.proto.id))
        self._describe(loop, program.loop)
        for i in range(count):
            entry.element(f"gradient.{i}", program.loop.name, 2 + count + i)
        for op in program.collectives:
            self._add_op(entry, op)
            for index, operand in enumerate(op.operands):
                entry.element(operand.replace("gradient", "reduced"), op.name, index)
        for op in program.epilogue:
            self._add_op(entry, op)
        updated = [op.name for op in program.updates]
        entry.add(
            "result", "tuple", _tuple_shape([entry.shapes[name] for name in updated]), updated
        )
        return entry

    def _add_op(self, computation: _Computation, op: Op) -> None:
        shapes = [self._array(output) for output in op.outputs]
        operands: Sequence[str] = op.operands
        shape = shapes[0]
        if op.kind == "infeed":
            computation.add("after-all", "after-all", _TOKEN)
            operands = ("after-all",)
            shape = _tuple_shape((shapes[0], _TOKEN))
        elif op.kind == "copy-start":
            shape = _tuple_shape((shapes[0], shapes[0], _plain_shape(hlo_pb2.U32, ())))
        elif op.kind == "all-reduce":
            shape = _tuple_shape(shapes)
        elif op.kind in TRANSFERS:
            shape, operands = self._transfer(computation, op, shapes[0])
        opcode = _opcode(op)
        fused = self._fused(op) if opcode == "fusion" else None
        instruction = computation.add(op.name, opcode, shape, operands)
        self._describe(instruction, op)
        if fused is not None:
            instruction.fusion_kind = _fusion_kind(self._program, op)
            instruction.called_computation_ids.append(fused.proto.id)
        if op.kind == "infeed":
            computation.element("batch", op.name, 0)
        if op.kind == "all-reduce":
            instruction.called_computation_ids.append(self._reducer.proto.id)
            instruction.channel_id = _channel(op)
            if self._program.replicas <= MAX_LISTED_REPLICAS:
                instruction.use_global_device_ids = True
                instruction.collective_device_list.replica_groups.add(
                    replica_ids=range(self._program.replicas)
                )

        if op.kind in TRANSFERS:
            instruction.channel_id = channel(op)
            instruction.is_host_transfer = True
            if op.kind in {"send", "recv"}:
                instruction.frontend_attributes.map.update(attributes(op))

    def _transfer(
        self, computation: _Computation, op: Op, array: hlo_pb2.ShapeProto
    ) -> tuple[hlo_pb2.ShapeProto, tuple[str, ...]]:
        """Shape and operands of an exchange's operation."""
        if op.kind in {"send", "recv"}:
            computation.add(_after_all(op), "after-all", _TOKEN)
            counter = _plain_shape(hlo_pb2.U32, ())
            return _tuple_shape((array, counter, _TOKEN)), (*op.operands, _after_all(op))
        shape = _TOKEN if op.kind == "send-done" else _tuple_shape((array, _TOKEN))
        return shape, (op.name.replace("-done", ""),)

    def _describe(self, instruction: hlo_pb2.HloInstructionProto, op: Op) -> None:
        metadata = instruction.metadata
        metadata.op_name = op.framework_name
        metadata.source_file = SOURCE_FILE
        metadata.source_line = op.source_line
        first = len(_STACK) + 1
        metadata.stack_frame_id = self._frames.setdefault(op.source_line, first + len(self._frames))

    def _fused(self, op: Op) -> _Computation:
        """The computation inside a fusion: what the op's flops were counted from."""
        fused = self._new(f"fused_computation.{op.symbol_id}", fused=True)
        names = [f"param_{i}.{op.symbol_id}" for i in range(len(op.operands))]
        for number, (name, array) in enumerate(zip(names, op.operand_shapes, strict=True)):
            fused.parameter(number, name, self._array(array))
        result = self._array(op.outputs[0])
        if op.kind in {"matmul", "matmul_add"}:
            dot_name = f"dot_general.{op.symbol_id}"
            dot = fused.add(dot_name, "dot", result, names[:2])
            dot.dot_dimension_numbers.lhs_contracting_dimensions.append(op.contraction[0])
            dot.dot_dimension_numbers.rhs_contracting_dimensions.append(op.contraction[1])
            dot.metadata.op_name = op.framework_name
            if op.kind == "matmul_add":
                fused.add(f"add.{op.symbol_id}", "add", result, (dot_name, names[2]))
        else:
            product = f"multiply.{op.symbol_id}"
            multiply = fused.add(product, "multiply", result, (names[0], names[-1]))
            multiply.metadata.op_name = op.framework_name
            fused.add(f"add.{op.symbol_id}", "add", result, (product, names[0]))
        return fused

    def _write_stack_frames(self, index: hlo_pb2.StackFrameIndexProto) -> None:
        index.file_names.append(SOURCE_FILE)
        index.function_names.extend((*(name for name, _ in _STACK), "train_step"))
        for position, (_, line) in enumerate(_STACK, start=1):
            index.file_locations.add(file_name_id=1, function_name_id=position, line=line, column=5)
            index.stack_frames.add(file_location_id=position, parent_frame_id=position - 1)
        for line, frame in self._frames.items():
            index.file_locations.add(
                file_name_id=1, function_name_id=len(_STACK) + 1, line=line, column=9
            )
            index.stack_frames.add(file_location_id=frame, parent_frame_id=len(_STACK))
