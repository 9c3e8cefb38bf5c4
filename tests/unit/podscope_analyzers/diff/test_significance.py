import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.diff.significance import (
    difference,
    holm,
    incomplete_beta,
    t_quantile,
    two_sided_p_value,
)
from podscope_analyzers.spread import independent_count


@pytest.mark.parametrize(
    ("statistic", "freedom", "p_value"),
    # Critical values of printed tables of Student's t, to the digits that they have.
    [
        (12.706, 1, 0.05),
        (2.228, 10, 0.05),
        (3.169, 10, 0.01),
        (2.042, 30, 0.05),
        (1.9600, 1_000_000, 0.05),
    ],
)
def test_p_values_are_those_of_the_printed_tables(
    statistic: float, freedom: float, p_value: float
) -> None:
    assert two_sided_p_value(statistic, freedom) == pytest.approx(p_value, rel=2e-3)
    assert t_quantile(freedom, p_value) == pytest.approx(statistic, rel=5e-4)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 99))
def test_the_incomplete_beta_function_of_whole_arguments_is_a_binomial_tail(
    a: int, b: int, percent: int
) -> None:
    n, x = a + b - 1, percent / 100
    tail = sum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))
    assert incomplete_beta(a, b, x) == pytest.approx(tail, rel=1e-9, abs=1e-12)


def test_a_worked_example_of_welchs_test() -> None:
    # Means 3 and 7, variances 2.5 and 10, five values each: t = 4 / sqrt(2.5), 5.88 degrees.
    found = difference(np.array([1.0, 2, 3, 4, 5]), np.array([3.0, 5, 7, 9, 11]))
    assert (found.base_mean, found.other_mean) == (3, 7)
    assert found.other_deviation == pytest.approx(math.sqrt(10))
    error, freedom = math.sqrt(2.5 / 5 + 10 / 5), 2.5**2 / (0.5**2 / 4 + 2**2 / 4)
    assert found.p_value == pytest.approx(two_sided_p_value(4 / error, freedom))
    assert found.p_value == pytest.approx(0.0461, abs=2e-3)
    assert found.low == pytest.approx(4 - t_quantile(freedom) * error)


def test_too_few_steps_are_unknown() -> None:
    found = difference(np.array([1.0, 2.0]), np.array([5.0, 6, 7]))
    assert (found.p_value, found.low, found.high) == (None, None, None)
    assert holm([None, 0.5]) == [None, False]


def test_steps_without_any_spread_differ_or_do_not() -> None:
    same, more = np.full(5, 3.0), np.full(5, 3.1)
    assert difference(same, same).p_value == 1
    assert difference(same, more).p_value == 0


def test_neighbouring_steps_that_resemble_each_other_count_as_fewer() -> None:
    alike = np.repeat([1.0, 2, 1, 2, 1], 8)
    assert independent_count(alike) < 10
    assert independent_count(np.tile([1.0, 2.0], 20)) == 40


def test_many_judged_together_need_smaller_p_values() -> None:
    assert holm([0.004, 0.0049, 0.5], alpha=0.01) == [False, False, False]
    assert holm([0.003, 0.0049, 0.009], alpha=0.01) == [True, True, True]
    assert holm([]) == []
