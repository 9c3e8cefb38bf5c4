"""The table of times by step that tools list when they are asked for it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from podscope_analyzers.errors import ParameterError
from podscope_analyzers.result import Cell, Column, Table
from podscope_analyzers.step_times import StepTimes

if TYPE_CHECKING:
    from podscope_analyzers.capture_stats import CaptureStats

PARAMETER: Final = "step_times"
STEP: Final = Column("step", "Step", "integer")
SELF_TIME: Final = Column("self_time_us", "Self time, of a core or host", "number", "us")


@dataclass(frozen=True)
class Series:
    """Times of one place, and what is told of them.

    Attributes:
        times: Of ``numbered`` steps.
        on_device: Whether they are those of devices' cores, else of hosts.
        cells_of: What an operation's time counts to: the cells of each row that has it.
    """

    times: StepTimes
    on_device: bool
    cells_of: Callable[[int], Iterable[tuple[Cell, ...]]]


def wants_step_times(parameters: Mapping[str, str]) -> bool:
    """Whether the table is asked for.

    Raises:
        ParameterError: the parameter is neither 0 nor 1.
    """
    wanted = parameters.get(PARAMETER, "").strip()
    if wanted not in ("", "0", "1"):
        msg = f"{PARAMETER} is 0 or 1, not '{wanted}'"
        raise ParameterError(msg)
    return wanted == "1"


def step_table(stats: "CaptureStats", columns: Sequence[Column], series: Iterable[Series]) -> Table:
    """One row per step and what is told apart: the time of a core, or of a host.

    Times that are told by the same cells are added up.

    Args:
        stats: Of the capture.
        columns: Of what tells them apart; the step comes before them, the time after.
        series: Of every place.
    """
    # Times are kept of complete steps; these have their numbers among all.
    numbers = stats.all_steps.step_numbers[stats.is_complete].tolist()
    rows: list[list[Cell]] = []
    for one in series:
        cores = stats.run_environment.device_core_count if one.on_device else 0
        count = cores or max(1, len(stats.hosts))
        told: dict[int, list[tuple[Cell, ...]]] = {}
        sums: dict[tuple[int, tuple[Cell, ...]], int] = {}
        for op, step, self_ps in zip(*(part.tolist() for part in one.times.table()), strict=True):
            if op not in told:
                told[op] = list(one.cells_of(op))
            for cells in told[op]:
                sums[step, cells] = sums.get((step, cells), 0) + self_ps
        rows += (
            [numbers[step], *cells, self_ps / count / 1e6]
            for (step, cells), self_ps in sums.items()
        )
    return Table((STEP, *columns, SELF_TIME), rows)
