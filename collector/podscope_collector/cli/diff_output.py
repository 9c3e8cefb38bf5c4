"""How ``podscope diff`` prints a comparison for people."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table as RichTable
from rich.text import Text

from podscope_analyzers.registry import TOOLS, nearest
from podscope_collector.cli.consoles import result_console
from podscope_collector.errors import RequestError

MOST_ROWS: Final = 20
_MAX_CELL: Final = 60
_WORDS: Final = {
    "significant": "significant",
    "within_noise": "within noise",
    "unknown": "unknown",
}


def print_comparison(document: Mapping[str, Any], name: str | None) -> None:
    """The changes, largest first; of several tables the first rows of each.

    Raises:
        RequestError: no table has this name.
    """
    console = result_console()
    tables = document["tables"]
    if name is not None and name not in tables:
        message = f"the comparison has no table '{name}'{nearest(name, tables)}"
        raise RequestError(message)
    sides = [_side(document[side]) for side in ("base", "other")]
    console.print(Text(f"{TOOLS[document['tool']].title}: {sides[0]} → {sides[1]}", style="bold"))
    if document["status"] == "ok":
        console.print(Text(step_statement(document["summary"]["step_time"])))
        console.print(
            Text(
                "Times are of a step of one core or host."
                if document["basis"] == "step"
                else "Times are of the whole captures.",
                style="dim",
            )
        )
    for reason in (*document["reasons"], *document["notes"]):
        console.print(Text(f"! {reason['message'].rstrip('.')}: {reason['advice']}", "yellow"))
    shown = tables if name is None else {name: tables[name]}
    for title, table in shown.items():
        if table["rows"]:
            console.print()
            counts = document["summary"].get("tables", {}).get(title)
            console.print(Text(f"{title}{_counts(counts)}", style="bold"))
            console.print(_table(table, None if name else MOST_ROWS))


def step_statement(step: Mapping[str, Any] | None) -> str:
    """Whether the step got slower, in a sentence."""
    if step is None:
        return "The steps cannot be compared: a side has none."
    change = step["change"]
    ratio = "" if step["change_ratio"] is None else f" ({abs(step['change_ratio']):.1%})"
    how = "slower" if change > 0 else "faster"
    means = f"{_time(step['base_mean'])} → {_time(step['other_mean'])}"
    if not change:
        return f"Step time {_time(step['base_mean'])} in both."
    if step["significance"] == "within_noise":
        return f"Step time {means}: {_time(abs(change))}{ratio} {how}, within noise."
    if step["significance"] == "unknown":
        return f"Step time {means}: {_time(abs(change))}{ratio} {how}; too few steps to judge."
    low, high = sorted((abs(step["change_low"]), abs(step["change_high"])))
    return (
        f"Step time {means}: {_time(abs(change))}{ratio} {how} "
        f"(95 % interval {_time(low)} to {_time(high)})."
    )


def _time(microseconds: float) -> str:
    return f"{microseconds / 1000:,.3f} ms"


def _side(side: Mapping[str, Any]) -> str:
    hosts = side["scope"]["hosts"]
    whose = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
    steps = f", steps {side['steps'][0]} to {side['steps'][1]}" if side["steps"] else ""
    session = f"{side['scope']['session']}, " if side["scope"]["session"] else ""
    return f"{session}{whose}{steps}"


def _counts(counts: Mapping[str, Any] | None) -> str:
    if counts is None:
        return ""
    words = [f"{counts['matched']} in both"]
    words += [f"{counts[name]} {name}" for name in ("appeared", "vanished") if counts[name]]
    return f": {', '.join(words)}"


def _table(table: Mapping[str, Any], most: int | None) -> RichTable:
    shown = RichTable(box=None, pad_edge=False)
    taken = [
        (at, column)
        for at, column in enumerate(table["columns"])
        if not _is_detail(column["id"]) and _says_something(table["rows"], at)
    ]
    for _, column in taken:
        is_text = column["type"] == "string"
        shown.add_column(column["id"], justify="left" if is_text else "right", no_wrap=not is_text)
    for row in table["rows"][:most]:
        shown.add_row(*(Text(_cell(column, row[at])) for at, column in taken))
    if most is not None and len(table["rows"]) > most:
        shown.add_row(Text(f"… {len(table['rows']) - most} more: --table", style="dim"))
    return shown


def _is_detail(name: str) -> bool:
    """What only programs want to know."""
    return name in {"base_rows", "other_rows", "measure", "node"}


def _says_something(rows: Sequence[Sequence[Any]], at: int) -> bool:
    return any(row[at] not in {None, ""} for row in rows)


def _cell(column: Mapping[str, Any], cell: object) -> str:
    if cell is None:
        return "-"
    if column["id"] == "change_ratio" and isinstance(cell, int | float):
        return f"{cell:+.1%}"
    if column["id"].startswith("change") and isinstance(cell, int | float):
        return f"{cell:+,.3f}"
    if isinstance(cell, float):
        return f"{cell:.4g}" if column["id"] == "p_value" else f"{cell:,.3f}"
    text = _WORDS.get(str(cell), str(cell))
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"
