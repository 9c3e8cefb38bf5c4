"""HLO as XLA prints it: one instruction, or a whole module."""

from podscope_analyzers.hlo.text.module_text import ModuleText, module_text
from podscope_analyzers.hlo.text.printer import EXPRESSION, LONG, SHORT, Printer, Style
from podscope_analyzers.hlo.text.stack_frames import StackFrames

__all__ = [
    "EXPRESSION",
    "LONG",
    "SHORT",
    "ModuleText",
    "Printer",
    "StackFrames",
    "Style",
    "module_text",
]
