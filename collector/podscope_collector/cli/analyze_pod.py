"""The pod viewer as an answer: who holds the others back, by how much, and with what."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from podscope_analyzers.result import ToolResult
from podscope_analyzers.stragglers import MIN_WAITING_RATIO
from podscope_collector.cli.analyze_overview import print_advice

_MOST: Final = 10
_NOBODY: Final = {
    "too_few_steps": "Too few steps are common to the hosts to say who is late.",
    "one_host": "One host alone: it is late only against others.",
}
_TIMES: Final = (
    ("step", "step_time_us"),
    ("own work", "own_work_us"),
    ("waiting", "waiting_us"),
    ("compute", "compute_us"),
    ("input", "input_us"),
    ("communication", "communication_us"),
    ("host", "host_us"),
)


def print_pod(console: Console, result: ToolResult) -> None:
    """The verdict and what it rests on, then the hosts, the slowest first."""
    verdict = result.result["straggler"]
    if verdict["verdict"] in _NOBODY:
        console.print(Text(_NOBODY[verdict["verdict"]]))
    if verdict["verdict"] == "even":
        console.print(Text(_even(result)))
    waits = (verdict["waiting_ratio"] or 0.0) >= MIN_WAITING_RATIO
    said = "holds the others back" if waits else "is slower than the others"
    for late in verdict["stragglers"]:
        console.print(Text(_late(f"{late['host']} {said}", late)))
        for evidence in late["evidence"]:
            console.print(Text(f"  {evidence[:1].upper()}{evidence[1:]}."))
    for slow in verdict["slow_cores"]:
        console.print(
            Text(_late(f"Core {slow['core']} of {slow['host']} holds its host back", slow))
        )
    if verdict["waiting_ratio"] is not None:
        console.print(
            Text(f"The hosts spend {verdict['waiting_ratio']:.1%} of their steps in collectives.")
        )
    hosts = _hosts(result)
    if hosts.row_count:
        console.print()
        console.print(Text("Hosts by own work, ms of a typical step", style="bold"))
        console.print(hosts)
    if result.advice:
        console.print()
        console.print(Text("What to do", style="bold"))
        print_advice(console, result.advice)
    more = ", ".join(name for name, table in result.tables.items() if table.rows)
    if more:
        console.print(f"\n--table NAME shows one in full: {more}")


def _late(who: str, late: Mapping[str, Any]) -> str:
    cause = f"; what takes longer is {late['cause']}" if "cause" in late else ""
    return (
        f"{who}: {late['lateness_us'] / 1e3:.2f} ms late in a typical step "
        f"({late['lateness_ratio']:.1%} of it), late in {late['persistence_ratio']:.0%} of its "
        f"steps{cause}."
    )


def _even(result: ToolResult) -> str:
    """Nobody is late by more than chance; the slowest of a step still costs its lateness."""
    verdict = result.result["straggler"]
    table = result.tables["hosts"]
    ids = [column.id for column in table.columns]
    host, steps = ids.index("host"), ids.index("slowest_steps")
    counts = [(int(row[steps] or 0), str(row[host])) for row in table.rows]
    most, name = max(counts)
    late = (
        f"{verdict['slowest_lateness_us'] / 1e3:.2f} ms "
        f"({verdict['slowest_lateness_ratio'] or 0.0:.1%} of it)"
    )
    return (
        f"No host stands out. The slowest of a typical step is {late} later than the others; most "
        f"often that is {name}, in {most} of {sum(count for count, _ in counts)} steps."
    )


def _hosts(result: ToolResult) -> RichTable:
    table = result.tables["hosts"]
    ids = [column.id for column in table.columns]
    rows = [dict(zip(ids, row, strict=True)) for row in table.rows]
    rows.sort(key=lambda row: -float(row["own_work_us"] or 0))
    shown = RichTable(box=None, pad_edge=False)
    shown.add_column("host", no_wrap=True)
    for title, _ in _TIMES:
        shown.add_column(title, justify="right")
    for row in rows[:_MOST]:
        times = [row[name] for _, name in _TIMES]
        shown.add_row(
            Text(str(row["host"])),
            *("" if time is None else f"{float(time) / 1e3:.2f}" for time in times),
        )
    return shown
