import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from podscope_analyzers.sorted_values import distinct, median

_INT64S = arrays(np.int64, st.integers(0, 30), elements=st.integers(-5, 5))
_DOUBLES = arrays(np.float64, st.integers(1, 30), elements=st.floats(allow_nan=True))


@given(_INT64S)
def test_distinct_values_are_numpys(values: npt.NDArray[np.int64]) -> None:
    found = distinct(values)
    assert found.dtype == values.dtype
    assert found.tolist() == np.unique(values).tolist()


def test_distinct_values_of_a_table_are_of_all_its_cells() -> None:
    assert distinct(np.array([[3, 1], [1, 2]])).tolist() == [1, 2, 3]


def test_rows_of_fields_are_told_apart_by_all_of_them() -> None:
    rows = np.array([(1, 2), (1, 1), (1, 2)], np.dtype([("group", "i8"), ("id", "i8")]))
    assert distinct(rows).tolist() == [(1, 1), (1, 2)]


@given(_DOUBLES)
def test_the_median_is_numpys_bit_for_bit(values: npt.NDArray[np.float64]) -> None:
    with np.errstate(all="ignore"):
        expected = np.float64(np.median(values))
        found = np.float64(median(values))
    assert np.isnan(found) == np.isnan(expected)
    assert np.isnan(found) or found.tobytes() == expected.tobytes()


def test_a_median_of_whole_numbers_lies_between_the_middle_ones() -> None:
    assert median(np.array([4, 1, 3, 2])) == 2.5
    assert median([7.0]) == 7.0


def test_nothing_has_no_median() -> None:
    assert np.isnan(median([]))


@pytest.mark.parametrize("sizes", [(3, 4), (2, 2)])
def test_the_median_of_a_table_is_of_all_its_cells(sizes: tuple[int, int]) -> None:
    table = np.arange(sizes[0] * sizes[1], dtype=np.float64).reshape(sizes)
    assert median(table) == float(np.median(table))
