"""Steps of two results, judged by category."""

from collections.abc import Sequence

import pytest

from podscope_analyzers.diff.keys import ComparedSteps
from podscope_analyzers.diff.significance import ALPHA
from podscope_analyzers.diff.steps import compare_steps
from podscope_analyzers.result import Cell, Column, Table

BASE = (100.0, 110.0, 90.0, 100.0, 110.0, 90.0, 100.0, 100.0)
OTHER = (132.0, 118.0, 145.0, 130.0)


def _steps(values: Sequence[float], zeros: int) -> Table:
    """Step times, and categories in which no step spent any time."""
    names = [f"nothing_{at}_us" for at in range(zeros)]
    return Table(
        (
            Column("step", "Step", "integer"),
            *(Column(name, name, "number", "us") for name in ("duration_us", *names)),
        ),
        [(step, value, *[0.0] * zeros) for step, value in enumerate(values)],
    )


@pytest.mark.parametrize("zeros", [0, 8])
def test_categories_without_any_time_make_nothing_less_significant(zeros: int) -> None:
    found = compare_steps(
        ComparedSteps("steps"), [_steps(BASE, zeros), _steps(OTHER, zeros)], [None, None]
    )
    ids = [column.id for column in found.columns]
    rows: list[dict[str, Cell]] = [dict(zip(ids, row, strict=True)) for row in found.rows]
    assert [row["measure"] for row in rows] == ["duration_us"]
    # Among nine measures it would not be.
    assert ALPHA / 9 < float(str(rows[0]["p_value"])) < ALPHA
    assert rows[0]["significance"] == "significant"
