"""HLO as XLA prints it: one instruction, or parts of it."""

from podscope_analyzers.hlo.text.printer import EXPRESSION, Printer, Style

__all__ = ["EXPRESSION", "Printer", "Style"]
