"""Comparisons of simulated pods whose difference is known."""

import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.diff import Comparison, Side, compare, parameters_for
from podscope_analyzers.diff.keys import COMPARED
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Cell, Scope, Table, ToolResult

SCRIPT = Path(__file__).resolve().parents[4] / "benchmarks" / "verdicts.py"
STEPS = 10
OP_TABLES = {
    "op_profile": ("ops", "name"),
    "hlo_stats": ("instructions", "hlo_op_name"),
    "roofline_model": ("records", "operation"),
}


def _records(table: Table) -> list[dict[str, Cell]]:
    ids = [column.id for column in table.columns]
    return [dict(zip(ids, row, strict=True)) for row in table.rows]


def _analyzed(pod: Pod) -> tuple[HostPartial, ...]:
    return tuple(
        analyze_host(build_xspace(pod, host, pod.steps_window()), pod.hostname(host))
        for host in range(pod.hosts)
    )


def _side(partials: Sequence[HostPartial], tool: str, steps: tuple[int, int] | None = None) -> Side:
    scope = Scope([partial.host for partial in partials])
    found = run_tool(tool, partials, scope, parameters_for(tool, steps))
    return Side(found, run_tool("overview_page", partials, scope), steps)


def _compared(base: Sequence[HostPartial], other: Sequence[HostPartial], tool: str) -> Comparison:
    return compare(_side(base, tool), _side(other, tool))


def _changed(pod: Pod, *, without: str, slower: str = "", added_ps: int = 0) -> Pod:
    """The pod without one of its optimizer's operations, and with another that takes longer."""
    pod.program.epilogue[:] = [
        replace(op, weight_ps=op.weight_ps + added_ps) if op.name == slower else op
        for op in pod.program.epilogue
        if op.name != without
    ]
    return pod


@cache
def _planted() -> tuple[tuple[HostPartial, ...], tuple[HostPartial, ...]]:
    """One operation takes 200 us longer, one is gone, one is new; twice as many steps."""
    base = _changed(Pod("tpu-v5e", 2, STEPS, 3), without="adam_fusion.7")
    other = _changed(
        Pod("tpu-v5e", 2, 2 * STEPS, 3),
        without="adam_fusion.1",
        slower="adam_fusion.4",
        added_ps=200_000_000,
    )
    return _analyzed(base), _analyzed(other)


@pytest.mark.parametrize("tool", OP_TABLES)
def test_a_slower_a_removed_and_an_added_operation_come_out_to_the_picosecond(tool: str) -> None:
    found = _compared(*_planted(), tool)
    assert (found.status, found.basis) == ("ok", "step")
    table, name = OP_TABLES[tool]
    rows = {row[name]: row for row in _records(found.tables[table])}
    assert rows["adam_fusion.4"]["change_us"] == pytest.approx(200, abs=1e-6)
    assert rows["adam_fusion.4"]["match"] == "both"
    weight_us = {op.name: op.weight_ps / 1e6 for op in Pod("tpu-v5e", 2).program.epilogue}
    gone, new = rows["adam_fusion.1"], rows["adam_fusion.7"]
    assert (gone["match"], gone["other_rows"]) == ("vanished", 0)
    assert gone["change_us"] == pytest.approx(-weight_us["adam_fusion.1"], abs=1e-6)
    assert (new["match"], new["base_rows"], new["change_ratio"]) == ("appeared", 0, None)
    assert new["change_us"] == pytest.approx(weight_us["adam_fusion.7"], abs=1e-6)
    counts = found.summary["tables"][table]
    assert (counts["appeared"], counts["vanished"]) == (1, 1)
    unchanged = rows["adam_fusion.2"]
    assert unchanged["change_us"] == pytest.approx(0, abs=1e-6)
    assert unchanged["other_occurrences"] == 2 * int(str(unchanged["base_occurrences"]))
    # An operation that is on one side alone has nothing to be judged against.
    assert {gone["significance"], new["significance"]} == {"unknown"}
    assert rows["adam_fusion.4"]["significance"] == "significant"
    significant = [row[name] for row in rows.values() if row["significance"] == "significant"]
    assert significant == ["adam_fusion.4"]
    assert unchanged["significance"] == "within_noise"


def test_rows_are_sorted_by_their_absolute_change_and_noise_comes_last() -> None:
    rows = _records(_compared(*_planted(), "hlo_stats").tables["instructions"])
    places = [
        (row["significance"] == "within_noise", -abs(float(str(row["change_us"])))) for row in rows
    ]
    assert places == sorted(places)
    assert {is_noise for is_noise, _ in places} == {True, False}


def test_totals_of_operations_are_those_of_a_step_of_a_core() -> None:
    found = _compared(*_planted(), "hlo_stats")
    total = found.summary["tables"]["instructions"]
    rows = _records(found.tables["instructions"])
    for side in ("base", "other"):
        times = [float(str(row[f"{side}_total_self_time_us"] or 0)) for row in rows]
        assert total[f"{side}_total"] == pytest.approx(sum(times))
        step_us = found.summary["step_time"][f"{side}_mean"]
        assert total[f"{side}_total"] == pytest.approx(step_us, rel=0.02)


@pytest.mark.parametrize("tool", ["overview_page", "pod_viewer", "input_pipeline_analyzer"])
def test_a_slower_step_is_significant(tool: str) -> None:
    slow = Pod("tpu-v5e", 2, STEPS, 5, slow_host=1, slow_factor=1.1)
    found = _compared(_analyzed(Pod("tpu-v5e", 2, STEPS, 4)), _analyzed(slow), tool)
    step = found.summary["step_time"]
    assert (step["is_significant"], step["base_steps"], step["other_steps"]) == (True, 10, 10)
    added_us = 0.1 * slow.program.compute_ps / 1e6
    assert step["change_low"] < added_us < step["change_high"]
    rows = _records(found.tables["steps"])
    assert any(row["significance"] == "significant" for row in rows)
    if tool == "pod_viewer":
        own = {row["host"]: row for row in rows if row["measure"] == "own_work_us"}
        assert own[slow.hostname(1)]["significance"] == "significant"
        assert own[slow.hostname(0)]["significance"] == "within_noise"


@cache
def _renumbered(device: str) -> tuple[tuple[HostPartial, ...], tuple[HostPartial, ...]]:
    """One operation takes longer, and all of the optimizer's have new numbers."""
    base, other = (Pod(device, 1, STEPS, 3) for _ in range(2))
    other.program.epilogue[:] = [
        replace(
            op,
            # Each has the number that another one had.
            name=f"adam_fusion.{(at + 3) % len(other.program.epilogue) + 1}",
            weight_ps=op.weight_ps + (50_000_000 if at == 4 else 0),
        )
        for at, op in enumerate(other.program.epilogue)
    ]
    return _analyzed(base), _analyzed(other)


RENUMBERED = {
    **OP_TABLES,
    "framework_op_stats": ("without_idle", "operation"),
    "kernel_stats": ("kernels", "kernel_name"),
}


# Kernels are of GPUs, rooflines of devices; a CPU's programs have operations alone.
DEVICES_OF = {"kernel_stats": ["gpu-h100"], "roofline_model": ["tpu-v5e", "gpu-h100"]}


@pytest.mark.parametrize("steps", [None, (1, STEPS - 2)])
@pytest.mark.parametrize(
    ("tool", "device"),
    [
        (tool, device)
        for tool in RENUMBERED
        for device in DEVICES_OF.get(tool, ["tpu-v5e", "gpu-h100", "cpu"])
    ],
)
def test_operations_that_were_renumbered_are_matched_by_where_they_are_from(
    tool: str, device: str, steps: tuple[int, int] | None
) -> None:
    sides = [_side(partials, tool, steps) for partials in _renumbered(device)]
    table, name = RENUMBERED[tool]
    found = compare(*sides)
    rows = _records(found.tables["steps" if steps else table])
    assert {row["match"] for row in rows} == {"both"}
    updates = [row for row in rows if re.search("adam_fusion|update", str(row[name]))]
    (slower,) = [row for row in updates if row["significance"] == "significant"]
    change = "change" if steps else "change_us"
    cores = 1 if device != "cpu" else sides[0].environment["device_core_count"] or 1
    assert float(str(slower[change])) == pytest.approx(50 * cores, rel=0.02)
    others = [abs(float(str(row[change]))) for row in updates if row is not slower]
    assert len(others) >= 7
    assert max(others) < 1


def test_two_hosts_of_one_capture_are_compared_row_by_row() -> None:
    hosts = _analyzed(Pod("tpu-v5e", 2, STEPS, 5, slow_host=1, slow_factor=1.2))
    found = compare(_side(hosts[:1], "pod_viewer"), _side(hosts[1:], "pod_viewer"))
    rows = _records(found.tables["steps"])
    assert {row["match"] for row in rows} == {"both"}
    own = next(row for row in rows if row["measure"] == "own_work_us")
    assert own["significance"] == "significant"
    assert float(str(own["change_ratio"])) == pytest.approx(0.2, abs=0.03)


def test_ranges_of_steps_are_compared_where_the_tool_lists_steps() -> None:
    hosts = _analyzed(Pod("tpu-v5e", 1, STEPS, 5))
    listed = run_tool("pod_viewer", hosts, Scope(["h"])).tables["steps"]
    every = sorted({int(str(row["step"])) for row in _records(listed)})
    first, last = (every[0], every[3]), (every[4], every[9])
    found = compare(_side(hosts, "pod_viewer", first), _side(hosts, "pod_viewer", last))
    (whole,) = [row for row in _records(found.tables["steps"]) if row["measure"] == "duration_us"]
    assert (whole["base_steps"], whole["other_steps"]) == (4, 6)
    assert set(found.tables) == {"steps", "totals"}
    refused = compare(_side(hosts, "memory_viewer", first), _side(hosts, "memory_viewer", last))
    assert [one.code for one in refused.reasons] == ["tool_without_steps"]
    nothing = compare(_side(hosts, "pod_viewer", (900, 901)), _side(hosts, "pod_viewer"))
    assert [one.code for one in nothing.reasons] == ["no_steps_in_base"]
    assert nothing.reasons[0].advice == (
        f"It lists steps {every[0]} to {every[-1]}: ask for some of these"
    )


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100"])
def test_two_ranges_of_steps_are_compared_by_every_instruction(device: str) -> None:
    pod = Pod(device, 2, STEPS, 5, slow_host=1, slow_factor=1.2)
    hosts = _analyzed(pod)
    listed = run_tool("hlo_stats", hosts, Scope(["h"]), {"step_times": "1"})
    rows = _records(listed.tables["step_times"])
    ranges = (2, 4), (5, 8)
    found = compare(*(_side(hosts, "hlo_stats", steps) for steps in ranges))
    assert (found.status, set(found.tables)) == ("ok", {"steps", "totals"})
    compared = {row["hlo_op_name"]: row for row in _records(found.tables["steps"])}
    every = _records(listed.tables["instructions"])
    assert len(compared) == len(every)
    for name, row in compared.items():
        for side, (first, last) in zip(("base", "other"), ranges, strict=True):
            times = [
                float(str(one["self_time_us"]))
                for one in rows
                if one["hlo_op_name"] == name and first <= int(str(one["step"])) <= last
            ]
            assert row[f"{side}_steps"] == len(times) == last - first + 1
            assert row[f"{side}_mean"] == pytest.approx(sum(times) / len(times))
    if device.startswith("tpu"):
        # A core's step is the sum of its instructions, and of idle time that never changes.
        change = sum(float(str(row["change"])) for row in compared.values())
        assert change == pytest.approx(found.summary["step_time"]["change"], rel=0.02)


def test_what_cannot_be_compared_says_why() -> None:
    tpu, gpu = (_analyzed(Pod(device, 1, 3)) for device in ("tpu-v5e", "gpu-h100"))
    devices = _compared(tpu, gpu, "overview_page")
    assert (devices.status, [one.code for one in devices.reasons]) == (
        "not_comparable",
        ["different_device"],
    )
    assert "TPU v5" in devices.reasons[0].message
    tools = compare(_side(tpu, "op_profile"), _side(tpu, "hlo_stats"))
    assert [one.code for one in tools.reasons] == ["different_tool"]
    side = _side(tpu, "hlo_stats")
    older = replace(side, result=replace(side.result, version=side.result.version - 1))
    assert [one.code for one in compare(older, side).reasons] == ["different_version"]
    drawing = compare(_side(tpu, "graph_viewer"), _side(tpu, "graph_viewer"))
    assert [one.code for one in drawing.reasons] == ["tool_without_rows"]
    kernels = compare(_side(tpu, "kernel_stats"), _side(tpu, "kernel_stats"))
    assert [one.code for one in kernels.reasons] == ["no_data_in_base", "no_data_in_other"]
    assert kernels.tables == {}


def test_captures_of_fewer_hosts_compare_with_a_note() -> None:
    hosts = _analyzed(Pod("tpu-v5e", 2, 5, 3))
    found = _compared(hosts, hosts[:1], "hlo_stats")
    assert [note.code for note in found.notes] == ["different_host_count"]
    total = found.summary["tables"]["instructions"]
    assert total["other_total"] == pytest.approx(total["base_total"], rel=0.05)


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100", "cpu"])
def test_every_declared_table_and_column_exists_and_a_capture_equals_itself(device: str) -> None:
    hosts = _analyzed(Pod(device, 1, 4))
    assert set(TOOLS) - set(COMPARED) == {"graph_viewer", "smart_suggestion"}
    for tool, compared in COMPARED.items():
        result = run_tool(tool, hosts, Scope([hosts[0].host]))
        for one in compared.tables:
            ids = {column.id for column in result.tables[one.source].columns}
            named = {name.partition(":")[0] for key in one.keys for name in key}
            named |= {one.measure, *one.shown, *one.sums, *one.where, *one.without}
            assert named <= ids, (tool, one.name)
        found = _compared(hosts, hosts, tool)
        if found.status == "not_comparable":
            continue
        for name, table in found.tables.items():
            rows = _records(table)
            change = next((c.id for c in table.columns if c.id.startswith("change")), "")
            assert {row[change] for row in rows} <= {0.0, None}, (tool, name)
            assert {row.get("match", "both") for row in rows} <= {"both"}
            assert "significant" not in {row.get("significance") for row in rows}


def test_a_stored_result_compares_as_the_one_in_memory() -> None:
    def stored(result: ToolResult) -> ToolResult:
        tables = {name: table.to_json() for name, table in result.tables.items()}
        return ToolResult.from_json(result.to_json(), tables)

    base, other = (_side(partials, "op_profile") for partials in _planted())
    again = [Side(stored(one.result), stored(one.overview)) for one in (base, other)]
    assert compare(*again).to_json() == compare(base, other).to_json()


def _made_pods() -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("verdicts_of_pods", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    (nothing, *_) = module.plants(1.5)
    return lambda hosts, seed: module.made_pod(nothing, hosts, STEPS, seed, 0.1)[0]


def test_noise_alone_is_not_significant_in_97_of_100_seeds() -> None:
    made = _made_pods()
    sides = []
    for seed in range(101):
        stats = made(2, seed)
        scope = Scope([host.host for host in stats.hosts])
        shown, overview = (
            TOOLS[name].analyze(stats, scope, {}) for name in ("pod_viewer", "overview_page")
        )
        sides.append(Side(shown, overview))
    quiet = 0
    for base, other in pairwise(sides):
        found = compare(base, other)
        words = {row["significance"] for row in _records(found.tables["steps"])}
        quiet += "significant" not in words and not found.summary["step_time"]["is_significant"]
    assert quiet >= 97


def test_the_page_on_comparisons_names_every_compared_table() -> None:
    page = (SCRIPT.parents[1] / "docs" / "reference" / "comparisons.md").read_text("utf-8")
    for tool, compared in COMPARED.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| `{tool}` |"))
        for name in (*(one.name for one in compared.tables), *(["steps"] * bool(compared.steps))):
            assert f"`{name}`" in line, tool
