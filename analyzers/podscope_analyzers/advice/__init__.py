"""What to do about a capture: one table of rules over typed metrics of its stats."""

from podscope_analyzers.advice.engine import advise
from podscope_analyzers.advice.rules import RULES, Rule

__all__ = ["RULES", "Rule", "advise"]
