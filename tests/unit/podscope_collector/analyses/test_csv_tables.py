"""Every table of every tool as CSV, read back."""

import csv
import io
import zipfile
from functools import cache

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Cell, Scope
from podscope_collector.analyses.csv_tables import csv_answer, data_table_csv, table_csv

DEVICES = ("tpu-v5e", "gpu-h100", "cpu")


@cache
def _partials(device: str) -> tuple[HostPartial, ...]:
    pod = Pod(device, 2, 6, 1, slow_host=1, counters=device != "cpu", input_bound=0.2)
    return tuple(analyze_host(build_xspace(pod, host), f"h{host}") for host in range(2))


def _read(text: str, cell: Cell) -> Cell:
    """A cell of the CSV as what it was."""
    match cell:
        case None:
            return None if text == "" else text
        case bool():
            return {"true": True, "false": False}[text]
        case int():
            return int(text)
        case float():
            return float(text)
    return text.removeprefix("'") if text.startswith("'") and not cell.startswith("'") else text


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tool", TOOLS)
def test_every_table_comes_back_as_it_was(tool: str, device: str) -> None:
    parameters = {"step_times": "1"} if "step_times" in TOOLS[tool].parameters else {}
    result = run_tool(tool, _partials(device), Scope(["h0", "h1"]), parameters)
    assert result.tables
    for name, table in result.tables.items():
        header, *rows = csv.reader(io.StringIO(table_csv(table.to_json())))
        assert header == [column.id for column in table.columns], name
        assert len(rows) == len(table.rows), name
        for read, row in zip(rows, table.rows, strict=True):
            assert [_read(text, cell) for text, cell in zip(read, row, strict=True)] == list(row)
    tables = {name: table.to_json() for name, table in result.tables.items()}
    content_type, packed = csv_answer(tables, None)
    if len(tables) > 1:
        assert content_type == "application/zip"
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            assert archive.namelist() == [f"{name}.csv" for name in tables]


def test_what_a_spreadsheet_would_run_is_quoted_and_numbers_are_not() -> None:
    column = {"id": "name", "label": "Name", "type": "string", "unit": ""}
    rows = [["=1+1"], ["+x"], ["-x"], ["@x"], ["-1.5"], ["+2e-3"], ["a=b"], [-1.5]]
    text = table_csv({"columns": [column], "rows": rows})
    assert text.splitlines()[1:] == ["'=1+1", "'+x", "'-x", "'@x", "-1.5", "+2e-3", "a=b", "-1.5"]


def test_xprofs_table_has_its_labels_and_an_empty_cell_for_nothing() -> None:
    table = {
        "cols": [{"id": "a", "label": "A (us)"}, {"id": "b"}],
        "rows": [{"c": [{"v": 1.5}, None]}, {"c": [{"v": "=x"}, {"v": None}]}],
    }
    assert data_table_csv([table, {}]) == '"A (us)","b"\n"1.5",""\n"\'=x",""\n'
    assert data_table_csv({"byProgram": {}}) is None
    assert data_table_csv("text") is None
