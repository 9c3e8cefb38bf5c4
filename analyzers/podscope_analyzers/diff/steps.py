"""The steps of two results: mean times by category, judged by their spread."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.diff.keys import ComparedSteps
from podscope_analyzers.diff.significance import UNKNOWN, Difference, difference, holm, verdict
from podscope_analyzers.result import Cell, Column, Table

StepRange = tuple[int, int]

DURATION: Final = ("duration_us", "duration_ms")

_Key = tuple[tuple[Cell, ...], str]
"""What tells a series from others, and the measure."""
_Series = Mapping[_Key, NDArray[np.float64]]


def step_count(table: Table, steps: StepRange | None) -> int:
    """Steps of the table, of those that are asked for."""
    ids = [column.id for column in table.columns]
    if "step" not in ids:
        return 0
    at = ids.index("step")
    return len({row[at] for row in table.rows if _is_in(row[at], steps)})


def compare_steps(
    compared: ComparedSteps, tables: Sequence[Table], ranges: Sequence[StepRange | None]
) -> Table:
    """One row per series and category, the largest change first.

    Of complete steps, as all averages, where there are any.

    Args:
        compared: How.
        tables: The base's steps, the other's.
        ranges: First and last number of the steps to compare; None for all.
    """
    sides = [_series(compared, table, asked) for table, asked in zip(tables, ranges, strict=True)]
    labels = {column.id: column for table in tables for column in table.columns}
    found: list[tuple[_Key, Difference | None, tuple[float | None, float | None]]] = []
    for key in dict.fromkeys((*sides[0], *sides[1])):
        base, other = (side.get(key) for side in sides)
        if base is not None and other is not None:
            # What takes no time on either side is no row, and no chance of a false alarm.
            if base.any() or other.any():
                found.append((key, difference(base, other), (None, None)))
        else:
            means = tuple(None if one is None else float(one.mean()) for one in (base, other))
            found.append((key, None, (means[0], means[1])))
    judged = holm([None if one is None else one.p_value for _, one, _ in found])
    rows: list[list[Cell]] = []
    for (key, one, means), judgement in zip(found, judged, strict=True):
        told, measure = key
        column = labels[measure]
        if one is None:
            rows.append([*told, measure, column.label, *_unmatched(means), column.unit])
            continue
        change = one.other_mean - one.base_mean
        rows.append(
            [
                *told,
                measure,
                column.label,
                "both",
                one.base_mean,
                one.other_mean,
                change,
                change / one.base_mean if one.base_mean else None,
                one.base_deviation,
                one.other_deviation,
                one.base_count,
                one.other_count,
                one.low,
                one.high,
                one.p_value,
                verdict(is_significant=judgement),
                column.unit,
            ]
        )
    place = len(compared.by) + 5
    rows.sort(key=lambda row: -abs(float(row[place] or 0)))
    return Table((*(labels[name] for name in compared.by if name in labels), *_COLUMNS), rows)


def _unmatched(means: tuple[float | None, float | None]) -> list[Cell]:
    match = "appeared" if means[0] is None else "vanished"
    change = (means[1] or 0.0) - (means[0] or 0.0)
    ratio = None if means[0] is None else -1.0
    return [match, *means, change, ratio, *[None] * 7, UNKNOWN]


_COLUMNS: Final = (
    Column("measure", "Measure", "string"),
    Column("label", "What it is", "string"),
    Column("match", "In", "string"),
    Column("base_mean", "Mean, base", "number"),
    Column("other_mean", "Mean, other", "number"),
    Column("change", "Change", "number"),
    Column("change_ratio", "Relative change", "number", "ratio"),
    Column("base_standard_deviation", "Standard deviation, base", "number"),
    Column("other_standard_deviation", "Standard deviation, other", "number"),
    Column("base_steps", "Steps, base", "integer"),
    Column("other_steps", "Steps, other", "integer"),
    Column("change_low", "Change, 95 % interval from", "number"),
    Column("change_high", "Change, 95 % interval to", "number"),
    Column("p_value", "p-value", "number"),
    Column("significance", "Significance", "string"),
    Column("unit", "Unit", "string"),
)


def _is_in(step: Cell, steps: StepRange | None) -> bool:
    return steps is None or (isinstance(step, int) and steps[0] <= step <= steps[1])


def _series(compared: ComparedSteps, table: Table, asked: StepRange | None) -> _Series:
    """Values by series and column, in the order of the steps."""
    ids = [column.id for column in table.columns]
    if "step" not in ids:
        return {}
    at = {name: index for index, name in enumerate(ids)}
    rows = [row for row in table.rows if _is_in(row[at["step"]], asked)]
    if "is_complete" in at and any(row[at["is_complete"]] for row in rows):
        rows = [row for row in rows if row[at["is_complete"]]]
    measures = [
        column.id
        for column in table.columns
        if column.type == "number" and column.id not in compared.without
    ]
    values: dict[tuple[tuple[Cell, ...], Cell], list[Sequence[Cell]]] = {}
    for row in rows:
        series = tuple(row[at[name]] for name in compared.by if name in at)
        values.setdefault((series, row[at["step"]]), []).append(row)
    found: dict[_Key, list[float]] = {}
    for (series, _), same in sorted(values.items(), key=lambda item: _step_order(item[0][1])):
        for name in measures:
            numbers = [float(v) for row in same if isinstance(v := row[at[name]], int | float)]
            if numbers:
                # Of the cores of a host the mean: they are no steps of their own.
                found.setdefault((series, name), []).append(sum(numbers) / len(numbers))
    return {key: np.array(series) for key, series in found.items()}


def _step_order(step: Cell) -> int:
    return step if isinstance(step, int) else 0
