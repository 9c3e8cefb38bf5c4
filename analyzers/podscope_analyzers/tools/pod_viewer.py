"""Pod viewer: every step of every core of every host side by side, and who is late."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from podscope_analyzers.arrivals import Arrivals, Meetings
from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.host_work import host_meetings, host_works
from podscope_analyzers.input_pipeline.analysis import step_warnings
from podscope_analyzers.pod_tables import (
    CATEGORY_COLUMNS,
    PARAMETERS,
    arrivals_table,
    bottlenecks,
    channels_table,
    collectives_table,
    cores_table,
    row_medians,
    step_window,
    steps_table,
)
from podscope_analyzers.reasons import hosts_not_compared, reasons_for_steps
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.step_categories import (
    CATEGORY_NAMES,
    Int64s,
    reference_categories_ps,
)
from podscope_analyzers.stragglers import (
    MIN_STEPS,
    HostWork,
    StragglerReport,
    find_stragglers,
)

__all__ = ["PARAMETERS", "VERSION", "analyze", "xprof_json"]

VERSION: Final = 7

MAX_REFERENCE_RECORDS: Final = 200_000
"""Records of steps and cores in the reference's form; at least one step is whole."""


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Put the steps of all hosts side by side and name the host that the others wait for.

    Args:
        stats: With all steps, incomplete ones too.
        scope: What the result covers.
        parameters: See ``pod_tables.PARAMETERS``.

    Raises:
        ParameterError: a parameter is no number, or names no host of the capture.
    """
    window = step_window(stats, parameters)
    met = host_meetings(stats, scope.clocks)
    works = host_works(stats, met)
    report = find_stragglers(works)
    tables = {
        "steps": steps_table(stats, window),
        "hosts": _hosts_table(works, report),
        "slowest": _slowest_table(stats, report),
        "collectives": collectives_table(stats),
        "arrivals": arrivals_table(stats, met),
        "channels": channels_table(stats),
        "cores": cores_table(stats),
    }
    reasons = (*reasons_for_steps(stats.all_steps), *_not_compared(stats, works, report))
    return ToolResult(
        tool="pod_viewer",
        version=VERSION,
        scope=scope,
        status="ok" if len(stats.all_steps.row_step) else "empty",
        result={
            "device_type": stats.run_environment.device_type,
            "step_count": len(stats.all_steps),
            "host_count": len(works),
            "core_count": len(distinct(stats.all_steps.core_id)),
            "row_count": window.row_count,
            "first_step": window.first_step,
            "listed_step_count": window.step_count,
            "next_step": window.next_step,
            "categories": [
                {"id": index + 1, "name": name, "column": CATEGORY_COLUMNS[index][0]}
                for index, name in enumerate(CATEGORY_NAMES)
            ],
            "straggler": straggler_json(report),
            "clocks": _clocks_json(stats, scope, met),
            "warnings": _warnings(stats),
            **{name: table.to_json() for name, table in tables.items()},
        },
        tables=tables,
        reasons=reasons,
    )


def _warnings(stats: CaptureStats) -> list[str]:
    found = [*step_warnings(stats.all_steps)]
    cut = len(stats.all_steps) - int(stats.is_complete.sum())
    if cut:
        found.append(
            f"The capture probably cut {cut} of {len(stats.all_steps)} steps, at its begin and its "
            "end: their times may be too short."
        )
    return found


def _not_compared(
    stats: CaptureStats, works: Sequence[HostWork], report: StragglerReport
) -> tuple[Reason, ...]:
    """Hosts of which the verdict says nothing, because they recorded too few of the steps."""
    if report.verdict not in ("straggler", "even"):
        return ()
    judged = {work.host for work in works if int((work.total_ps >= 0).sum()) >= MIN_STEPS}
    names = [host.host for host in stats.hosts if host.host not in judged]
    if not names:
        return ()
    return (hosts_not_compared(names, len(stats.hosts), MIN_STEPS, len(stats.all_steps)),)


def straggler_json(report: StragglerReport) -> dict[str, Any]:
    """The verdict about late hosts, JSON-ready."""
    named = [
        {
            "host": late.host,
            "lateness_us": late.lateness_ps / 1e6,
            "lateness_ratio": late.lateness_ratio,
            "persistence_ratio": late.persistence_ratio,
            "step_count": late.step_count,
            "slowest_steps": late.slowest_steps,
            "cause": late.cause,
            "evidence": list(late.evidence),
            "arrival": _arrival_json(late.arrivals),
        }
        for late in report.stragglers
    ]
    return {
        "verdict": report.verdict,
        "host": named[0]["host"] if named else None,
        "waiting_ratio": report.waiting_ratio,
        "slowest_lateness_us": (
            None if report.slowest_lateness_ps is None else report.slowest_lateness_ps / 1e6
        ),
        "slowest_lateness_ratio": report.slowest_lateness_ratio,
        "stragglers": named,
        "slow_cores": [
            {
                "host": slow.host,
                "core": slow.core,
                "lateness_us": slow.lateness_ps / 1e6,
                "lateness_ratio": slow.lateness_ratio,
                "persistence_ratio": slow.persistence_ratio,
            }
            for slow in report.slow_cores
        ],
    }


def _arrival_json(arrived: Arrivals | None) -> dict[str, Any] | None:
    if arrived is None:
        return None
    return {
        "lateness_us": arrived.lateness_ps / 1e6,
        "error_us": arrived.error_ps / 1e6 if arrived.basis == "clocks" else None,
        "basis": arrived.basis,
        "matched_by": "kind" if arrived.is_by_kind else "id",
        "collective_count": arrived.meetings,
        "last_count": arrived.last,
    }


def _clocks_json(stats: CaptureStats, scope: Scope, met: Meetings | None) -> dict[str, Any] | None:
    """How well the hosts' clocks are known; None where the capture did not measure them."""
    known = [scope.clocks[host.host] for host in stats.hosts if host.host in scope.clocks]
    if not known:
        return None
    used = 0 if met is None else int((~np.isnan(met.error_ps)).sum())
    return {
        "host_count": len(known),
        "used_host_count": used,
        "largest_error_us": max(clock.error_ns for clock in known) / 1e3,
        "apart_us": (
            max(clock.offset_ns for clock in known) - min(clock.offset_ns for clock in known)
        )
        / 1e3,
    }


def _hosts_table(works: list[HostWork], report: StragglerReport) -> Table:
    late = {straggler.host: straggler.lateness_ps / 1e6 for straggler in report.stragglers}
    slowest = Counter(step.host for step in report.steps if step is not None)

    arrived = [work.arrivals for work in works]
    shape = (len(works), len(works[0].total_ps) if works else 0)
    total = np.array([work.total_ps for work in works], np.int64).reshape(shape)
    is_there = total >= 0

    def typical(values: Sequence[Int64s]) -> list[float | None]:
        rows = np.array(values, np.int64).reshape(shape)
        return [
            None if math.isnan(middle) else middle / 1e6
            for middle in row_medians(rows, is_there).tolist()
        ]

    columns: list[Sequence[Cell]] = [
        [work.host for work in works],
        is_there.sum(axis=1).tolist(),
        typical([work.total_ps for work in works]),
        typical([work.total_ps - work.waiting_ps for work in works]),
        typical([work.waiting_ps for work in works]),
        *(typical([work.parts_ps[part] for work in works]) for part in _PARTS),
        [slowest[work.host] for work in works],
        [work.host in late for work in works],
        [None if one is None else one.lateness_ps / 1e6 for one in arrived],
        [None if one is None or one.basis != "clocks" else one.error_ps / 1e6 for one in arrived],
        [None if one is None else one.basis for one in arrived],
        [None if one is None else one.last for one in arrived],
        [None if one is None else one.meetings for one in arrived],
    ]
    rows = list(zip(*columns, strict=True))
    return Table(
        columns=(
            Column("host", "Host", "string"),
            Column("step_count", "Steps", "integer"),
            Column("step_time_us", "Median step time", "number", "us"),
            Column("own_work_us", "Median own work", "number", "us"),
            Column("waiting_us", "Median wait in collectives", "number", "us"),
            *(Column(f"{part}_us", f"Median {part}", "number", "us") for part in _PARTS),
            Column("slowest_steps", "Steps in which it is the slowest", "integer"),
            Column("is_straggler", "The others wait for it", "boolean"),
            Column("arrival_lateness_us", "Arrives later at collectives", "number", "us"),
            Column("arrival_error_us", "Error of the clocks", "number", "us"),
            Column("arrival_basis", "Told by", "string"),
            Column("last_arrivals", "Collectives at which it is last", "integer"),
            Column("collective_count", "Collectives with other hosts", "integer"),
        ),
        rows=rows,
    )


_PARTS: Final = ("compute", "input", "communication", "host")


def _slowest_table(stats: CaptureStats, report: StragglerReport) -> Table:
    numbers = stats.all_steps.step_numbers.tolist()
    rows = [
        (number, step.host, step.own_ps / 1e6, step.lateness_ps / 1e6)
        for number, step in zip(numbers, report.steps, strict=False)
        if step is not None
    ]
    return Table(
        columns=(
            Column("step", "Step", "integer"),
            Column("host", "Slowest host", "string"),
            Column("own_work_us", "Its own work", "number", "us"),
            Column("lateness_us", "Later than the others", "number", "us"),
        ),
        rows=rows,
    )


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The database that XProf's pod viewer reads."""
    del parameters
    shown = _reference_steps(stats)
    warnings = [*step_warnings(stats.steps)]
    if len(shown) < len(stats.steps):
        warnings.append(
            f"Only the first {len(shown)} of {len(stats.steps)} steps are listed: all of them "
            f"would be {len(stats.steps.row_step)} records."
        )
    return {
        "podStatsSequence": {"podStatsMap": shown},
        "diagnostics": {"info": [], "warnings": warnings, "errors": []},
        "stepBreakdownEvents": [
            {"id": index + 1, "name": name} for index, name in enumerate(CATEGORY_NAMES)
        ],
        "deviceType": stats.run_environment.device_type,
    }


def _reference_steps(stats: CaptureStats) -> list[dict[str, Any]]:
    steps = stats.steps
    times = reference_categories_ps(steps)
    hostnames = {host.index: host.hostname for host in stats.hosts}
    bottleneck = bottlenecks(times)
    offsets = steps.row_offsets.tolist()
    fitting = int(np.searchsorted(offsets, MAX_REFERENCE_RECORDS, side="right")) - 1
    shown = []
    for index, number in enumerate(steps.step_numbers[: max(fitting, 1)].tolist()):
        cores = {}
        for row in range(offsets[index], offsets[index + 1]):
            core = int(steps.core_id[row])
            if steps.kind == "tpu" and core not in stats.cores:
                continue
            cores[str(core)] = {
                "hostName": hostnames[int(steps.host_index[row])],
                "chipId": 0,
                "nodeId": 0,
                "stepNum": number,
                "totalDurationUs": int(steps.duration_ps[row]) / 1e6,
                "bottleneck": bottleneck[row],
                "stepBreakdownUs": {
                    str(category + 1): int(time) / 1e6 for category, time in enumerate(times[row])
                },
            }
        shown.append(
            {
                "stepNum": number,
                "podStatsPerCore": cores,
                "channelDb": [],
                "coreIdToReplicaIdMap": {},
                "allReduceOpDb": [],
            }
        )
    return shown
