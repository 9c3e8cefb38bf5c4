"""Applies the rules: measures what they read, and words what they find."""

from collections.abc import Sequence
from typing import Final

from podscope_analyzers.advice.measure import measure
from podscope_analyzers.advice.metrics import Metrics
from podscope_analyzers.advice.rules.rule import Rule
from podscope_analyzers.advice.rules.table import RULES
from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.result import Advice, Scope

PAGE: Final = "docs/reference/advice.md"
OVERVIEW: Final = "overview_page"
_ORDER: Final = ("high", "medium", "low")


def advise(
    stats: CaptureStats, scope: Scope, tool: str, rules: Sequence[Rule] = RULES
) -> tuple[Advice, ...]:
    """The advice that concerns one tool, the most severe first; the overview has all of it.

    Args:
        stats: Of the hosts that the tool's result is of.
        scope: What that result covers.
        tool: The tool's name.
        rules: The table; only those that the tool shows are measured for.
    """
    shown = [rule for rule in rules if tool == OVERVIEW or tool in rule.tools]
    metrics = measure(stats, scope, dict.fromkeys(rule.group for rule in shown))
    return judge(metrics, shown)


def judge(metrics: Metrics, rules: Sequence[Rule] = RULES) -> tuple[Advice, ...]:
    """What the rules find in some metrics, the most severe first, then in the table's order."""
    found = [advice for rule in rules if (advice := _applied(rule, metrics)) is not None]
    found.sort(key=lambda advice: _ORDER.index(advice.severity))
    return tuple(found)


def _applied(rule: Rule, metrics: Metrics) -> Advice | None:
    group = getattr(metrics, rule.group)
    finding = None if group is None else rule.find(group, rule)
    if finding is None:
        return None
    return Advice(
        code=rule.id,
        severity=finding.severity,
        title=rule.title,
        message=finding.message,
        action=rule.action,
        link=f"{PAGE}#{rule.id}",
        evidence=finding.evidence,
    )
