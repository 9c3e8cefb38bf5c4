"""Cost of instructions by the profiler's analysis for GPUs."""

from podscope_analyzers.hlo.cost_types import UNKNOWN_COST, InstructionCost
from podscope_analyzers.hlo.instructions import Instruction

__all__ = ["UNKNOWN_COST", "InstructionCost", "instruction_cost"]


def instruction_cost(instruction: Instruction) -> InstructionCost:
    """Cost of one execution of an instruction; all 0 where it is unknown."""
    del instruction
    return UNKNOWN_COST
