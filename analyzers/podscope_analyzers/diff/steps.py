"""The steps of two results: mean times by category, judged by their spread."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.diff.keys import ComparedSteps
from podscope_analyzers.diff.matching import Row, matched
from podscope_analyzers.diff.significance import UNKNOWN, Difference, difference, holm, verdict
from podscope_analyzers.result import Cell, Column, Table

StepRange = tuple[int, int]

DURATION: Final = ("duration_us", "duration_ms")

_Key = tuple[tuple[Cell, ...], str]
"""What tells a series from others, and the measure."""
_Values = dict[str, dict[Cell, float]]
"""Of one series: by measure and step."""
_Times = Mapping[str, NDArray[np.float64]]


def step_count(table: Table, steps: StepRange | None) -> int:
    """Steps of the table, of those that are asked for."""
    ids = [column.id for column in table.columns]
    if "step" not in ids:
        return 0
    at = ids.index("step")
    return len({row[at] for row in table.rows if _is_in(row[at], steps)})


def step_bounds(table: Table) -> StepRange | None:
    """The first and the last step of the table; None without any."""
    ids = [column.id for column in table.columns]
    at = ids.index("step") if "step" in ids else 0
    steps = [step for row in table.rows if isinstance(step := row[at], int)]
    return (min(steps), max(steps)) if steps else None


def compare_steps(
    compared: ComparedSteps,
    tables: Sequence[Table],
    ranges: Sequence[StepRange | None],
    described: Sequence[Table | None] = (None, None),
) -> Table:
    """One row per series and category, the largest change first.

    Of complete steps, as all averages, where there are any.

    Args:
        compared: How.
        tables: The base's steps, the other's.
        ranges: First and last number of the steps to compare; None for all.
        described: What each side says of its series beside ``compared.by``.
    """
    sides = [
        _series(compared, table, asked, more)
        for table, asked, more in zip(tables, ranges, described, strict=True)
    ]
    labels = {column.id: column for table in tables for column in table.columns}
    found: list[tuple[_Key, Difference | None, tuple[float | None, float | None]]] = []
    for told, base_times, other_times in _matched(compared, *sides):
        for measure in dict.fromkeys((*base_times, *other_times)):
            key = told, measure
            base, other = base_times.get(measure), other_times.get(measure)
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


@dataclass
class _Series:
    """What one side has of one thing.

    Attributes:
        told: The cells of ``by``.
        row: All that is known of it, for its keys.
    """

    told: tuple[Cell, ...]
    row: Row
    values: _Values


def _series(
    compared: ComparedSteps, table: Table, asked: StepRange | None, described: Table | None
) -> list[_Series]:
    ids = [column.id for column in table.columns]
    if "step" not in ids:
        return []
    at = {name: index for index, name in enumerate(ids)}
    rows = [row for row in table.rows if _is_in(row[at["step"]], asked)]
    if "is_complete" in at and any(row[at["is_complete"]] for row in rows):
        rows = [row for row in rows if row[at["is_complete"]]]
    measures = [
        column.id
        for column in table.columns
        if column.type == "number" and column.id not in compared.without
    ]
    by = [name for name in compared.by if name in at]
    values: dict[tuple[tuple[Cell, ...], Cell], list[Sequence[Cell]]] = {}
    for row in rows:
        told = tuple(row[at[name]] for name in by)
        values.setdefault((told, row[at["step"]]), []).append(row)
    more = _described(by, described)
    found: dict[tuple[Cell, ...], _Series] = {}
    for (told, step), same in values.items():
        if told not in found:
            found[told] = _Series(
                told, {**more.get(told, {}), **dict(zip(by, told, strict=True))}, {}
            )
        for name in measures:
            numbers = [float(v) for row in same if isinstance(v := row[at[name]], int | float)]
            if numbers:
                # Of the cores of a host the mean: they are no steps of their own.
                mean = sum(numbers) / len(numbers)
                found[told].values.setdefault(name, {})[step] = mean
    return list(found.values())


def _described(by: Sequence[str], table: Table | None) -> dict[tuple[Cell, ...], Row]:
    """Rows of a table by what tells series apart; of several the first."""
    if table is None:
        return {}
    ids = [column.id for column in table.columns]
    found: dict[tuple[Cell, ...], Row] = {}
    for cells in table.rows:
        row = dict(zip(ids, cells, strict=True))
        found.setdefault(tuple(row.get(name) for name in by), row)
    return found


def _matched(
    compared: ComparedSteps, base: list[_Series], other: list[_Series]
) -> Iterator[tuple[tuple[Cell, ...], _Times, _Times]]:
    """What each thing is called, and its times on both sides."""
    by_row = {id(one.row): one for one in (*base, *other)}
    keys = compared.keys or (compared.by,)
    for group in matched(keys, [one.row for one in base], [one.row for one in other]):
        sides = [[by_row[id(row)] for row in rows] for rows in (group.base, group.other)]
        known = (sides[1] or sides[0])[0]
        yield known.told, _summed(sides[0]), _summed(sides[1])


def _summed(series: Sequence[_Series]) -> _Times:
    """Values by measure in the order of the steps; of several series that are one the sum."""
    sums: _Values = {}
    for one in series:
        for name, values in one.values.items():
            into = sums.setdefault(name, {})
            for step, value in values.items():
                into[step] = into.get(step, 0.0) + value
    return {
        name: np.array([values[step] for step in sorted(values, key=_step_order)])
        for name, values in sums.items()
    }


def _step_order(step: Cell) -> int:
    return step if isinstance(step, int) else 0
