"""How ``podscope analyze`` prints results for programs: as JSON, as CSV, as XProf does."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import run_tool
from podscope_analyzers.registry import TOOLS, nearest
from podscope_analyzers.result import Scope, Table, ToolResult
from podscope_collector.errors import RequestError


def print_json(content: object) -> None:
    """One JSON document on stdout; a number that JSON does not know is a defect."""
    sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")


def print_xprof(answer: object) -> None:
    """XProf's answer: JSON, or a page, text or bytes of some tools as they are.

    Raises:
        RequestError: bytes would go to a terminal.
    """
    if isinstance(answer, bytes):
        if sys.stdout.isatty():
            msg = "the answer is binary: redirect the output to a file"
            raise RequestError(msg)
        sys.stdout.buffer.write(answer)
    elif isinstance(answer, str):
        sys.stdout.write(answer)
    else:
        print_json(answer)


class HasTables(Protocol):
    """A result, or a comparison of two."""

    @property
    def tool(self) -> str:
        """Whose."""

    @property
    def tables(self) -> Mapping[str, Table]:
        """By name."""


def print_csv(result: HasTables, name: str | None) -> None:
    """One table as CSV, or all of them as a zip.

    Raises:
        RequestError: no table has this name, or a zip would go to a terminal.
    """
    import io
    import zipfile

    from podscope_collector.csv_text import csv_text

    tables = chosen_tables(result, name)
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


@dataclass(frozen=True)
class Summary:
    """What a run is: the overview of it, and which tools have something to say."""

    overview: ToolResult
    tools: Sequence[Mapping[str, str]]


def summarize(partials: Sequence[HostPartial], scope: Scope) -> Summary:
    """The summary of the hosts that could be read."""
    results = {name: run_tool(name, partials, scope) for name in TOOLS}
    tools = [
        {
            "name": tool.name,
            "title": tool.title,
            "scope": tool.scope,
            "status": results[tool.name].status,
        }
        for tool in TOOLS.values()
    ]
    return Summary(results["overview_page"], tools)


def print_summary_json(partials: Sequence[HostPartial], scope: Scope) -> None:
    """The summary as one document."""
    found = summarize(partials, scope)
    hosts = [
        {"host": partial.host, **partial.summary.to_json()}
        for partial in sorted(partials, key=lambda p: p.host)
    ]
    envelope = found.overview.to_json()
    print_json({"scope": envelope["scope"], "hosts": hosts, "tools": found.tools})


def chosen_tables(result: HasTables, name: str | None) -> Mapping[str, Table]:
    """All tables of a result, or the one of this name.

    Raises:
        RequestError: no table has this name.
    """
    if name is None:
        return result.tables
    if name not in result.tables:
        msg = f"{result.tool} has no table '{name}'{nearest(name, result.tables)}"
        raise RequestError(msg)
    return {name: result.tables[name]}
