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
_TOTALS: Final = "totals"
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
    # What every single number did comes last: few of them are what somebody looks for.
    order = sorted(tables, key=lambda title: title == _TOTALS)
    for title in order if name is None else [name]:
        table = tables[title] if name else _briefly(title, tables[title])
        if table["rows"]:
            console.print()
            counts = document["summary"].get("tables", {}).get(title)
            console.print(Text(f"{title}{_counts(counts)}", style="bold"))
            console.print(_table(table, None if name else MOST_ROWS, is_brief=name is None))


def step_statement(step: Mapping[str, Any] | None) -> str:
    """Whether the step got slower, in a sentence."""
    if step is None:
        return "The steps cannot be compared: a side has none."
    change = step["change"]
    ratio = "" if step["change_ratio"] is None else f" ({_share(abs(step['change_ratio']))})"
    how = "slower" if change > 0 else "faster"
    means = f"{_time(step['base_mean'])} → {_time(step['other_mean'])}"
    if _time(step["base_mean"]) == _time(step["other_mean"]):
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


def _share(ratio: float) -> str:
    return "<0.1%" if 0 < ratio < 0.0005 else f"{ratio:.1%}"


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


def _briefly(title: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of single numbers those that changed."""
    if title != _TOTALS:
        return table
    at = [column["id"] for column in table["columns"]].index("change")
    return {**table, "rows": [row for row in table["rows"] if row[at]]}


def _table(table: Mapping[str, Any], most: int | None, *, is_brief: bool) -> RichTable:
    shown = RichTable(box=None, pad_edge=False)
    ids = [column["id"] for column in table["columns"]]
    taken = [
        (at, column)
        for at, column in enumerate(table["columns"])
        if not _is_detail(ids, at, is_brief=is_brief) and _says_something(table["rows"], at)
    ]
    for _, column in taken:
        is_text = column["type"] == "string"
        shown.add_column(column["id"], justify="left" if is_text else "right", no_wrap=not is_text)
    for row in table["rows"][:most]:
        shown.add_row(*(Text(_cell(column, row[at])) for at, column in taken))
    if most is not None and len(table["rows"]) > most:
        shown.add_row(Text(f"… {len(table['rows']) - most} more: --table", style="dim"))
    return shown


def _is_detail(ids: Sequence[str], at: int, *, is_brief: bool) -> bool:
    """What only programs want to know; briefly also what else was counted, and the statistics."""
    name = ids[at]
    if name in {"base_rows", "other_rows", "measure", "node"}:
        return True
    if not is_brief or "match" not in ids or "change_ratio" not in ids:
        return False
    return at > ids.index("change_ratio") and name not in {"significance", "unit"}


def _says_something(rows: Sequence[Sequence[Any]], at: int) -> bool:
    return any(row[at] not in {None, ""} for row in rows)


def _cell(column: Mapping[str, Any], cell: object) -> str:
    if cell is None:
        return "-"
    is_number = isinstance(cell, int | float) and not isinstance(cell, bool)
    if column["id"] == "change_ratio" and is_number:
        return _without_sign_of_zero(f"{cell:+.1%}")
    if column["id"].startswith("change") and is_number:
        return _without_sign_of_zero(f"{cell:+,.3f}")
    if isinstance(cell, float):
        return f"{cell:.4g}" if column["id"] == "p_value" else f"{cell:,.3f}"
    if is_number:
        return f"{cell:,}"
    text = _WORDS.get(str(cell), str(cell))
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"


def _without_sign_of_zero(text: str) -> str:
    """What rounds to nothing went neither up nor down."""
    return text if any(digit in text for digit in "123456789") else text.lstrip("+-")
