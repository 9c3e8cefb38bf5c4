"""How much every step and every core waits for input: series, ranges and who waits longest."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.overview_steps import CATEGORY_IDS, complete_steps, longest_rows
from podscope_analyzers.result import Cell, Column, Table
from podscope_analyzers.sorted_values import median
from podscope_analyzers.step_categories import (
    CATEGORY_NAMES,
    INPUT,
    Int64s,
    own_categories_ps,
)
from podscope_analyzers.steps import StepDatabase

Float64s = npt.NDArray[np.float64]

MAX_CORES: Final = 2_000
"""Rows of ``cores`` in one result, those that wait longest."""

# From here on the core that waits longest is worth a word beside the typical one.
_UNEVEN_RATIO: Final = 0.05


@dataclass(frozen=True)
class CoreInput:
    """What one core does in the steps; shares are 0 to 1.

    Attributes:
        core: Its name; of a host without cores of their own, empty.
        deviation_ms: Root of the sample variance of its step times; 0 for one step.
    """

    host: str
    core_id: int
    core: str
    steps: int
    step_ms: float
    deviation_ms: float
    least_step_ms: float
    most_step_ms: float
    ratio: float
    least_ratio: float
    most_ratio: float


@dataclass(frozen=True)
class InputShares:
    """Shares of input of complete steps, SparseCores aside.

    Attributes:
        series: One row per step.
        step_ratio: Of every step, the mean over the cores, shape (s,).
        cores: All of them, the one that waits longest first.
    """

    series: Table
    step_ratio: Float64s
    cores: tuple[CoreInput, ...]

    def cores_table(self) -> Table:
        """One row per core, those that wait longest."""
        return Table(_CORE_COLUMNS, [(*vars(core).values(),) for core in self.cores[:MAX_CORES]])

    def evidence(self) -> tuple[str, ...]:
        """Which core waits longest, where that is more than the typical one does."""
        if len(self.cores) < 2:
            return ()
        typical = median([core.ratio for core in self.cores])
        worst = self.cores[0]
        if worst.ratio - typical < _UNEVEN_RATIO:
            return ()
        name = f"{worst.core} of {worst.host}" if worst.core else worst.host
        what = "core" if worst.core else "host"
        return (
            f"{name} waits for input in {worst.ratio:.1%} of its step time, the median {what} in "
            f"{typical:.1%}.",
        )


def input_shares(stats: CaptureStats) -> InputShares:
    """The shares of the steps that every host has recorded from begin to end."""
    steps = complete_steps(stats)
    times = own_categories_ps(steps, stats.hosts)
    rows = np.flatnonzero(~steps.is_sparse_core & (steps.duration_ps > 0))
    share = times[rows, INPUT] / steps.duration_ps[rows]
    mean, counted = _by_step(steps, rows, share)
    return InputShares(
        series=_series(stats, steps, times, rows, share),
        step_ratio=mean[counted > 0],
        cores=_cores(stats, steps, rows, share),
    )


def _core_name(stats: CaptureStats, core: int) -> str:
    # CPU and GPU hosts have one row a step, which stands for the host.
    return stats.cores[core].label if core in stats.cores else ""


def _by_step(steps: StepDatabase, rows: Int64s, share: Float64s) -> tuple[Float64s, Int64s]:
    """Mean share of every step, and of how many cores it is."""
    step = steps.row_step[rows]
    count = np.bincount(step, minlength=len(steps))
    return np.bincount(step, share, minlength=len(steps)) / np.maximum(count, 1), count


def _series(
    stats: CaptureStats, steps: StepDatabase, times: Int64s, rows: Int64s, share: Float64s
) -> Table:
    step = steps.row_step[rows]
    mean, _ = _by_step(steps, rows, share)
    least, most = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    np.minimum.at(least, step, share)
    np.maximum.at(most, step, share)
    waiting = np.full(len(steps), -1, np.int64)
    # Stable and reversed: of equal shares the first core is assigned last.
    ordered = np.argsort(-share, kind="stable")[::-1]
    waiting[step[ordered]] = rows[ordered]
    hosts = {host.index: host.host for host in stats.hosts}
    found: list[tuple[Cell, ...]] = [
        (
            int(steps.step_numbers[at]),
            hosts[int(steps.host_index[row])],
            int(steps.duration_ps[row]) / 1e9,
            *(int(part) / 1e9 for part in times[row]),
            float(mean[at]),
            float(least[at]),
            float(most[at]),
            hosts[int(steps.host_index[waiting[at]])],
            _core_name(stats, int(steps.core_id[waiting[at]])),
        )
        for at, row in enumerate(longest_rows(steps).tolist())
        if row >= 0 and waiting[at] >= 0
    ]
    return Table(
        columns=(
            Column("step", "Step", "integer"),
            Column("host", "Host with the longest step", "string"),
            Column("duration_ms", "Its step time", "number", "ms"),
            *(
                Column(f"{name}_ms", label, "number", "ms")
                for name, label in zip(CATEGORY_IDS, CATEGORY_NAMES, strict=True)
            ),
            Column("input_ratio", "Waiting for input, mean of the cores", "number", "ratio"),
            Column("least_input_ratio", "The core that waits least", "number", "ratio"),
            Column("most_input_ratio", "The core that waits longest", "number", "ratio"),
            Column("input_host", "Host that waits longest", "string"),
            Column("input_core", "Core that waits longest", "string"),
        ),
        rows=found,
    )


def _cores(
    stats: CaptureStats, steps: StepDatabase, rows: Int64s, share: Float64s
) -> tuple[CoreInput, ...]:
    if not len(rows):
        return ()
    ids, place = np.unique(steps.core_id[rows], return_inverse=True)
    order = np.argsort(place, kind="stable")
    begin = np.searchsorted(place[order], np.arange(len(ids)))
    count = np.diff(np.append(begin, len(order)))
    step_ms = steps.duration_ps[rows][order] / 1e9
    ratio = share[order]
    total, waited = np.add.reduceat(step_ms, begin), np.add.reduceat(step_ms * ratio, begin)
    middle = total / count
    squares = np.add.reduceat((step_ms - np.repeat(middle, count)) ** 2, begin)
    hosts = {host.index: host.host for host in stats.hosts}
    owner = steps.host_index[rows][order][begin]
    columns = zip(
        [hosts[index] for index in owner.tolist()],
        ids.tolist(),
        [_core_name(stats, core) for core in ids.tolist()],
        count.tolist(),
        middle.tolist(),
        np.sqrt(squares / np.maximum(count - 1, 1)).tolist(),
        np.minimum.reduceat(step_ms, begin).tolist(),
        np.maximum.reduceat(step_ms, begin).tolist(),
        (waited / total).tolist(),
        np.minimum.reduceat(ratio, begin).tolist(),
        np.maximum.reduceat(ratio, begin).tolist(),
        strict=True,
    )
    found = [CoreInput(*cells) for cells in columns]
    return tuple(sorted(found, key=lambda core: (-core.ratio, core.host, core.core_id)))


_CORE_COLUMNS: Final = (
    Column("host", "Host", "string"),
    Column("core_id", "Core id", "integer"),
    Column("core", "Core", "string"),
    Column("step_count", "Steps", "integer"),
    Column("step_time_ms", "Step time, mean", "number", "ms"),
    Column("step_time_deviation_ms", "Standard deviation", "number", "ms"),
    Column("least_step_time_ms", "Shortest step", "number", "ms"),
    Column("most_step_time_ms", "Longest step", "number", "ms"),
    Column("input_ratio", "Waiting for input", "number", "ratio"),
    Column("least_input_ratio", "Step with the least", "number", "ratio"),
    Column("most_input_ratio", "Step with the most", "number", "ratio"),
)
