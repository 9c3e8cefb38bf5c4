"""How often a comparison calls significant what nobody changed, and finds what somebody did.

    python benchmarks/comparisons.py                                200 seeds, all devices
    python benchmarks/comparisons.py --seeds 20 --devices cpu --processes 2

A simulated pod is captured twice: the second capture begins where the first ended, so that every
host's and core's time varies from step to step and nothing else does. Also compared are two hosts
of one capture, and the two halves of its steps. Then, in a second capture of a single host, one
operation of the loop takes longer by some share of its time. Exit code 1 when in more than 3 of
100 comparisons by a tool anything is called significant while nothing has changed.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
for part in ("agent", "analyzers", "collector", "protos"):
    sys.path.insert(0, str(ROOT / part))

from podscope_agent.simulator import Pod, build_xspace  # noqa: E402
from podscope_analyzers.diff import Comparison, Side, compare, parameters_for  # noqa: E402
from podscope_analyzers.partials import HostPartial  # noqa: E402
from podscope_analyzers.pipeline import analyze_host, run_tool  # noqa: E402
from podscope_analyzers.result import Cell, Scope, ToolResult  # noqa: E402

MOST_ALARMS = 0.03
DEVICES = ("tpu-v5e", "gpu-h100", "cpu")
TOOLS = (
    "overview_page",
    "pod_viewer",
    "input_pipeline_analyzer",
    "op_profile",
    "hlo_stats",
    "framework_op_stats",
    "roofline_model",
    "kernel_stats",
)
FACTORS = (1.05, 1.1, 1.2)
KINDS = ("captures", "hosts", "steps")
HOSTS = 2


@dataclass
class Tally:
    """What the comparisons of one seed said.

    Attributes:
        compared: By kind and tool, how many comparisons there were.
        alarms: Those in which anything was significant though nothing had changed.
        found: By factor, whether the slower operation was significant.
        first: By factor, whether it was the first row too.
        others: By factor, how many other operations were significant.
        rows: Operations that were judged while nothing had changed.
        row_alarms: Those of them that were significant.
    """

    compared: Counter[tuple[str, str]] = field(default_factory=Counter)
    alarms: Counter[tuple[str, str]] = field(default_factory=Counter)
    found: Counter[float] = field(default_factory=Counter)
    first: Counter[float] = field(default_factory=Counter)
    others: Counter[float] = field(default_factory=Counter)
    rows: int = 0
    row_alarms: int = 0

    def add(self, other: "Tally") -> None:
        """Count another seed's too."""
        for name in ("compared", "alarms", "found", "first", "others"):
            getattr(self, name).update(getattr(other, name))
        self.rows += other.rows
        self.row_alarms += other.row_alarms


class Capture:
    """A capture and what the tools say of it; each is asked once."""

    def __init__(self, partials: Sequence[HostPartial]) -> None:
        self._partials = partials
        self._scope = Scope([one.host for one in partials])
        self._results: dict[tuple[str, bool], ToolResult] = {}

    @classmethod
    def of(
        cls, pod: Pod, first_step: int, steps: int, hosts: Sequence[int] | None = None
    ) -> "Capture":
        """Some steps of a pod, of all hosts or some."""
        window = pod.steps_window(first_step, steps)
        chosen = range(pod.hosts) if hosts is None else hosts
        return cls(
            [analyze_host(build_xspace(pod, host, window), pod.hostname(host)) for host in chosen]
        )

    def host(self, at: int) -> "Capture":
        """One of its hosts."""
        return Capture([self._partials[at]])

    def side(self, tool: str, steps: tuple[int, int] | None = None) -> Side:
        """What the tool says of it, for a comparison."""
        return Side(self._result(tool, steps), self._result("overview_page", None), steps)

    def _result(self, tool: str, steps: tuple[int, int] | None) -> ToolResult:
        key = tool, steps is not None
        if key not in self._results:
            parameters = parameters_for(tool, steps)
            self._results[key] = run_tool(tool, self._partials, self._scope, parameters)
        return self._results[key]


def verdicts(found: Comparison) -> Iterator[tuple[str, Sequence[Cell], str]]:
    """Table, row and verdict of everything that was judged."""
    for name, table in found.tables.items():
        ids = [column.id for column in table.columns]
        if "significance" in ids:
            at = ids.index("significance")
            yield from ((name, row, str(row[at])) for row in table.rows)


def seed_tally(device: str, steps: int, noise: float, seed: int) -> Tally:
    """Everything of one seed."""
    tally = Tally()
    pod = Pod(device, HOSTS, 2 * steps, seed, noise=noise)
    base, again = Capture.of(pod, 0, steps), Capture.of(pod, steps, steps)
    hosts = base.host(0), base.host(1)
    halves = ((1, steps // 2 - 1), (steps // 2, steps - 2))
    for tool in TOOLS:
        for kind, found in (
            ("captures", compare(base.side(tool), again.side(tool))),
            ("hosts", compare(*(host.side(tool) for host in hosts))),
            ("steps", compare(*(base.side(tool, half) for half in halves))),
        ):
            if found.status != "ok":
                continue
            said = [verdict for _, _, verdict in verdicts(found) if verdict != "unknown"]
            tally.compared[kind, tool] += 1
            tally.alarms[kind, tool] += "significant" in said
            if tool == "hlo_stats":
                tally.rows += len(said)
                tally.row_alarms += said.count("significant")
    for factor in FACTORS:
        changed = Pod(device, HOSTS, 2 * steps, seed, noise=noise)
        body = changed.program.body
        at = seed % len(body)
        name = body[at].name
        body[at] = replace(body[at], weight_ps=round(body[at].weight_ps * factor))
        slower = Capture.of(changed, steps, steps, [0])
        found = compare(hosts[0].side("hlo_stats"), slower.side("hlo_stats"))
        said_of = [
            (row[0], verdict) for table, row, verdict in verdicts(found) if table == "instructions"
        ]
        significant = [called for called, verdict in said_of if verdict == "significant"]
        tally.found[factor] += name in significant
        tally.first[factor] += bool(said_of) and said_of[0] == (name, "significant")
        tally.others[factor] += len(set(significant) - {name})
    return tally


def device_table(device: str, tally: Tally, seeds: int) -> bool:
    """Print what was counted; whether false alarms are as rare as wanted."""
    is_good = True
    print(f"\n{device}, {seeds} seeds: anything significant while nothing has changed")
    print("| tool | " + " | ".join(f"two {kind}" for kind in KINDS) + " |")
    print("|---|" + "--:|" * len(KINDS))
    for tool in TOOLS:
        cells = []
        for kind in KINDS:
            count, alarms = tally.compared[kind, tool], tally.alarms[kind, tool]
            is_good &= alarms <= MOST_ALARMS * count
            cells.append(f"{alarms} of {count}" if count else "")
        if any(cells):
            print(f"| `{tool}` | " + " | ".join(cells) + " |")
    print(f"rows of operations: {tally.row_alarms} of {tally.rows} significant")
    print("\n| operation slower by | found | and first | other operations significant, mean |")
    print("|--:|--:|--:|--:|")
    for factor in FACTORS:
        shares = (tally.found[factor] / seeds, tally.first[factor] / seeds)
        others = tally.others[factor] / seeds
        print(f"| {factor - 1:.0%} | {shares[0]:.0%} | {shares[1]:.0%} | {others:.2f} |")
    return is_good


def main() -> int:
    """Print the tables; 1 when false alarms are more frequent than wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--noise", type=float, default=0.02)
    parser.add_argument("--devices", nargs="+", default=list(DEVICES), choices=DEVICES)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    is_good = True
    with ProcessPoolExecutor(given.processes) as pool:
        for device in given.devices:
            began = time.perf_counter()
            tally = Tally()
            one = partial(seed_tally, device, given.steps, given.noise)
            for found in pool.map(one, seeds):
                tally.add(found)
            is_good &= device_table(device, tally, given.seeds)
            print(f"{time.perf_counter() - began:.0f} s", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
