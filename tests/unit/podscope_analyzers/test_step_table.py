"""Times by step as tools list them when they are asked."""

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.diff import Side, compare, parameters_for
from podscope_analyzers.diff.keys import COMPARED
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.op_names import parse_op_name
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, combine, run_tool
from podscope_analyzers.result import Cell, Column, Scope, Table
from podscope_analyzers.step_table import PARAMETER, Series, step_table
from podscope_analyzers.step_times import StepTimes
from podscope_protos.v1 import xplane_pb2

Times = dict[tuple[int, str], float]
LISTING = [name for name, one in COMPARED.items() if one.steps and one.steps.parameters]


@cache
def _pod(device: str) -> tuple[HostPartial, ...]:
    pod = Pod(device, 2, 6, 5, slow_host=1, slow_factor=1.2)
    return tuple(
        analyze_host(build_xspace(pod, host, pod.steps_window()), pod.hostname(host))
        for host in range(pod.hosts)
    )


def _records(table: Table) -> list[dict[str, Cell]]:
    ids = [column.id for column in table.columns]
    return [dict(zip(ids, row, strict=True)) for row in table.rows]


def _listed(device: str, tool: str) -> list[dict[str, Cell]]:
    hosts = _pod(device)
    found = run_tool(tool, hosts, Scope([one.host for one in hosts]), {PARAMETER: "1"})
    return _records(found.tables[PARAMETER])


def _sums(rows: list[dict[str, Cell]], name: str) -> Times:
    found: Times = defaultdict(float)
    for row in rows:
        found[int(str(row["step"])), str(row[name])] += float(str(row["self_time_us"]))
    return found


def _set(plane: xplane_pb2.XPlane, owner: Any, name: str, value: int | str) -> None:
    keys = {entry.name: key for key, entry in plane.stat_metadata.items()}
    key = keys.get(name, len(keys) + 1)
    plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, name
    stat = owner.stats.add(metadata_id=key)
    if isinstance(value, str):
        stat.str_value = value
    else:
        stat.int64_value = value


def _two_cores() -> HostPartial:
    """Eight steps of 100 us: `a` and, in a loop of 40 us, `d` take 10 us and 1 us more each step.

    On the second core both take 1 us more yet.
    """
    space = xplane_pb2.XSpace(hostnames=["vm"])
    for core in range(2):
        plane = space.planes.add(name=f"/device:TPU:{core}", id=core)
        marks, ops = plane.lines.add(name="Steps", id=1), plane.lines.add(name="XLA Ops", id=2)
        known = {"a": "convolution fusion", "b": "loop fusion", "w": "while", "d": "copy"}
        for key, (name, category) in enumerate(known.items(), start=1):
            entry = plane.event_metadata[key]
            entry.id, entry.name, entry.display_name = key, f"%{name} = f32[8] op()", name
            _set(plane, entry, "hlo_category", category)
            _set(plane, entry, "program_id", 1)
            _set(plane, entry, "symbol_id", key)
        for step in range(8):
            key = 10 + step
            plane.event_metadata[key].id, plane.event_metadata[key].name = key, str(step)
            spans = [(marks, key, 0, 100), (ops, 1, 0, 10 + step + core), (ops, 2, 30, 20)]
            spans += [(ops, 3, 50, 40), (ops, 4, 55, 10 + step + core)]
            for line, one, begin, duration in spans:
                line.events.add(
                    metadata_id=one,
                    offset_ps=(102 * step + begin) * 10**6,
                    duration_ps=duration * 10**6,
                )
    return analyze_host(space.SerializeToString(), "h")


@pytest.mark.parametrize(
    ("tool", "name", "expected"),
    [
        # Of a core: `a` took 10 + 1.5 and 10 + 2.5 us in steps 1 and 2, 4 us more in 5 and 6.
        ("hlo_stats", "hlo_op_name", {"a": (12, 16), "b": (20, 20), "w": (28, 24), "d": (12, 16)}),
        (
            "roofline_model",
            "operation",
            {"a": (12, 16), "b": (20, 20), "w": (28, 24), "d": (12, 16)},
        ),
        (
            "op_profile",
            "node",
            {
                **{"": (44, 52), "main": (44, 52), "main/copy": (12, 16), "main/copy/d": (12, 16)},
                **{"main/loop fusion": (20, 20), "main/loop fusion/b": (20, 20)},
                **{"main/convolution fusion": (12, 16), "main/convolution fusion/a": (12, 16)},
            },
        ),
    ],
)
def test_ranges_of_steps_worked_by_hand(
    tool: str, name: str, expected: dict[str, tuple[float, float]]
) -> None:
    hosts = [_two_cores()]
    overview = run_tool("overview_page", hosts, Scope(["h"]))
    base, other = (
        Side(run_tool(tool, hosts, Scope(["h"]), parameters_for(tool, steps)), overview, steps)
        for steps in ((1, 2), (5, 6))
    )
    rows = _records(compare(base, other).tables["steps"])
    assert {row[name]: (row["base_mean"], row["other_mean"]) for row in rows} == expected


@pytest.mark.parametrize(("on_device", "cores"), [(True, 16), (False, 2)])
def test_times_told_by_the_same_cells_add_up_and_are_those_of_a_core_or_host(
    on_device: bool, cores: int
) -> None:
    # Two hosts of eight GPUs each; the capture's first and last step are cut.
    stats = combine(_pod("gpu-h100"))
    assert stats.all_steps.step_numbers[stats.is_complete].tolist() == [1, 2, 3, 4]
    # Operation 0 took 16 and 32 us in the first two, 1 took 160 in the second, 2 took 48 then.
    times = StepTimes.of(
        np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1]), np.array([16, 32, 160, 48]) * 10**6
    ).numbered(np.arange(2))
    told = {0: [("a",), ("all",)], 1: [("b",), ("all",)], 2: [("a",), ("all",)]}
    series = Series(times, on_device, told.__getitem__)
    found = step_table(stats, (Column("name", "Name", "string"),), [series])
    assert {(row[0], row[1]): float(str(row[2])) * cores for row in found.rows} == {
        (1, "a"): 16,
        (1, "b"): 0,
        (1, "all"): 16,
        (2, "a"): 80,
        (2, "b"): 160,
        (2, "all"): 240,
    }


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100"])
def test_a_framework_operation_takes_what_its_instructions_take(device: str) -> None:
    rows = _listed(device, "hlo_stats")
    for row in rows:
        row["name"] = parse_op_name(str(row["framework_name"])).name
    instructions = _sums(rows, "name")
    assert _sums(_listed(device, "framework_op_stats"), "operation") == pytest.approx(instructions)
    # Some are of several.
    assert len(instructions) < len(rows)


def test_an_operation_takes_what_its_kernels_take() -> None:
    kernels = _sums(_listed("gpu-h100", "kernel_stats"), "op_name")
    operations = _sums(_listed("gpu-h100", "framework_op_stats"), "operation")
    assert kernels == pytest.approx(operations)


@pytest.mark.parametrize("device", ["tpu-v5e", "gpu-h100", "cpu"])
def test_a_node_takes_what_the_operations_below_it_take(device: str) -> None:
    rows = _listed(device, "op_profile")
    nodes: dict[str, Times] = defaultdict(dict)
    for row in rows:
        step, time = int(str(row["step"])), float(str(row["self_time_us"]))
        nodes[str(row["kind"])][step, str(row["node"])] = time
    assert set(nodes) - {"duplicates"} == {"root", "program", "category", "op"}
    for kind in ("root", "program", "category"):
        for (step, node), time in nodes[kind].items():
            below = f"{node}/" if node else ""
            ops = [
                op_time
                for (op_step, op), op_time in nodes["op"].items()
                if op_step == step and op.startswith(below)
            ]
            assert time == pytest.approx(sum(ops)), (kind, node)


def test_operations_on_the_roofline_take_what_instructions_take() -> None:
    instructions = _sums(_listed("tpu-v5e", "hlo_stats"), "hlo_op_name")
    rows = _listed("tpu-v5e", "roofline_model")
    assert _sums(rows, "operation") == pytest.approx(instructions)
    assert _listed("cpu", "roofline_model") == []


def test_operations_of_hosts_are_listed_beside_those_of_programs_that_they_ran() -> None:
    rows = _listed("cpu", "framework_op_stats")
    assert {row["host_or_device"] for row in rows} == {"host", "host_execution"}
    assert {row["program_id"] is None for row in rows if row["host_or_device"] == "host"} == {True}
    instructions = _sums(_listed("cpu", "hlo_stats"), "hlo_op_name")
    programs = [row for row in rows if row["host_or_device"] == "host_execution"]
    assert _sums(programs, "operation") == pytest.approx(instructions)


@pytest.mark.parametrize("tool", LISTING)
def test_ranges_are_compared_by_the_mean_of_their_steps(tool: str) -> None:
    hosts, ranges = _pod("gpu-h100"), ((1, 2), (3, 4))
    scope = Scope([one.host for one in hosts])
    overview = run_tool("overview_page", hosts, scope)
    base, other = (
        Side(run_tool(tool, hosts, scope, parameters_for(tool, steps)), overview, steps)
        for steps in ranges
    )
    found = compare(base, other)
    steps = COMPARED[tool].steps
    assert steps is not None
    assert (found.status, set(found.tables)) == ("ok", {"steps", "totals"})
    assert "times_alone" in [note.code for note in found.notes]
    listed = {
        (row["step"], *(row[name] for name in steps.by)): float(str(row["self_time_us"]))
        for row in _listed("gpu-h100", tool)
    }
    compared = {
        tuple(row[name] for name in steps.by): row for row in _records(found.tables["steps"])
    }
    assert {key[1:] for key in listed} == set(compared)
    for key, row in compared.items():
        for side, (first, last) in zip(("base", "other"), ranges, strict=True):
            mean = (listed[first, *key] + listed[last, *key]) / 2
            assert row[f"{side}_mean"] == pytest.approx(mean)


@pytest.mark.parametrize("tool", LISTING)
def test_steps_are_listed_only_when_they_are_asked_for(tool: str) -> None:
    hosts = _pod("gpu-h100")
    assert PARAMETER not in run_tool(tool, hosts, Scope(["h"])).tables
    with pytest.raises(ParameterError, match="step_times is 0 or 1, not 'yes'"):
        run_tool(tool, hosts, Scope(["h"]), {PARAMETER: "yes"})
