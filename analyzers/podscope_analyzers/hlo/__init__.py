"""HLO programs of a capture: instructions, their names and sources, and what they cost."""

from podscope_analyzers.hlo.instructions import Instruction, Source, category
from podscope_analyzers.hlo.programs import Program, Programs, read_programs

__all__ = ["Instruction", "Program", "Programs", "Source", "category", "read_programs"]
