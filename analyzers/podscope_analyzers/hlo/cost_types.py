"""What one execution of an instruction costs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class InstructionCost:
    """Cost of one execution by the profiler's analysis for GPUs; 0 where it is unknown.

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
