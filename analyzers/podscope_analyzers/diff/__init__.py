"""Two results of one tool compared: rows matched, changes judged by the steps' own spread."""

from podscope_analyzers.diff.compare import Comparison, Side, compare

__all__ = ["Comparison", "Side", "compare"]
