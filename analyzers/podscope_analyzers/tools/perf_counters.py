"""The hardware counters that a host's devices recorded, value by value."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.counters import Counters
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.reasons import NO_COUNTERS
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult

NAME: Final = "perf_counters"
VERSION: Final = 1
PARAMETERS: Final = {
    "counter": "counters whose name contains this text, in any case",
    "chip": "one chip by its number",
    "device_type": "devices of one type, as their planes name it, or v6e, v7x",
    "names_only": "1 for the counters alone, without their values",
}
_SHORT_TYPES: Final = {"v6e": "tpu v6 lite", "v7x": "tpu v7x"}
_MAX_ROWS: Final = 20_000

_COUNTER_COLUMNS: Final = (
    Column("counter", "Counter", "string"),
    Column("samples", "Samples", "integer"),
    Column("total", "Total", "number"),
    Column("min", "Least", "number"),
    Column("max", "Most", "number"),
    Column("description", "Description", "string"),
    Column("set", "Set", "string"),
)
_VALUE_COLUMNS: Final = (
    Column("chip", "Chip", "integer"),
    Column("plane", "Device", "string"),
    Column("kernel", "Kernel", "string"),
    Column("sample", "Sample", "integer"),
    Column("begin_ms", "At", "number", "ms"),
    Column("counter", "Counter", "string"),
    Column("value", "Value", "number"),
)
_XPROF_COLUMNS: Final = (
    ("Host", "Host", "string"),
    ("Chip", "Chip", "number"),
    ("Kernel", "Kernel", "string"),
    ("Sample", "Sample", "number"),
    ("Counter", "Counter", "string"),
    ("Value", "Value (Hex)", "number"),
    ("Description", "Description", "string"),
    ("Set", "Set", "string"),
)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Every counter with its sums, then its values in the order of the file."""
    counters = stats.counters
    rows = _chosen(counters, parameters)
    shown = rows[:0] if _names_only(parameters) else rows
    tables = {"counters": _sums(counters, rows), "values": _values(counters, shown)}
    reasons: list[Reason] = [] if len(counters) else [NO_COUNTERS]
    left_out = counters.left_out + max(len(shown) - _MAX_ROWS, 0)
    if left_out:
        message = f"{left_out} values are not listed; at most {_MAX_ROWS} are."
        reasons.append(Reason("rows_left_out", message, "Choose with counter and chip."))
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if len(rows) else "empty",
        result={name: table.to_json() for name, table in tables.items()},
        tables=tables,
        reasons=reasons,
    )


def _chosen(counters: Counters, parameters: Mapping[str, str]) -> Any:
    wanted = np.ones(len(counters), np.bool_)
    if text := parameters.get("counter", "").lower():
        codes = [i for i, name in enumerate(counters.texts["counter"]) if text in name.lower()]
        wanted &= np.isin(counters.columns["counter"], codes)
    if chip := parameters.get("chip", "").strip():
        if not (chip.isascii() and chip.isdecimal()):
            msg = f"chip must be a whole number, not '{chip[:40]}'"
            raise ParameterError(msg)
        codes = [i for i, plane in enumerate(counters.planes) if str(plane.chip) == chip]
        wanted &= np.isin(counters.columns["plane"], codes)
    if kind := parameters.get("device_type", "").strip().lower():
        kinds = [plane.device_type.lower() for plane in counters.planes]
        codes = [i for i, one in enumerate(kinds) if one == _SHORT_TYPES.get(kind, kind)]
        wanted &= np.isin(counters.columns["plane"], codes)
    return np.flatnonzero(wanted)


def _names_only(parameters: Mapping[str, str]) -> bool:
    text = parameters.get("names_only", "").strip().lower()
    if text not in ("", "0", "1", "false", "true"):
        msg = f"names_only must be 1 or 0, not '{text[:40]}'"
        raise ParameterError(msg)
    return text in ("1", "true")


def _sums(counters: Counters, rows: Any) -> Table:
    names, first, code = np.unique(
        counters.columns["counter"][rows], return_index=True, return_inverse=True
    )
    values = counters.columns["value"][rows]
    count = np.bincount(code, minlength=len(names))
    total = np.bincount(code, weights=values, minlength=len(names))
    least, most = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    np.minimum.at(least, code, values)
    np.maximum.at(most, code, values)
    listed: list[list[Cell]] = [
        [
            counters.texts["counter"][name],
            int(count[i]),
            float(total[i]),
            float(least[i]),
            float(most[i]),
            counters.text("description", int(rows[first[i]])),
            counters.text("set", int(rows[first[i]])),
        ]
        for i, name in enumerate(names.tolist())
    ]
    return Table(_COUNTER_COLUMNS, sorted(listed, key=lambda row: str(row[0])))


def _values(counters: Counters, rows: Any) -> Table:
    columns = counters.columns
    listed: list[list[Cell]] = []
    for row in rows[:_MAX_ROWS].tolist():
        plane = counters.planes[int(columns["plane"][row])]
        listed.append(
            [
                plane.chip,
                plane.name,
                counters.text("line", row),
                int(columns["line_id"][row]),
                int(columns["start_ps"][row]) / 1e9,
                counters.text("counter", row),
                float(columns["value"][row]),
            ]
        )
    return Table(_VALUE_COLUMNS, listed)


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's table: counters in lower case, values in hexadecimal beside the number.

    Of names alone, a list of them.
    """
    counters = stats.counters
    host = stats.hosts[0].host if stats.hosts else ""
    rows = []
    chosen = _chosen(counters, parameters)
    if _names_only(parameters):
        codes = np.unique(counters.columns["counter"][chosen]).tolist()
        names = {counters.texts["counter"][code].lower() for code in codes}
        return [{"name": name} for name in sorted(names)]
    for row in chosen.tolist():
        # A value of floating point reads as 0 there.
        value = counters.unsigned(row)
        cells: list[dict[str, object]] = [
            {"v": host},
            {"v": float(counters.planes[int(counters.columns["plane"][row])].chip)},
            {"v": counters.text("line", row)},
            {"v": float(counters.columns["line_id"][row])},
            {"v": counters.text("counter", row).lower()},
            {"f": f"{value:#x}", "v": float(value)},
            {"v": counters.text("description", row)},
            {"v": counters.text("set", row)},
        ]
        rows.append({"c": cells})
    columns = [{"id": i, "label": label, "type": kind} for i, label, kind in _XPROF_COLUMNS]
    return {"cols": columns, "rows": rows}
