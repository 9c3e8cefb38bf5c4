"""How busy each unit of a TPU was, by its hardware counters."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.counters import CounterPlane, Counters
from podscope_analyzers.reasons import NO_COUNTERS
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult
from podscope_analyzers.unit_utilization import KINDS, UnitCounters, Utilization
from podscope_analyzers.xprof_table import XprofColumn, XprofTable

NAME: Final = "utilization_viewer"
VERSION: Final = 1

_COLUMNS: Final = (
    Column("device", "Device", "integer"),
    Column("sample", "Sample", "integer"),
    Column("kernel", "Kernel", "string"),
    Column("node", "Core", "integer"),
    Column("name", "Unit", "string"),
    Column("achieved", "Achieved", "number"),
    Column("peak", "Possible", "number"),
    Column("unit", "Counted in", "string"),
    Column("utilization_ratio", "Utilization", "number", "ratio"),
)
_XPROF_COLUMNS: Final = tuple(
    XprofColumn(name, name.capitalize(), "string" if name in ("name", "unit") else "number")
    for name in ("host", "device", "sample", "node", "name", "achieved", "peak", "unit")
)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Every unit whose cycles were counted, in the order of the samples."""
    del parameters  # It takes none.
    counters = stats.counters
    rows: list[list[Cell]] = [
        [
            plane.device,
            sample,
            line,
            one.node,
            one.name,
            float(one.achieved),
            float(one.peak),
            one.unit,
            one.achieved / one.peak,
        ]
        for plane, sample, line, one in _all(counters)
        if one.peak > 0
    ]
    table = Table(_COLUMNS, rows)
    reasons: list[Reason] = []
    if not len(counters):
        reasons.append(NO_COUNTERS)
    elif not rows:
        kinds = sorted({plane.device_type or plane.name for plane in counters.planes})
        reasons.append(
            Reason(
                "no_unit_counters",
                f"No cycles of a known unit were counted on {', '.join(kinds)[:200]}.",
                f"Units are known of {' and '.join(KINDS)}; count the cycles of the core too "
                "(tpu_perf_counters). perf_counters lists what was counted.",
            )
        )
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if rows else "empty",
        result={"units": table.to_json()},
        tables={"units": table},
        reasons=reasons,
    )


def _all(counters: Counters) -> Iterator[tuple[CounterPlane, int, str, Utilization]]:
    columns = counters.columns
    names = counters.texts["counter"]
    for code, plane in enumerate(counters.planes):
        kind = KINDS.get(plane.device_type)
        if kind is None or plane.device < 0:
            continue
        rows = np.flatnonzero(columns["plane"] == code)
        samples, first = np.unique(columns["line_id"][rows], return_index=True)
        for sample in samples[np.argsort(first)].tolist():
            own = rows[columns["line_id"][rows] == sample]
            # The last value of a counter in a sample stands.
            last = dict(zip(columns["counter"][own].tolist(), own.tolist(), strict=True))
            values = {names[counter]: _whole(counters, row) for counter, row in last.items()}
            line = counters.text("line", int(own[0]))
            for one in UnitCounters(values).utilization(kind):
                yield plane, sample, line, one


def _whole(counters: Counters, row: int) -> int:
    bits = counters.unsigned(row)
    value = float(counters.columns["value"][row])
    return bits or (int(value) if value > 0 and np.isfinite(value) else 0)


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's table, of counters found by name instead of by number."""
    del parameters  # It takes none.
    return XprofTable(
        _XPROF_COLUMNS,
        [
            (0, plane.device, sample, one.node, one.name, one.achieved, one.peak, one.unit)
            for plane, sample, _, one in _all(stats.counters)
        ],
    ).to_json()
