"""The pod viewer's answer as a sentence."""

import io
from dataclasses import replace
from functools import cache

from rich.console import Console

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Scope, ToolResult
from podscope_collector.cli.analyze_pod import print_pod


@cache
def _viewed(slow_host: int | None) -> ToolResult:
    pod = Pod("cpu", hosts=3, steps=6, slow_host=slow_host)
    hosts = [analyze_host(build_xspace(pod, host), f"h{host}") for host in range(3)]
    return run_tool("pod_viewer", hosts, Scope(["h0", "h1", "h2"]))


def _first_line(result: ToolResult) -> str:
    out = io.StringIO()
    print_pod(Console(file=out, width=300), result)
    return out.getvalue().splitlines()[0]


def test_where_nobody_stands_out_the_slowest_of_a_step_is_told() -> None:
    result = _viewed(None)
    table = result.tables["hosts"]
    ids = [column.id for column in table.columns]
    counts = {
        str(row[ids.index("host")]): int(row[ids.index("slowest_steps")] or 0) for row in table.rows
    }
    line = _first_line(result)
    assert line.startswith("No host stands out. The slowest of a typical step is ")
    late_ms = result.result["straggler"]["slowest_lateness_us"] / 1e3
    assert f" {late_ms:.2f} ms (" in line
    name, steps = line.rpartition("often that is ")[2].split(", in ")
    assert steps == f"{max(counts.values())} of 6 steps."
    assert counts[name] == max(counts.values())


def test_a_host_that_nobody_waits_for_is_slower_and_holds_nobody_back() -> None:
    result = _viewed(1)
    assert _first_line(result).startswith("h1 holds the others back: ")
    verdict = {**result.result["straggler"], "waiting_ratio": 0.0}
    alone = replace(result, result={**result.result, "straggler": verdict})
    assert _first_line(alone).startswith("h1 is slower than the others: ")
