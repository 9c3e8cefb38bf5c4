"""The rule itself: a comparison that lets everything through would prove nothing."""

from collections.abc import Callable
from typing import Any

import pytest

Compare = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1.0, 1.0 + 1e-10),
        ({"a": [1, "x"]}, {"a": [1.0, "x"]}),
        ("13.4%", "13.4%"),
        ("-nan", "0.0"),
        ("Your program is bound by 70.2% of it.", "70.2% of the step waits for its input."),
        (2.2250738585072014e-308, 0.0),
    ],
)
def test_equal_results_have_no_differences(compare: Compare, expected: Any, got: Any) -> None:
    assert compare(expected, got) == []


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1.0, 1.0 + 1e-8),
        (1.0, True),
        (1.0, "1.0"),
        ("fusion.12", "fusion.13"),
        ("13.4%", "13.5%"),
        ("HIGHLY", "highly"),
        ("Your program is bound by 70.2% of it.", "70.3% of the step waits for its input."),
        ("Your program is bound by its input.", ""),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ([1, 2], [2, 1]),
        ([1, 2], [1]),
        (
            "Step 1, duration: 2.00 ms\n-Input: 1.00 ms",
            "Step 1, duration: 2.00 ms\n-Input: 1.10 ms",
        ),
    ],
)
def test_different_results_are_told_apart(compare: Compare, expected: Any, got: Any) -> None:
    assert len(compare(expected, got)) >= 1


def test_an_ignored_path_is_left_out(compare: Compare) -> None:
    assert compare({"a": {"b": 1}}, {"a": {"b": 2}}, ignore=lambda path: path == ".a.b") == []
