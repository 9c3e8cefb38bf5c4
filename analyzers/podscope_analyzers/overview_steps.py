"""The steps as our own overview shows them: all of them, incomplete ones marked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.result import Cell, Column, Table
from podscope_analyzers.step_categories import CATEGORY_NAMES, Int64s, own_categories_ps
from podscope_analyzers.steps import StepDatabase

CATEGORY_IDS = (
    "device_compute",
    "device_to_device",
    "collectives",
    "host_compute",
    "kernel_launch",
    "input",
    "output",
    "compilation",
    "other",
)


def is_complete(stats: CaptureStats) -> npt.NDArray[np.bool_]:
    """Which of the steps every host has recorded from begin to end, shape (s,)."""
    return stats.is_complete


def complete_steps(stats: CaptureStats) -> StepDatabase:
    """The steps that every host has recorded from begin to end."""
    return stats.complete_steps


def longest_rows(steps: StepDatabase) -> Int64s:
    """Of every step, the row of the core with the longest step time, shape (s,); -1 if none."""
    rows = np.flatnonzero(~steps.is_sparse_core)
    # Stable and reversed: of equally long ones the first core is assigned last.
    ordered = rows[np.argsort(-steps.duration_ps[rows], kind="stable")][::-1]
    longest = np.full(len(steps), -1, np.int64)
    longest[steps.row_step[ordered]] = ordered
    return longest


def overview_steps_table(stats: CaptureStats) -> Table:
    """One row per step: the core with the longest time, and what that went into."""
    steps = stats.all_steps
    times = own_categories_ps(steps, stats.hosts)
    complete = is_complete(stats)
    names = {host.index: host.host for host in stats.hosts}
    rows: list[Sequence[Cell]] = [
        (
            int(steps.step_numbers[step]),
            steps.row_name(row),
            int(steps.begin_ps[row]) / 1e6,
            int(steps.duration_ps[row]) / 1e6,
            *(int(time) / 1e6 for time in times[row]),
            names[int(steps.host_index[row])],
            bool(complete[step]),
        )
        for step, row in enumerate(longest_rows(steps).tolist())
        if row >= 0
    ]
    return Table(
        columns=(
            Column("step", "Step", "integer"),
            Column("step_name", "Step name", "string"),
            Column("begin_us", "Begin", "number", "us"),
            Column("duration_us", "Step time", "number", "us"),
            *(
                Column(f"{name}_us", label, "number", "us")
                for name, label in zip(CATEGORY_IDS, CATEGORY_NAMES, strict=True)
            ),
            Column("host", "Host with the longest step", "string"),
            Column("is_complete", "Recorded from begin to end", "boolean"),
        ),
        rows=rows,
    )


def step_shares(stats: CaptureStats) -> list[dict[str, Any]]:
    """Share of every category in the time of all cores of all hosts; empty without steps.

    Of complete steps, as all averages, where there are any.
    """
    steps = complete_steps(stats)
    return shares(own_categories_ps(steps if len(steps) else stats.all_steps, stats.hosts))


def shares(times: Int64s) -> list[dict[str, Any]]:
    """Share of every category in the sum of all; empty when that is nothing."""
    total = int(times.sum())
    if not total:
        return []
    return [
        {"category": name, "ratio": int(time) / total}
        for name, time in zip(CATEGORY_IDS, times.sum(axis=0).tolist(), strict=True)
    ]
