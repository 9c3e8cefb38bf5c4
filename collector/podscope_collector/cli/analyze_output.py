"""How ``podscope analyze`` prints results for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from podscope_analyzers.losses import HOST_MISSING
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Cell, Column, Scope, Table, ToolResult
from podscope_collector.cli.analyze_documents import chosen_tables, summarize
from podscope_collector.cli.analyze_overview import print_advice, print_overview
from podscope_collector.cli.analyze_pod import print_pod
from podscope_collector.cli.consoles import result_console

_MAX_CELL = 80


def print_result(result: ToolResult, name: str | None) -> None:
    """The result for people; pipes get the same text without colours.

    Raises:
        RequestError: no table has this name.
    """
    console = result_console()
    tables = chosen_tables(result, name)
    if name is None:
        _heading(console, result)
        if result.tool == "overview_page":
            print_overview(console, result)
            tables = {}
        elif result.tool == "pod_viewer":
            print_pod(console, result)
            tables = {}
        else:
            _fields(console, {k: v for k, v in result.result.items() if k not in result.tables})
            print_advice(console, result.advice)
    for table_name, table in tables.items():
        if table.rows or name is not None:
            console.print()
            console.print(_rich(table, title=table_name))
    _notes(console, result)


def print_summary(partials: Sequence[HostPartial], scope: Scope) -> None:
    """What the run is, and which tools have something to say about it."""
    found = summarize(partials, scope)
    console = result_console()
    _heading(console, found.overview)
    console.print(_hosts(partials))
    print_advice(console, found.overview.advice)
    _notes(console, found.overview)
    console.print()
    listed = RichTable(box=None, pad_edge=False)
    for column in ("tool", "shows", "has something to show"):
        listed.add_column(column)
    for tool in found.tools:
        listed.add_row(tool["name"], tool["title"], "yes" if tool["status"] == "ok" else "no")
    console.print(listed)
    console.print("\n--tool NAME shows one; --format json, csv or xprof for programs")


def _hosts(partials: Sequence[HostPartial]) -> RichTable:
    shown = RichTable(box=None, pad_edge=False)
    shown.add_column("host", no_wrap=True)
    shown.add_column("device")
    for column in ("steps", "step time", "duty cycle", "TFLOP/s"):
        shown.add_column(column, justify="right")
    shown.add_column("most of the step")
    for partial in sorted(partials, key=lambda p: p.host):
        about = partial.summary
        longest = max(about.breakdown.items(), key=lambda item: item[1], default=None)
        shown.add_row(
            Text(partial.host),
            Text(about.device_type),
            str(about.step_count),
            "" if about.step_time_ms is None else f"{about.step_time_ms:.2f} ms",
            "" if about.duty_cycle_ratio is None else f"{about.duty_cycle_ratio:.1%}",
            "" if about.flops_per_second is None else f"{about.flops_per_second / 1e12:.2f}",
            "" if longest is None else f"{longest[0].replace('_', ' ')} {longest[1]:.0%}",
        )
    return shown


def _heading(console: Console, result: ToolResult) -> None:
    hosts = result.scope.hosts
    whose = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
    session = f"{result.scope.session}, " if result.scope.session else ""
    console.print(Text(f"{TOOLS[result.tool].title}: {session}{whose}", style="bold"))


def _notes(console: Console, result: ToolResult) -> None:
    for reason in result.reasons:
        console.print(Text(f"! {reason.message.rstrip('.')}: {reason.advice}", style="yellow"))
    reasons = {missing.host: missing.reason for missing in result.scope.missing_hosts}
    for loss in result.losses:
        if loss.kind == HOST_MISSING:
            text = f"! {loss.host} is missing: {reasons.get(loss.host, '')}"
        else:
            count = f"{loss.count:,}" if loss.count else "an unknown number of"
            where = f" on {loss.plane}" if loss.plane else ""
            text = f"! {loss.host} lost data: {count} {loss.kind.replace('_', ' ')}{where}"
        console.print(Text(text, style="yellow"))


def _fields(console: Console, fields: Mapping[str, Any]) -> None:
    shown = RichTable.grid(padding=(0, 2))
    for key, value in _flat(fields):
        shown.add_row(Text(key), Text(value))
    console.print(shown)


def _flat(fields: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in fields.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += _flat(value, f"{name}.")
        elif isinstance(value, list):
            rows += [(name, _line(item)) for item in value]
        elif value is not None and value != "":
            rows.append((name, _plain(value)))
    return rows


def _line(item: object) -> str:
    if not isinstance(item, Mapping):
        return _plain(item)
    return ", ".join(f"{key}={_plain(value)}" for key, value in item.items() if value)


def _plain(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _rich(table: Table, title: str) -> RichTable:
    shown = RichTable(title=title, title_justify="left", box=None, pad_edge=False)
    for column in table.columns:
        is_text = column.type == "string"
        label = f"{column.id}"
        shown.add_column(label, justify="left" if is_text else "right", no_wrap=not is_text)
    for row in table.rows:
        shown.add_row(
            *(Text(_cell(column, cell)) for column, cell in zip(table.columns, row, strict=True))
        )
    return shown


def _cell(column: Column, cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if column.type == "number":
        return f"{float(cell):.4g}" if column.unit == "ratio" else f"{float(cell):,.3f}"
    text = str(cell)
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"
