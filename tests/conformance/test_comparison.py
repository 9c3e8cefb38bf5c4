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
        ("0.0", "0.00"),
        ("0.0", "-nan"),
        (0.0, 1e-13),
        ("broadcast.1.10", "broadcast.1.1"),
        ("-nan", "0.1"),
        # Many words, and yet the name of an operation, of a kernel, a place.
        (
            "%add.3 = f32[5] add(f32[5] %param_0, f32[5] %broadcast.7)",
            "%add.3 = f32[5] add(f32[5] %param_0, f32[5] %broadcast.8)",
        ),
        (
            "void f<int, 1ul, 16, half, long>(int, long)",
            "void f<int, 2ul, 16, half, long>(int, long)",
        ),
        ("Cumulative total-self time on Device (%)", "Cumulative total-self time on Host (%)"),
        (
            {"task_count": "2 (num tasks per host = 1)"},
            {"task_count": "2 (num tasks per host = 2)"},
        ),
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


def _message(text: str) -> dict[str, Any]:
    columns = [{"id": "severity"}, {"id": "message"}]
    return {"cols": columns, "rows": [{"c": [{"v": "WARNING"}, {"v": text}]}]}


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("Your program is bound by 70.2% of it.", "70.2% of the step waits for its input."),
        ("It is bound by 41.6 % of it.", "41.6% of the step waits for its input."),
        ("It takes 2.50 ms and 41.6% of it.", "Of it 41.6% are 2.50 ms on the whole."),
        ("Look at Section 3 of the page.", "The breakdown of the host says more."),
    ],
)
@pytest.mark.parametrize("wrap", [_message, lambda text: {"input_conclusion": text}])
def test_sentences_for_people_are_compared_by_their_numbers(
    compare: Compare, expected: str, got: str, wrap: Callable[[str], Any]
) -> None:
    assert compare(wrap(expected), wrap(got)) == []


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("Your program is bound by 70.2% of it.", "70.3% of the step waits for its input."),
        ("It is bound by 41.6 % of it.", "41.7 % of the step waits for its input."),
        ("It is slower than 50 us a step.", "It is slower than 60 us a step."),
        ("It is bound by 70.2% of it.", "Most of the step waits for its input."),
        ("It is bound by its input.", "It is bound by 70.2% of its input."),
        ("Your program is bound by its input.", ""),
        ("no", "high"),
    ],
)
@pytest.mark.parametrize("wrap", [_message, lambda text: {"input_conclusion": text}])
def test_sentences_with_other_numbers_are_told_apart(
    compare: Compare, expected: str, got: str, wrap: Callable[[str], Any]
) -> None:
    assert len(compare(wrap(expected), wrap(got))) == 1


def test_an_ignored_path_is_left_out(compare: Compare) -> None:
    assert compare({"a": {"b": 1}}, {"a": {"b": 2}}, ignore=lambda path: path == ".a.b") == []
