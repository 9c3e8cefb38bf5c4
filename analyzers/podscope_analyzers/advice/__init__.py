"""What to do about a capture: one table of rules over typed metrics of its stats."""

from podscope_analyzers.advice.engine import advise
from podscope_analyzers.advice.rules.rule import Rule
from podscope_analyzers.advice.rules.table import RULES

__all__ = ["RULES", "Rule", "advise"]
