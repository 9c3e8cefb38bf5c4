"""Whether the pages of tools name every field of their results, every table and every option."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.registry import TOOLS

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
WITH_ADVICE = (
    "overview_page",
    "input_pipeline_analyzer",
    "framework_op_stats",
    "kernel_stats",
    "pod_viewer",
    "inference_profile",
)
UNITS = {
    "bytes/s": "bytes_per_second",
    "flops/s": "flops_per_second",
    "flops/byte": "flops_per_byte",
    "1/s": "per_second",
    "J": "j",
}
# Two tables side by side have the same columns; the page of one says what they are.
LEAST_NAMES = 6
# The nine categories of a step are named on the pod viewer's page, where the others lead.
CATEGORIES = frozenset(
    f"{name}_us"
    for name in (
        "device_compute",
        "device_to_device",
        "collectives",
        "host_compute",
        "kernel_launch",
        "input",
        "output",
        "compilation",
        "other",
    )
)


def _names(properties: dict[str, Any]) -> Iterator[str]:
    """Fields of a result, and columns of its tables, by their last name."""
    for name, schema in properties.items():
        inner = schema.get("properties", {})
        if "rows" in inner:
            for column in inner["columns"].get("prefixItems", []):
                yield column["properties"]["id"]["const"]
        elif inner:
            yield from _names(inner)
        else:
            yield name


def _schema(tool: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((REFERENCE / "schema" / f"{tool}.json").read_text())
    return found


@pytest.mark.parametrize("tool", TOOLS)
def test_a_page_names_every_field_of_its_tools_result(tool: str) -> None:
    schema = _schema(tool)
    page = (REFERENCE / "tools" / f"{tool}.md").read_text(encoding="utf-8")
    told = CATEGORIES if tool == "overview_page" else frozenset()
    names = set(_names(schema["properties"]["result"]["properties"])) - told
    assert len(names) > LEAST_NAMES
    # Whole words: "total" is not named by "total_bytes".
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", page)) == []


@pytest.mark.parametrize("tool", TOOLS)
def test_a_page_names_every_table_and_every_option(tool: str) -> None:
    page = (REFERENCE / "tools" / f"{tool}.md").read_text(encoding="utf-8")
    properties = _schema(tool)["properties"]["result"]["properties"]
    tables = {name for name, one in properties.items() if "rows" in one.get("properties", {})}
    assert tables
    named = tables | set(TOOLS[tool].parameters)
    assert sorted(name for name in named if f"`{name}" not in page) == []


@pytest.mark.parametrize("tool", TOOLS)
def test_a_schema_is_of_the_version_that_the_tool_has(tool: str) -> None:
    assert _schema(tool)["properties"]["version"]["const"] == TOOLS[tool].version


@pytest.mark.parametrize("tool", TOOLS)
def test_a_columns_unit_is_the_end_of_its_name(tool: str) -> None:
    columns = list(_columns(_schema(tool)["properties"]["result"]["properties"]))
    assert columns
    # Places in a drawing are of nothing but the drawing.
    assert [one for one in columns if not _has_unit(*one) and one[1] != "px"] == []


def _columns(properties: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for schema in properties.values():
        inner = schema.get("properties", {})
        if "rows" in inner:
            for column in inner["columns"].get("prefixItems", []):
                about = column["properties"]
                yield about["id"]["const"], about["unit"]["const"]


def _has_unit(name: str, unit: str) -> bool:
    if unit == "":
        return not re.search(r"_(us|ms|ps|bytes|ratio|per_second|per_byte|j|px)$", name)
    return f"_{name}".endswith(f"_{UNITS.get(unit, unit)}")


@pytest.mark.parametrize("tool", WITH_ADVICE)
def test_a_page_says_what_a_tool_shows_and_how_to_act(tool: str) -> None:
    page = (REFERENCE / "tools" / f"{tool}.md").read_text(encoding="utf-8")
    assert "**What it shows.**" in page
    assert "## How to act" in page
