"""Whether the documentation's page of advice and the table of rules say the same."""

import re
from pathlib import Path

import pytest

from podscope_analyzers.advice import RULES, Rule
from podscope_analyzers.advice.engine import PAGE

ROOT = Path(__file__).resolve().parents[4]
_BELOW = {"few_16bit", "low_flops"}


def _entries() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", (ROOT / PAGE).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_has_one_entry_per_rule_in_the_tables_order() -> None:
    assert list(_entries()) == [rule.id for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_an_entry_says_what_its_rule_does(rule: Rule) -> None:
    entry = _entries()[rule.id]
    word = "below" if rule.id in _BELOW else "from"
    levels = ", ".join(f"{severity} {word} {value:g}" for severity, value in rule.levels.items())
    assert f"- Severity: {levels}\n" in entry
    limits = ", ".join(f"`{name}` {value:g}" for name, value in rule.limits.items())
    assert (f"- Limits: {limits}\n" in entry) == bool(rule.limits)
    shown = ", ".join(f"`{tool}`" for tool in ("overview_page", *rule.tools))
    assert f"- Shown by: {shown}\n" in entry
    assert f"- What to do: {rule.action}\n" in entry
    assert f"**{rule.title}.** " in entry


def test_levels_are_ordered_from_the_most_severe_down() -> None:
    order = ["high", "medium", "low"]
    for rule in RULES:
        places = [order.index(severity) for severity in rule.levels]
        assert places == sorted(places)
        assert list(rule.levels.values()) == sorted(rule.levels.values(), reverse=True)
