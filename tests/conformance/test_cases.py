"""Every conformance case has a test."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def _marked(tree: ast.AST) -> Iterator[str]:
    """The cases that ``pytest.mark.case`` names in a file."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func) == "pytest.mark.case"
        ):
            for argument in node.args:
                assert isinstance(argument, ast.Constant), "cases are named by their letters"
                yield str(argument.value)


def test_every_case_has_a_test_or_says_why_not() -> None:
    sections = tomllib.loads((TESTS / "conformance/cases.toml").read_text())
    left_out = set(sections.pop("left_out"))
    listed = [case for cases in sections.values() for case in cases]
    assert len(listed) == len(set(listed))
    tested = {
        case
        for path in sorted(TESTS.rglob("test_*.py"))
        for case in _marked(ast.parse(path.read_text()))
    }
    assert sorted(set(listed) - tested) == []
    assert sorted(tested - set(listed)) == []
    assert not left_out & set(listed)
