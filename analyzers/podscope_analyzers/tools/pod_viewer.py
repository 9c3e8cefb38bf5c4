"""Pod viewer: every step of every core of every host side by side, and who is late."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.host_work import host_works, own_work_ps
from podscope_analyzers.input_pipeline.analysis import step_warnings
from podscope_analyzers.reasons import reasons_for_steps
from podscope_analyzers.result import Cell, Column, Scope, Table, ToolResult
from podscope_analyzers.step_categories import (
    CATEGORY_NAMES,
    Int64s,
    own_categories_ps,
    reference_categories_ps,
)
from podscope_analyzers.stragglers import HostWork, StragglerReport, find_stragglers

VERSION: Final = 1

_CATEGORY_COLUMNS: Final = (
    ("device_compute_us", "Device compute"),
    ("device_to_device_us", "Device to device"),
    ("collectives_us", "Waiting in collectives"),
    ("host_compute_us", "Host compute"),
    ("kernel_launch_us", "Kernel launch"),
    ("input_us", "Input"),
    ("output_us", "Output"),
    ("compilation_us", "Compilation"),
    ("other_us", "All others"),
)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Put the steps of all hosts side by side and name the host that the others wait for.

    Args:
        stats: With all steps, incomplete ones too.
        scope: What the result covers.
        parameters: None are taken.
    """
    del parameters
    works = host_works(stats)
    report = find_stragglers(works)
    tables = {
        "steps": _steps_table(stats),
        "hosts": _hosts_table(works, report),
        "slowest": _slowest_table(stats, report),
    }
    reasons = reasons_for_steps(stats.all_steps)
    return ToolResult(
        tool="pod_viewer",
        version=VERSION,
        scope=scope,
        status="ok" if len(stats.all_steps.row_step) else "empty",
        result={
            "device_type": stats.run_environment.device_type,
            "step_count": len(stats.all_steps),
            "host_count": len(works),
            "core_count": len(np.unique(stats.all_steps.core_id)),
            "categories": [
                {"id": index + 1, "name": name, "column": _CATEGORY_COLUMNS[index][0]}
                for index, name in enumerate(CATEGORY_NAMES)
            ],
            "straggler": straggler_json(report),
            **{name: table.to_json() for name, table in tables.items()},
        },
        tables=tables,
        reasons=reasons,
        losses=stats.losses,
    )


def straggler_json(report: StragglerReport) -> dict[str, Any]:
    """The verdict about late hosts, JSON-ready."""
    named = [
        {
            "host": late.host,
            "lateness_us": late.lateness_ps / 1e6,
            "lateness_ratio": late.lateness_ratio,
            "persistence_ratio": late.persistence_ratio,
            "slowest_steps": late.slowest_steps,
            "cause": late.cause,
            "evidence": list(late.evidence),
        }
        for late in report.stragglers
    ]
    return {
        "verdict": report.verdict,
        "host": named[0]["host"] if named else None,
        "waiting_ratio": report.waiting_ratio,
        "stragglers": named,
    }


def _steps_table(stats: CaptureStats) -> Table:
    steps = stats.all_steps
    times = own_categories_ps(steps, stats.hosts)
    own = own_work_ps(steps, times)
    names = {host.index: host.host for host in stats.hosts}
    rows: list[Sequence[Cell]] = [
        (
            int(steps.step_numbers[steps.row_step[row]]),
            steps.row_name(row),
            names[int(steps.host_index[row])],
            int(steps.core_id[row]),
            int(steps.begin_ps[row]) / 1e6,
            int(steps.duration_ps[row]) / 1e6,
            int(own[row]) / 1e6,
            *(int(time) / 1e6 for time in times[row]),
            _bottleneck(times[row]),
        )
        for row in range(len(steps.row_step))
    ]
    return Table(
        columns=(
            Column("step", "Step", "integer"),
            Column("step_name", "Step name", "string"),
            Column("host", "Host", "string"),
            Column("core_id", "Core", "integer"),
            Column("begin_us", "Begin", "number", "us"),
            Column("duration_us", "Step time", "number", "us"),
            Column("own_work_us", "Own work", "number", "us"),
            *(Column(name, label, "number", "us") for name, label in _CATEGORY_COLUMNS),
            Column("bottleneck", "Longest part", "string"),
        ),
        rows=rows,
    )


def _hosts_table(works: list[HostWork], report: StragglerReport) -> Table:
    late = {straggler.host: straggler.lateness_ps / 1e6 for straggler in report.stragglers}
    slowest = [step.host for step in report.steps if step is not None]

    def typical(values: Int64s, work: HostWork) -> float | None:
        there = values[work.total_ps >= 0]
        return float(np.median(there)) / 1e6 if len(there) else None

    rows = [
        (
            work.host,
            int((work.total_ps >= 0).sum()),
            typical(work.total_ps, work),
            typical(work.total_ps - work.waiting_ps, work),
            typical(work.waiting_ps, work),
            *(typical(work.parts_ps[part], work) for part in _PARTS),
            slowest.count(work.host),
            work.host in late,
        )
        for work in works
    ]
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


def _bottleneck(times: Int64s) -> str:
    longest = times.max()
    return max(name for name, time in zip(CATEGORY_NAMES, times, strict=True) if time == longest)


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The database that XProf's pod viewer reads."""
    del parameters
    return {
        "podStatsSequence": {"podStatsMap": _reference_steps(stats)},
        "diagnostics": {"info": [], "warnings": list(step_warnings(stats.steps)), "errors": []},
        "stepBreakdownEvents": [
            {"id": index + 1, "name": name} for index, name in enumerate(CATEGORY_NAMES)
        ],
        "deviceType": stats.run_environment.device_type,
    }


def _reference_steps(stats: CaptureStats) -> list[dict[str, Any]]:
    steps = stats.steps
    times = reference_categories_ps(steps)
    hostnames = {host.index: host.hostname for host in stats.hosts}
    offsets = steps.row_offsets.tolist()
    shown = []
    for index, number in enumerate(steps.step_numbers.tolist()):
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
                "bottleneck": _bottleneck(times[row]),
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
