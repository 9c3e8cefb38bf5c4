"""Whether the pages of tools name every field of their results."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
TOOLS_HERE = (
    "overview_page",
    "input_pipeline_analyzer",
    "framework_op_stats",
    "kernel_stats",
    "pod_viewer",
    "inference_profile",
)
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


@pytest.mark.parametrize("tool", TOOLS_HERE)
def test_a_page_names_every_field_of_its_tools_result(tool: str) -> None:
    schema = json.loads((REFERENCE / "schema" / f"{tool}.json").read_text())
    page = (REFERENCE / "tools" / f"{tool}.md").read_text(encoding="utf-8")
    told = CATEGORIES if tool == "overview_page" else frozenset()
    names = set(_names(schema["properties"]["result"]["properties"])) - told
    assert len(names) > 10
    assert sorted(name for name in names if name not in page) == []


@pytest.mark.parametrize("tool", TOOLS_HERE)
def test_a_page_says_what_a_tool_shows_and_how_to_act(tool: str) -> None:
    page = (REFERENCE / "tools" / f"{tool}.md").read_text(encoding="utf-8")
    assert "**What it shows.**" in page
    assert "## How to act" in page
