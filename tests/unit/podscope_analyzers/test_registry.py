import pkgutil
from pathlib import Path

import pytest

import podscope_analyzers.tools
from podscope_analyzers.errors import UnknownToolError
from podscope_analyzers.registry import TOOLS, find_tool

PAGES = Path(__file__).resolve().parents[3] / "docs" / "reference" / "tools"


def test_the_registry_lists_exactly_the_modules_of_the_tools_folder() -> None:
    modules = {module.name for module in pkgutil.iter_modules(podscope_analyzers.tools.__path__)}
    assert set(TOOLS) == modules


def test_every_tool_has_a_page_and_every_page_a_tool() -> None:
    assert {page.stem for page in PAGES.glob("*.md") if page.stem != "README"} == set(TOOLS)


def test_every_row_is_named_after_its_tool() -> None:
    assert all(tool.name == name and tool.title for name, tool in TOOLS.items())


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(UnknownToolError, match="no tool 'nonsense'"):
        find_tool("nonsense")
