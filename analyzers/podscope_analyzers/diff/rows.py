"""The rows of one table in two results: matched, merged, measured, judged by their spread."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from podscope_analyzers.diff.keys import ComparedTable
from podscope_analyzers.diff.matching import Group, Row, matched
from podscope_analyzers.diff.significance import WITHIN_NOISE, Sample, holm, verdict, welch
from podscope_analyzers.result import Cell, Column, Table

# Cells between what a row is called and its change.
_BEFORE_CHANGE: Final = 5


@dataclass(frozen=True)
class Divisor:
    """By what sums are divided, so that captures of other lengths and sizes compare.

    Attributes:
        steps: 1 where sums are compared as they are.
        cores: Devices or cores that ran the device's rows.
    """

    steps: int = 1
    hosts: int = 1
    cores: int = 1
    has_devices: bool = False

    def of(self, table: ComparedTable, row: Row) -> int:
        """For one row of a table."""
        if not table.is_sum:
            return 1
        is_device = self.has_devices
        if table.place == "host":
            is_device = False
        elif table.place != "device_or_host":
            is_device = row.get(table.place) == "device"
        return self.steps * (self.cores if is_device else self.hosts)


@dataclass(frozen=True)
class ComparedRows:
    """A table of changes, largest first, what is within noise last, and what it says in numbers.

    Attributes:
        base_total: Sum of the measure; None where it has none, as latencies.
        other_total: The same.
    """

    table: Table
    matched: int
    appeared: int
    vanished: int
    base_total: float | None
    other_total: float | None


def compare_rows(
    compared: ComparedTable, tables: Sequence[Table], divisors: Sequence[Divisor]
) -> ComparedRows:
    """The rows of the base's table and of the other's.

    Args:
        compared: How.
        tables: The base's, the other's.
        divisors: The same.
    """
    groups = matched(compared.keys, *(_records(compared, table) for table in tables))
    measure = _column(tables, compared.measure)
    sums = [column for name in compared.sums if (column := _column(tables, name)) is not None]
    shown = [column for name in compared.shown if (column := _column(tables, name)) is not None]
    if measure is None:
        return ComparedRows(Table((), []), 0, 0, 0, None, None)
    rows: list[list[Cell]] = []
    totals = [0.0, 0.0]
    tests = [_tested(compared, group, divisors) for group in groups]
    verdicts = holm([test[0] if test else None for test in tests])
    for group, test, is_significant in zip(groups, tests, verdicts, strict=True):
        values = [
            _measured(compared, side, divisor)
            for side, divisor in zip((group.base, group.other), divisors, strict=True)
        ]
        totals = [total + (value or 0.0) for total, value in zip(totals, values, strict=True)]
        change = _change(group, values)
        known = (group.other or group.base)[0]
        p_value, half = test or (None, None)
        rows.append(
            [
                *(known.get(column.id) for column in shown),
                group.match,
                len(group.base),
                len(group.other),
                *values,
                change,
                change / values[0] if values[0] and change is not None else None,
                *(_total(column.id, side) for column in sums for side in (group.base, group.other)),
                *(
                    (None, None)
                    if half is None or change is None
                    else (change - half, change + half)
                ),
                p_value,
                verdict(is_significant=is_significant),
            ]
        )
    at = len(shown) + _BEFORE_CHANGE
    # What is noise for all that is known is no change, however large.
    rows.sort(key=lambda row: (row[-1] == WITHIN_NOISE, -abs(float(row[at] or 0))))
    table = Table((*shown, *_columns(measure, sums, divisors[0], compared)), rows)
    matches = [group.match for group in groups]
    return ComparedRows(
        table,
        matches.count("both"),
        matches.count("appeared"),
        matches.count("vanished"),
        *(total if compared.adds_up else None for total in totals),
    )


def _change(group: Group, values: Sequence[float | None]) -> float | None:
    """What is not there counts as nothing; what is there and was not measured is not known."""
    base, other = values
    if group.match == "both" and None in values:
        return None
    return (other or 0.0) - (base or 0.0)


def _columns(
    measure: Column, sums: Iterable[Column], divisor: Divisor, compared: ComparedTable
) -> list[Column]:
    label = measure.label
    if compared.is_sum and divisor.steps * max(divisor.cores, divisor.hosts) > 1:
        label = f"{label}, of a step of a core or host"
    unit = measure.unit
    return [
        Column("match", "In", "string"),
        Column("base_rows", "Rows of the base", "integer"),
        Column("other_rows", "Rows of the other", "integer"),
        Column(f"base_{measure.id}", f"{label}, base", "number", unit),
        Column(f"other_{measure.id}", f"{label}, other", "number", unit),
        Column(f"change_{unit}" if unit else "change", "Change", "number", unit),
        Column("change_ratio", "Relative change", "number", "ratio"),
        *(
            Column(f"{side}_{column.id}", f"{column.label}, {side}", column.type, column.unit)
            for column in sums
            for side in ("base", "other")
        ),
        Column("change_low", "Change, 95 % interval from", "number", unit),
        Column("change_high", "Change, 95 % interval to", "number", unit),
        Column("p_value", "p-value", "number"),
        Column("significance", "Significance", "string"),
    ]


def _records(compared: ComparedTable, table: Table) -> list[Row]:
    ids = [column.id for column in table.columns]
    rows = (dict(zip(ids, row, strict=True)) for row in table.rows)
    return [
        row
        for row in rows
        if all(row.get(name) in known for name, known in compared.where.items())
        and not any(row.get(name) in known for name, known in compared.without.items())
    ]


def _column(tables: Iterable[Table], name: str) -> Column | None:
    return next((column for table in tables for column in table.columns if column.id == name), None)


def _measured(compared: ComparedTable, rows: Sequence[Row], divisor: Divisor) -> float | None:
    values = [
        float(value) / divisor.of(compared, row)
        for row in rows
        if isinstance(value := row.get(compared.measure), int | float)
    ]
    if not values:
        return None
    return sum(values) if compared.adds_up else sum(values) / len(values)


def _tested(
    compared: ComparedTable, group: Group, divisors: Sequence[Divisor]
) -> tuple[float, float] | None:
    """The p-value of a change, and half of its 95 % interval; None without a known spread."""
    if not compared.is_sum or any(divisor.steps == 1 for divisor in divisors):
        return None
    samples = [
        _sample(compared, rows, divisor)
        for rows, divisor in zip((group.base, group.other), divisors, strict=True)
    ]
    base, other = samples
    return None if base is None or other is None else welch(base, other)


def _sample(compared: ComparedTable, rows: Sequence[Row], divisor: Divisor) -> Sample | None:
    """What is known of a step; of several rows as if they were slow in the same steps."""
    mean = deviation = 0.0
    steps = math.inf
    for row in rows:
        value, ratio, count = (
            row.get(name) for name in (compared.measure, "step_spread_ratio", "independent_steps")
        )
        if not (
            isinstance(value, int | float)
            and isinstance(ratio, int | float)
            and isinstance(count, int | float)
        ):
            return None
        one = value / divisor.of(compared, row)
        mean, deviation, steps = mean + one, deviation + ratio * one, min(steps, count)
    return Sample(mean, deviation, steps) if rows else None


def _total(name: str, rows: Sequence[Row]) -> Cell:
    values = [value for row in rows if isinstance(value := row.get(name), int | float)]
    return sum(values) if values else None
