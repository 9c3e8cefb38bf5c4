"""What a rule of the advice is, and what it finds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from podscope_analyzers.result import Evidence, Severity

Group = Literal["steps", "pod", "devices", "hosts", "capture"]


@dataclass(frozen=True)
class Finding:
    """That a rule applies: how severe it is, and why."""

    severity: Severity
    message: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    Attributes:
        id: Stable; the entry of the documentation has it as its heading.
        title: What to do, in a few words.
        group: The field of ``Metrics`` that it reads.
        levels: From which value of its main figure on it applies, by severity, the highest
            first; of rules that apply to low values, below which.
        find: Whether it applies to a group of metrics.
        action: What to do.
        tools: Tools that show it beside the overview, which shows all.
        limits: Further figures that its condition compares with, by name.
    """

    id: str
    title: str
    group: Group
    levels: Mapping[Severity, float]
    find: Callable[[Any, "Rule"], Finding | None]
    action: str
    tools: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)

    def reached(self, value: float | None) -> tuple[Severity, float] | None:
        """The most severe level that a value reaches, and its threshold."""
        if value is None:
            return None
        for severity, threshold in self.levels.items():
            if value >= threshold:
                return severity, threshold
        return None


def by_level(
    rule: Rule, value: float | None, name: str, said: str, *more: Evidence
) -> Finding | None:
    """What to say where a ratio reaches a level of the rule; `{share}` in it is the ratio."""
    level = rule.reached(value)
    if value is None or level is None:
        return None
    severity, threshold = level
    return Finding(
        severity,
        said.format(share=f"{value:.1%}"),
        (Evidence(name, value, "ratio", threshold), *more),
    )
