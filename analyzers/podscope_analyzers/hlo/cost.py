"""Cost of instructions by the profiler's analysis for GPUs, as profiles of GPUs use it.

Exact as arithmetic on shapes for products and plain traffic; an estimate for elementwise weights,
loops (one iteration), conditionals (the dearest branch), fusions and collectives.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from podscope_analyzers.hlo.damage import DAMAGED
from podscope_analyzers.hlo.gpu_analysis import GpuAnalysis
from podscope_analyzers.hlo.gpu_rules import InstructionTotals
from podscope_analyzers.hlo.instructions import Instruction
from podscope_analyzers.hlo.shapes import bit_width, is_tuple, leaves
from podscope_protos.v1 import hlo_pb2


@dataclass(frozen=True)
class InstructionCost:
    """Cost of one execution; 0 where it is unknown.

    Attributes:
        flops: At the width of the operands: narrow types count less.
        model_flops: As written in the program.
        bytes_accessed: Read and written.
        read_bytes: From device memory.
        written_bytes: To device memory.
    """

    flops: int = 0
    model_flops: int = 0
    bytes_accessed: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


UNKNOWN_COST = InstructionCost()

_KEPT_AS = "_gpu_analysis"
# No device does or holds as much: sizes that make it are damaged.
_MOST: Final = 1 << 60


def instruction_cost(instruction: Instruction) -> InstructionCost:
    """Cost of one execution of an instruction; unknown for a damaged one."""
    try:
        cost = _instruction_cost(instruction)
    except DAMAGED:
        return UNKNOWN_COST
    return cost if max(vars(cost).values()) <= _MOST else UNKNOWN_COST


def _instruction_cost(instruction: Instruction) -> InstructionCost:
    program = instruction.program
    # With the program: it knows it, and so would keep it alive in a table of weak references.
    known = vars(program)
    analysis: GpuAnalysis | None = known.get(_KEPT_AS)
    if analysis is None:
        analysis = known[_KEPT_AS] = GpuAnalysis(program)
    totals = analysis.totals(instruction.proto)
    if totals is None:
        return UNKNOWN_COST
    model_flops = max(int(totals.flops), 0)
    size = max(int(totals.bytes), 0)
    operands = [program.by_id[i] for i in instruction.proto.operand_ids]
    read, written = _device_memory(instruction.proto, operands, totals) if size else (0, 0)
    return InstructionCost(
        flops=model_flops - _narrow_discount(instruction.proto, operands, model_flops),
        model_flops=model_flops,
        bytes_accessed=size,
        read_bytes=read,
        written_bytes=written,
    )


def _narrow_discount(
    proto: hlo_pb2.HloInstructionProto, operands: list[hlo_pb2.HloInstructionProto], flops: int
) -> int:
    """Flops that are not counted because the operands are 8 or 4 bits wide."""
    if proto.opcode == "custom-call":
        if not proto.custom_call_target.startswith("__cublas$lt$matmul"):
            return 0
        operands = operands[:1]
    widths = [
        # The reference counts a truth value as one bit.
        1 if shape.element_type == hlo_pb2.PrimitiveType.PRED else bit_width(shape.element_type)
        for shape in (operand.shape for operand in operands)
        if not is_tuple(shape)
    ]
    share = {8: 2, 4: 4}.get(max(widths, default=0), 1)
    full = np.float32(flops)
    return int(full - full / np.float32(share))


def _device_memory(
    proto: hlo_pb2.HloInstructionProto,
    operands: list[hlo_pb2.HloInstructionProto],
    totals: InstructionTotals,
) -> tuple[int, int]:
    """Bytes read from and written to device memory."""
    read = sum(
        int(part.get(index, 0))
        for operand, part in zip(operands, totals.operands, strict=False)
        for index, leaf in leaves(operand.shape)
        if leaf.layout.memory_space == 0
    )
    written = sum(
        int(totals.output.get(index, 0))
        for index, leaf in leaves(proto.shape)
        if leaf.layout.memory_space == 0
    )
    return max(read, 0), max(written, 0)
