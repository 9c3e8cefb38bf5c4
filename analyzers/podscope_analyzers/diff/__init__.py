"""Two results of one tool compared: rows matched, changes judged by the steps' own spread."""

from podscope_analyzers.diff.compare import Comparison, Side, compare, parameters_for

__all__ = ["Comparison", "Side", "compare", "parameters_for"]
