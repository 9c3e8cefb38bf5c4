"""The table JSON that XProf's data route gives, with its texts formatted as C's printf does."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

XprofCell = str | int | float | bool


@dataclass(frozen=True)
class XprofColumn:
    """A column as existing clients look it up.

    Attributes:
        properties: Custom properties, such as the role of a tooltip.
    """

    id: str
    label: str
    type: Literal["string", "number", "boolean"] = "number"
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class XprofTable:
    """One DataTable: columns, rows of plain cells, properties of text."""

    columns: Sequence[XprofColumn] = ()
    rows: Sequence[Sequence[XprofCell]] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The table in the reference's shape; properties are left out when there are none."""
        table: dict[str, Any] = {"cols": [_column_json(column) for column in self.columns]}
        if self.properties:
            table["p"] = dict(sorted(self.properties.items()))
        table["rows"] = [
            {
                "c": [
                    {"v": _cell_json(column, value)}
                    for column, value in zip(self.columns, row, strict=True)
                ]
            }
            for row in self.rows
        ]
        return table


def _column_json(column: XprofColumn) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": column.id, "label": column.label}
    if column.properties:
        shown["p"] = dict(sorted(column.properties.items()))
    shown["type"] = column.type
    return shown


def _cell_json(column: XprofColumn, value: XprofCell) -> XprofCell:
    # Number cells are doubles in the reference: an occurrence count prints as 4.0.
    return float(value) if column.type == "number" else value


def fixed(value: float, digits: int) -> str:
    """``%.<digits>f`` of C, which prints NaN as ``nan`` or ``-nan`` by its sign bit."""
    if math.isnan(value):
        return "-nan" if math.copysign(1.0, value) < 0 else "nan"
    return f"{value:.{digits}f}"


def percent(value: float) -> str:
    """A percentage with one decimal; the reference marks what it does not know as negative."""
    return "unknown" if value < 0 else f"{fixed(value, 1)}%"


def general(value: float) -> str:
    """``%g`` of C."""
    return f"{value:g}"
