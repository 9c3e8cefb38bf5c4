"""Sums of floats are exact, whatever the order and the grouping."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.op_metrics.exact_sums import ExactSums
from podscope_analyzers.states import pack_state, unpack_state

finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e290, max_value=1e290)


def total(parts: list[ExactSums]) -> float:
    joined = ExactSums.concatenate(parts)
    return float(joined.grouped(np.zeros(len(joined.special), np.intp), 1).rounded()[0])


@given(st.lists(finite, min_size=1, max_size=30))
def test_a_sum_is_the_float_nearest_to_the_true_one(values: list[float]) -> None:
    found = total([ExactSums.of(np.array(values))])

    assert found == float(sum(map(Fraction, values)))
    assert found == math.fsum(values)


@given(st.lists(finite, min_size=1, max_size=20), st.data())
def test_order_and_grouping_do_not_matter(values: list[float], data: st.DataObject) -> None:
    order = data.draw(st.permutations(values))
    cut = data.draw(st.integers(0, len(values)))
    zero = np.zeros(1, np.intp)
    parts = [
        ExactSums.of(np.array(part)).grouped(np.zeros(len(part), np.intp), 1)
        for part in (order[:cut], order[cut:])
        if part
    ]
    stored = [ExactSums.from_state(unpack_state(pack_state(part.to_state()))) for part in parts]

    assert total(stored) == total([ExactSums.of(np.array(values))])
    assert total([part.take(zero) for part in parts]) == total(parts)


def test_rows_of_a_group_add_up_and_others_stay_apart() -> None:
    sums = ExactSums.of(np.array([1e16, 1.0, -1e16, 2.5]))

    assert sums.grouped(np.array([0, 0, 0, 1]), 3).rounded().tolist() == [1.0, 2.5, 0.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1e300], -math.inf),
        ([1.7e308, 1.7e308], math.inf),
        ([-1.7e308, -1.7e308], -math.inf),
        ([1.7e308, 1.7e308, -1.7e308], 1.7e308),
        ([5e-324, 5e-324], 1e-323),
        ([0.0, -0.0], 0.0),
    ],
)
def test_the_ends_of_the_range(values: list[float], expected: float) -> None:
    assert total([ExactSums.of(np.array(values))]) == expected


def test_infinities_of_both_signs_make_no_number() -> None:
    assert math.isnan(total([ExactSums.of(np.array([math.inf, -math.inf]))]))
