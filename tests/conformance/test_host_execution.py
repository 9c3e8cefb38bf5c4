"""Operations that host threads ran, in real captures without devices."""

from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers import open_xspace
from podscope_analyzers.hlo import read_programs
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.prepare import prepare
from podscope_analyzers.result import Scope, ToolResult

CPU_CAPTURES = ("jax_2mb", "tf_jit")


def _files(reference_dir: Path, capture: str) -> list[Path]:
    return sorted((reference_dir / "profiles" / capture).rglob("*.xplane.pb"))


def _partials(reference_dir: Path, capture: str) -> list[HostPartial]:
    files = _files(reference_dir, capture)
    return [analyze_host(file.read_bytes(), file.name) for file in files]


def _rows(result: ToolResult, table: str) -> list[dict[str, Any]]:
    names = [column.id for column in result.tables[table].columns]
    return [dict(zip(names, row, strict=True)) for row in result.tables[table].rows]


@pytest.mark.parametrize("capture", CPU_CAPTURES)
def test_every_row_of_host_execution_is_an_instruction_of_its_program(
    reference_dir: Path, capture: str
) -> None:
    result = run_tool("framework_op_stats", _partials(reference_dir, capture), Scope(["vm"]))
    rows = [
        row for row in _rows(result, "without_idle") if row["host_or_device"] == "host_execution"
    ]
    (file,) = _files(reference_dir, capture)
    programs = read_programs(prepare(open_xspace(file.read_bytes())))
    assert len(rows) > 50
    for row in rows:
        instruction = programs.instruction(int(row["program_id"]), row["operation"])
        assert instruction is not None, row["operation"]
        assert row["type"] == instruction.category
        assert not row["operation"].startswith("end: ")
        assert 0 <= row["total_self_time_us"] <= row["total_time_us"] + 1e-9
    shares = [row["host_execution_total_self_time_ratio"] for row in rows]
    assert sum(shares) == pytest.approx(1)
    assert rows[-1]["host_execution_cumulative_total_self_time_ratio"] == pytest.approx(1)
    # What a share is of: the operations of the host, of which these captures have none.
    assert {row["host_total_self_time_ratio"] for row in rows} == {None}


def test_the_top_operations_of_a_cpu_capture_are_those_of_its_programs(
    reference_dir: Path,
) -> None:
    partials = _partials(reference_dir, "jax_mh4")
    scope = Scope([partial.host for partial in partials])
    top = _rows(run_tool("overview_page", partials, scope), "top_ops")
    ops = _rows(run_tool("framework_op_stats", partials, scope), "without_idle")
    by_name: dict[str, float] = {}
    for row in ops:
        name = row["framework_name"] or row["operation"]
        by_name[name] = by_name.get(name, 0) + row["total_self_time_us"]
    longest = sorted(by_name, key=lambda name: -by_name[name])[:10]
    assert [row["operation"] for row in top] == longest
    assert [row["self_time_us"] for row in top] == pytest.approx([by_name[n] for n in longest])
    # The weights' update, and the product, each once a step on each of four hosts.
    counts = {row["operation"]: row["occurrences"] for row in ops}
    assert counts["dot_general.9"] == counts["multiply_subtract_fusion"] > 4 * 100


@pytest.mark.parametrize("capture", CPU_CAPTURES)
def test_what_the_reference_answers_stays_without_them(reference_dir: Path, capture: str) -> None:
    partials = _partials(reference_dir, capture)
    tables: Any = run_tool_xprof("framework_op_stats", partials)
    for table in tables:
        assert {row["c"][1]["v"] for row in table["rows"]} <= {"Host", "Device"}
    overview: Any = run_tool_xprof("overview_page", partials)
    assert overview[0]["rows"] == []


@pytest.mark.parametrize("capture", CPU_CAPTURES)
def test_host_execution_is_kept_in_a_partial(reference_dir: Path, capture: str) -> None:
    partials = _partials(reference_dir, capture)
    stored = [HostPartial.from_bytes(partial.to_bytes()) for partial in partials]
    before = run_tool("framework_op_stats", partials, Scope(["vm"]))
    assert run_tool("framework_op_stats", stored, Scope(["vm"])).to_json() == before.to_json()
