import math

import pytest

from podscope_analyzers.xprof_table import XprofColumn, XprofTable, fixed, general, percent


def test_a_table_has_the_shape_that_existing_clients_read() -> None:
    table = XprofTable(
        columns=[
            XprofColumn("stepnum", "Step number", "string"),
            XprofColumn("tooltip", "tooltip", "string", {"role": "tooltip"}),
            XprofColumn("ms", "Step time"),
            XprofColumn("eligible", "Eligible", "boolean"),
        ],
        rows=[["1", "t", 3, True]],
        properties={"b": "2", "a": "1"},
    )
    assert table.to_json() == {
        "cols": [
            {"id": "stepnum", "label": "Step number", "type": "string"},
            {"id": "tooltip", "label": "tooltip", "p": {"role": "tooltip"}, "type": "string"},
            {"id": "ms", "label": "Step time", "type": "number"},
            {"id": "eligible", "label": "Eligible", "type": "boolean"},
        ],
        "p": {"a": "1", "b": "2"},
        "rows": [{"c": [{"v": "1"}, {"v": "t"}, {"v": 3.0}, {"v": True}]}],
    }


def test_number_cells_are_doubles() -> None:
    table = XprofTable(columns=[XprofColumn("n", "n")], rows=[[4]])
    assert isinstance(table.to_json()["rows"][0]["c"][0]["v"], float)


def test_an_empty_table_keeps_its_columns_and_rows() -> None:
    assert XprofTable().to_json() == {"cols": [], "rows": []}


def test_a_row_of_the_wrong_length_is_a_defect() -> None:
    with pytest.raises(ValueError, match="zip"):
        XprofTable(columns=[XprofColumn("n", "n")], rows=[[1, 2]]).to_json()


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(123.96, 1, "124.0"), (0.0, 3, "0.000"), (math.nan, 1, "nan"), (-math.nan, 1, "-nan")],
)
def test_fixed_prints_like_c(value: float, digits: int, text: str) -> None:
    assert fixed(value, digits) == text


def test_percentages_have_one_decimal_and_negative_ones_are_unknown() -> None:
    assert (percent(13.44), percent(0.0), percent(-1.0)) == ("13.4%", "0.0%", "unknown")


def test_general_prints_like_c() -> None:
    assert (general(4.90776e13), general(7e8), general(0.25)) == ("4.90776e+13", "7e+08", "0.25")
