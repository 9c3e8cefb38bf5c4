"""One HLO instruction as profiles speak of it: category, framework name, source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from podscope_analyzers.hlo.damage import DAMAGED
from podscope_analyzers.hlo.shapes import bit_width
from podscope_analyzers.hlo.text import Printer
from podscope_protos.v1 import hlo_pb2

MAX_EXPRESSION_BYTES: Final = 1_000_000

OPCODES: Final = frozenset(
    [
        "abs",
        "add",
        "add-dependency",
        "after-all",
        "all-gather",
        "all-gather-done",
        "all-gather-start",
        "all-reduce",
        "all-reduce-done",
        "all-reduce-start",
        "all-to-all",
        "and",
        "async-done",
        "async-start",
        "async-update",
        "atan2",
        "batch-norm-grad",
        "batch-norm-inference",
        "batch-norm-training",
        "bitcast",
        "bitcast-convert",
        "broadcast",
        "call",
        "cbrt",
        "ceil",
        "cholesky",
        "clamp",
        "collective-broadcast",
        "collective-permute",
        "collective-permute-done",
        "collective-permute-start",
        "compare",
        "complex",
        "concatenate",
        "conditional",
        "constant",
        "convert",
        "convolution",
        "copy",
        "copy-done",
        "copy-start",
        "cosine",
        "count-leading-zeros",
        "custom-call",
        "divide",
        "domain",
        "dot",
        "dynamic-reshape",
        "dynamic-slice",
        "dynamic-update-slice",
        "erf",
        "exponential",
        "exponential-minus-one",
        "fft",
        "floor",
        "fusion",
        "gather",
        "get-dimension-size",
        "get-tuple-element",
        "imag",
        "infeed",
        "iota",
        "is-finite",
        "log",
        "log-plus-one",
        "logistic",
        "map",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "opt-barrier",
        "or",
        "outfeed",
        "pad",
        "parameter",
        "partition-id",
        "popcnt",
        "power",
        "ragged-all-to-all",
        "ragged-dot",
        "real",
        "recv",
        "recv-done",
        "reduce",
        "reduce-precision",
        "reduce-scatter",
        "reduce-window",
        "remainder",
        "replica-id",
        "reshape",
        "reverse",
        "rng",
        "rng-bit-generator",
        "rng-get-and-update-state",
        "round-nearest-afz",
        "round-nearest-even",
        "rsqrt",
        "scatter",
        "select",
        "select-and-scatter",
        "send",
        "send-done",
        "set-dimension-size",
        "shift-left",
        "shift-right-arithmetic",
        "shift-right-logical",
        "sign",
        "sine",
        "sort",
        "sqrt",
        "stochastic-convert",
        "subtract",
        "tan",
        "tanh",
        "topk",
        "transpose",
        "triangular-solve",
        "tuple",
        "while",
        "xor",
    ]
)
"""What an instruction can do, as the compiler names it."""

_DATA_FORMATTING: Final = frozenset({"transpose", "copy", "reshape", "dynamic-reshape"})
_FUSIONS: Final = {
    "kLoop": "loop fusion",
    "kInput": "input fusion",
    "kOutput": "output fusion",
    "kCustom": "custom fusion",
}
_UNARY: Final = (
    "abs acos acosh asin asinh atanh cbrt ceil convert cos cosine cosh count-leading-zeros erf "
    "exponential exponential-minus-one floor imag is-finite log log-plus-one logistic negate not "
    "popcnt real reduce-precision round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt "
    "stochastic-convert tan tanh"
)
_BINARY: Final = (
    "add and atan2 compare complex divide maximum minimum multiply or power remainder shift-left "
    "shift-right-arithmetic shift-right-logical subtract xor"
)
ELEMENTWISE: Final = frozenset(f"{_UNARY} {_BINARY} select clamp".split())
# Elementwise for the category alone: their cost is another.
_ALSO_ELEMENTWISE: Final = frozenset({"constant", "map", "rng"})


@dataclass(frozen=True)
class Source:
    """Where in the program's text an instruction is from.

    Attributes:
        file: Empty without one.
        line: -1 without a file.
        stack: One ``file:line:column`` per frame, innermost first, each ended by a newline.
    """

    file: str
    line: int
    stack: str


class Surroundings(Protocol):
    """The program that an instruction is in; see ``programs.Program``."""

    @property
    def expressions(self) -> Printer:
        """Prints single instructions as profiles show them."""

    @property
    def module(self) -> hlo_pb2.HloModuleProto:
        """Its module."""

    @property
    def computations(self) -> Mapping[int, hlo_pb2.HloComputationProto]:
        """Computations by id."""

    @property
    def by_id(self) -> Mapping[int, hlo_pb2.HloInstructionProto]:
        """Instructions by id."""

    def stack(self, frame_id: int) -> Iterator[tuple[str, int, int]]:
        """File, line and column of a stack frame and of its callers."""


class Instruction:
    """An instruction of a program.

    Attributes:
        program: The program it is in.
        proto: The instruction as serialised.
    """

    def __init__(self, program: Surroundings, proto: hlo_pb2.HloInstructionProto) -> None:
        self.program = program
        self.proto = proto

    @property
    def name(self) -> str:
        """Its name, unique in its program."""
        return self.proto.name

    @cached_property
    def category(self) -> str:
        """What kind of work it is, in the words of XLA's profiler."""
        return category(self.program, self.proto)

    @property
    def framework_name(self) -> str:
        """``name:type`` of the framework's operation, empty when it has neither."""
        metadata = self.proto.metadata
        if metadata.op_name in ("XLA_Args", "XLA_Retvals") and not metadata.op_type:
            return f"{metadata.op_name}:{metadata.op_name}"
        return self.full_name if metadata.op_name or metadata.op_type else ""

    @property
    def full_name(self) -> str:
        """``name:type`` of the framework's operation; the colon is always there."""
        metadata = self.proto.metadata
        return f"{metadata.op_name}:{metadata.op_type}"

    @property
    def deduplicated_name(self) -> str:
        """Name of the instruction that it is a copy of; empty for none."""
        return self.proto.metadata.deduplicated_name

    @property
    def source(self) -> Source:
        """File, line and stack; without a file of its own, that of the innermost frame."""
        metadata = self.proto.metadata
        frames = list(self.program.stack(metadata.stack_frame_id))
        stack = "".join(f"{file}:{line}:{column}\n" for file, line, column in frames)
        if metadata.source_file:
            return Source(metadata.source_file, metadata.source_line, stack)
        if frames:
            file, line, _ = frames[0]
            return Source(file, line, stack)
        return Source("", -1, stack)

    @cached_property
    def expression(self) -> str:
        """The instruction as text, at most 1,000,000 bytes of it; empty for a damaged one."""
        try:
            text = self.program.expressions.instruction(self.proto)
        except DAMAGED:
            return ""
        if len(text) * 4 <= MAX_EXPRESSION_BYTES:
            return text
        return text.encode()[:MAX_EXPRESSION_BYTES].decode(errors="ignore")

    def fused(self) -> tuple["Instruction", ...]:
        """Instructions that a fusion holds, without parameters and tuples."""
        return self._fused

    @cached_property
    def _fused(self) -> tuple["Instruction", ...]:
        # Kept, since every core that runs the fusion asks for the texts of all of them.
        return tuple(self._inside())

    def _inside(self) -> Iterator["Instruction"]:
        if self.proto.opcode != "fusion":
            return
        # A fusion calls one computation: damaged ones name it a million times.
        for computation_id in dict.fromkeys(self.proto.called_computation_ids):
            computation = self.program.computations.get(computation_id)
            for proto in computation.instructions if computation else ():
                if proto.opcode not in ("parameter", "tuple"):
                    yield Instruction(self.program, proto)


def category(program: Surroundings, proto: hlo_pb2.HloInstructionProto) -> str:
    """Category of an instruction, for tracers that give none."""
    opcode = proto.opcode
    if opcode in _DATA_FORMATTING:
        return "data formatting"
    if opcode == "fusion":
        return _FUSIONS.get(proto.fusion_kind, "unknown fusion")
    if opcode == "convolution":
        dimensions = proto.window.dimensions
        base = any(d.base_dilation > 1 for d in dimensions)
        window = any(d.window_dilation > 1 for d in dimensions)
        return opcode + " base-dilated" * base + " window-dilated" * window
    if opcode == "bitcast-convert":
        operand = program.by_id.get(proto.operand_ids[0]) if proto.operand_ids else None
        if operand is None or bit_width(operand.shape.element_type) != bit_width(
            proto.shape.element_type
        ):
            return opcode
        return "non-fusion elementwise"
    if opcode in ELEMENTWISE or opcode in _ALSO_ELEMENTWISE:
        return "non-fusion elementwise"
    return opcode
