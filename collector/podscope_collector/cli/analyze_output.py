"""How ``podscope analyze`` prints results: for people, as JSON, as CSV."""

import io
import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import run_tool
from podscope_analyzers.registry import TOOLS, nearest
from podscope_analyzers.result import Cell, Column, Scope, Table, ToolResult
from podscope_collector.cli.analyze_overview import print_overview
from podscope_collector.csv_text import csv_text
from podscope_collector.errors import RequestError

# A pipe has no width; wide enough that no cell of ours is cut.
_PIPE_WIDTH = 1000
_MAX_CELL = 80
_ROWS_IN_SUMMARY = 5


def print_json(content: object) -> None:
    """One JSON document on stdout; a number that JSON does not know is a defect."""
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")


def print_csv(result: ToolResult, name: str | None) -> None:
    """One table as CSV, or all of them as a zip.

    Raises:
        RequestError: no table has this name, or a zip would go to a terminal.
    """
    tables = _chosen(result, name)
    if len(tables) == 1:
        (table,) = tables.values()
        sys.stdout.write(csv_text(table))
        return
    if sys.stdout.isatty():
        msg = (
            f"{result.tool} has several tables: choose one with --table "
            f"({', '.join(tables)}), or redirect the output to a .zip file"
        )
        raise RequestError(msg)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for table_name, table in tables.items():
            archive.writestr(f"{table_name}.csv", csv_text(table))
    sys.stdout.buffer.write(packed.getvalue())


def print_result(result: ToolResult, name: str | None) -> None:
    """The result for people; pipes get the same text without colours.

    Raises:
        RequestError: no table has this name.
    """
    console = _console()
    tables = _chosen(result, name)
    if name is None:
        _heading(console, result)
        if result.tool == "overview_page":
            print_overview(console, result)
            tables = {}
        else:
            _fields(console, {k: v for k, v in result.result.items() if k not in result.tables})
    for table_name, table in tables.items():
        if table.rows or name is not None:
            console.print()
            console.print(_rich(table, title=table_name))
    _notes(console, result)


def print_summary(partials: Sequence[HostPartial], scope: Scope, *, as_json: bool) -> None:
    """What the run is, and which tools have something to say about it."""
    results = {name: run_tool(name, partials, scope) for name in TOOLS}
    overview = results["overview_page"]
    tools = [
        {
            "name": tool.name,
            "title": tool.title,
            "scope": tool.scope,
            "status": results[tool.name].status,
        }
        for tool in TOOLS.values()
    ]
    if as_json:
        hosts = [
            {"host": partial.host, **partial.summary.to_json()}
            for partial in sorted(partials, key=lambda p: p.host)
        ]
        envelope = overview.to_json()
        print_json({"scope": envelope["scope"], "hosts": hosts, "tools": tools})
        return
    console = _console()
    _heading(console, overview)
    console.print(_hosts(partials))
    for advice in overview.result["recommendations"]:
        console.print(Text(f"- {advice['message']}"))
    _notes(console, overview)
    console.print()
    listed = RichTable(box=None, pad_edge=False)
    for column in ("tool", "shows", "has something to show"):
        listed.add_column(column)
    for tool in tools:
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


def _console() -> Console:
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=_PIPE_WIDTH, soft_wrap=True)


def _chosen(result: ToolResult, name: str | None) -> Mapping[str, Table]:
    if name is None:
        return result.tables
    if name not in result.tables:
        msg = f"{result.tool} has no table '{name}'{nearest(name, result.tables)}"
        raise RequestError(msg)
    return {name: result.tables[name]}


def _heading(console: Console, result: ToolResult) -> None:
    hosts = result.scope.hosts
    whose = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
    session = f"{result.scope.session}, " if result.scope.session else ""
    console.print(Text(f"{TOOLS[result.tool].title}: {session}{whose}", style="bold"))


def _notes(console: Console, result: ToolResult) -> None:
    for reason in result.reasons:
        console.print(Text(f"! {reason.message.rstrip('.')}: {reason.advice}", style="yellow"))
    for loss in result.losses:
        console.print(Text(f"! {loss.host}: {loss.count} {loss.kind} on {loss.plane}"))


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
