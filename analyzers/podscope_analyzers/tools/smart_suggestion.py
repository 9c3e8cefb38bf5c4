"""The rules that XProf has as smart suggestions: which of them apply to a capture."""

from collections.abc import Mapping
from typing import Final

from podscope_analyzers.advice.engine import judge
from podscope_analyzers.advice.measure import measure
from podscope_analyzers.advice.metrics import HostMetrics, Metrics
from podscope_analyzers.advice.rules.suggestions import SUGGESTIONS
from podscope_analyzers.advice.rules.table import RULES
from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.html_text import escape
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult

NAME: Final = "smart_suggestion"
VERSION: Final = 1

_BARRIERS: Final = "barrier_cores"
_COLUMNS: Final = (
    Column("rule", "Rule", "string"),
    Column("code", "Advice", "string"),
    Column("state", "State", "string"),
    Column("severity", "Severity", "string"),
    Column("message", "Why", "string"),
    Column("action", "What to do", "string"),
)
_ORDER: Final = ("applies", "does_not_apply", "not_measured")
_NOTHING_MEASURED: Final = Reason(
    "no_figures",
    "The capture has no steps, no operations and no facts of its hosts for the rules to judge.",
    "Capture while the job trains, with its devices; annotate the steps.",
)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Every rule with what it found; those that apply first."""
    del parameters  # It takes none.
    rules = {rule.id: rule for rule in RULES if rule.id in SUGGESTIONS}
    metrics = _metrics(stats, scope)
    found = {advice.code: advice for advice in judge(metrics, list(rules.values()))}
    rows: list[list[Cell]] = []
    for code, name in SUGGESTIONS.items():
        advice = found.get(code)
        is_measured = getattr(metrics, rules[code].group) is not None
        state = "applies" if advice else "does_not_apply" if is_measured else "not_measured"
        message = advice.message if advice else None
        severity = advice.severity if advice else None
        rows.append([name, code, state, severity, message, rules[code].action])
    rows.sort(key=lambda row: _ORDER.index(str(row[2])))
    table = Table(_COLUMNS, rows)
    # Facts of a host are there as soon as a file is: alone they are nothing to judge.
    is_empty = not found and metrics.steps is None and metrics.devices is None
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="empty" if is_empty else "ok",
        result={"applying": len(found), "rules": table.to_json()},
        tables={"rules": table},
        reasons=(_NOTHING_MEASURED,) if is_empty else (),
        losses=stats.losses,
    )


def _metrics(stats: CaptureStats, scope: Scope) -> Metrics:
    groups = [rule.group for rule in RULES if rule.id in SUGGESTIONS]
    return measure(stats, scope, dict.fromkeys(groups))


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's list: of its open build, barriers between cores alone."""
    del parameters  # It takes none.
    metrics = measure(stats, Scope([host.host for host in stats.hosts]), ("hosts",))
    rule = next(rule for rule in RULES if rule.id == _BARRIERS)
    if metrics.hosts is None or not judge(metrics, [rule]):
        return {"suggestions": []}
    hostnames = {host.host: host.hostname for host in stats.hosts}
    text = _barriers_text(metrics.hosts, hostnames)
    return {"suggestions": [{"ruleName": f"{SUGGESTIONS[_BARRIERS]}Rule", "suggestionText": text}]}


def _barriers_text(found: HostMetrics, hostnames: Mapping[str, str]) -> str:
    """The suggestion as HTML, in our own words."""
    told = "".join(
        f"<li>Host <b>{escape(hostnames.get(host, host))}</b>: <b>{share:.1%}</b></li>"
        for host, share in found.barrier_outliers
    )
    balance = "Look for hosts whose part of the work is larger than that of the others."
    if told:
        balance = f"The share of these hosts stands out:<ul>{told}</ul>"
    items = (
        balance,
        "Combine small collectives: each of them has a barrier.",
        "Check the links between the chips.",
        "Let every host get its input as fast as the others.",
    )
    listed = "".join(f"<li>{item}</li>" for item in items)
    return (
        f"<p>The cores wait for each other at barriers: <b>{found.barrier_ratio:.1%} of each step"
        f"</b> on average.</p><ul>{listed}</ul>"
    )
