"""The overview as an answer: the verdict, the step time, where it goes, what to do."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from podscope_analyzers.result import Advice, ToolResult


def print_overview(console: Console, result: ToolResult) -> None:
    """The figures that head a capture, in the order in which people ask for them."""
    shown = result.result
    bound, step_ms = shown["bottleneck"], shown["step_time_ms"]
    console.print(Text(bound["statement"]))
    for evidence in bound["evidence"]:
        console.print(Text(f"  {evidence}"))
    if step_ms is not None:
        console.print(
            Text(
                f"Step time {step_ms['average']:.2f} ms on average of "
                f"{shown['complete_step_count']} complete steps "
                f"({step_ms['minimum']:.2f} to {step_ms['maximum']:.2f} ms)."
            )
        )
    for title, table in (("Where it goes", _breakdown(result)), ("Top ops", _top_ops(result))):
        if table.row_count:
            console.print()
            console.print(Text(title, style="bold"))
            console.print(table)
    if result.advice:
        console.print()
        console.print(Text("What to do", style="bold"))
        print_advice(console, result.advice)
    for message in (*shown["errors"], *shown["warnings"]):
        console.print(Text(f"! {message}", style="yellow"))
    more = ", ".join(name for name, table in result.tables.items() if table.rows)
    if more:
        console.print(f"\n--table NAME shows one in full: {more}")


def print_advice(console: Console, found: Sequence[Advice]) -> None:
    """What was found, the figures that it rests on, what to do and where to read more."""
    for advice in found:
        console.print(Text(f"- {advice.title} ({advice.severity}). {advice.message}"))
        console.print(Text(f"  {advice.action} [{_figures(advice)}; {advice.link}]", style="dim"))


def _figures(advice: Advice) -> str:
    return ", ".join(
        f"{one.name} {one.value:.4g}"
        + (f" (threshold {one.threshold:.4g})" if one.threshold is not None else "")
        for one in advice.evidence
    )


def _breakdown(result: ToolResult) -> RichTable:
    table = RichTable.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    for part in sorted(result.result["breakdown"], key=lambda part: -part["ratio"]):
        if part["ratio"] > 0:
            table.add_row(part["category"].replace("_", " "), f"{part['ratio']:.1%}")
    return table


def _top_ops(result: ToolResult) -> RichTable:
    table = RichTable(box=None, pad_edge=False)
    table.add_column("operation")
    table.add_column("category")
    for name in ("count", "self ms", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    ops = result.tables["top_ops"]
    at = {column.id: index for index, column in enumerate(ops.columns)}
    for row in ops.rows:
        table.add_row(
            Text(str(row[at["operation"]])),
            Text(str(row[at["category"]])),
            f"{row[at['occurrences']]:,}",
            f"{float(row[at['self_time_us']] or 0) / 1000:,.2f}",
            f"{float(row[at['self_time_ratio']] or 0):.1%}",
        )
    return table
