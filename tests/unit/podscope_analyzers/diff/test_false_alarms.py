"""Operations that nobody changed are hardly ever called so, and those that changed are."""

from itertools import pairwise

import numpy as np
import pytest

from podscope_analyzers.diff.keys import COMPARED
from podscope_analyzers.diff.rows import Divisor, compare_rows
from podscope_analyzers.result import Column, Table
from podscope_analyzers.step_times import StepTimes

OPS, STEPS, CAPTURES = 40, 12, 101
NOISE, COMMON_NOISE = 0.03, 0.02
_COLUMNS = (
    Column("place", "Place", "string"),
    Column("program_id", "Program", "string"),
    Column("hlo_op_name", "Name", "string"),
    Column("framework_name", "Framework name", "string"),
    Column("category", "Category", "string"),
    Column("occurrences", "Occurrences", "integer"),
    Column("total_self_time_us", "Self time", "number", "us"),
    Column("step_spread_ratio", "Spread", "number", "ratio"),
    Column("independent_steps", "Independent steps", "number"),
)


def _capture(rng: np.random.Generator, slower: float = 1.0) -> Table:
    """Instructions whose times vary by themselves, and all together, from step to step."""
    mean_ps = np.geomspace(1e7, 1e9, OPS)
    mean_ps[0] *= slower
    own = 1 + NOISE * rng.standard_normal((OPS, STEPS))
    together = 1 + COMMON_NOISE * rng.standard_normal(STEPS)
    self_ps = (mean_ps[:, None] * own * together).astype(np.int64)
    op, step = (part.ravel() for part in np.indices((OPS, STEPS)))
    times = StepTimes.summed(op, step, self_ps.ravel()).numbered(np.arange(STEPS))
    rows = [
        ["device", "1", f"fusion.{at}", f"layer/{at}", "fusion", STEPS, total / 1e6,
         spread.ratio, spread.steps]
        for at, (total, spread) in enumerate(
            zip(self_ps.sum(axis=1).tolist(), times.spreads(OPS), strict=True)
        )
        if spread is not None
    ]  # fmt: skip
    assert len(rows) == OPS
    return Table(_COLUMNS, rows)


def _significant(base: Table, other: Table) -> set[str]:
    (compared,) = COMPARED["hlo_stats"].tables
    divisor = Divisor(steps=STEPS, has_devices=True)
    found = compare_rows(compared, [base, other], [divisor, divisor])
    ids = [column.id for column in found.table.columns]
    name, verdict = ids.index("hlo_op_name"), ids.index("significance")
    assert {row[verdict] for row in found.table.rows} <= {"significant", "within_noise"}
    return {str(row[name]) for row in found.table.rows if row[verdict] == "significant"}


def test_of_operations_that_nobody_changed_none_is_significant_in_97_of_100_comparisons() -> None:
    rng = np.random.default_rng(11)
    captures = [_capture(rng) for _ in range(CAPTURES)]
    alarms = [len(_significant(base, other)) for base, other in pairwise(captures)]
    assert alarms.count(0) >= 97
    # By row it is far less than the few in a hundred that would send people searching.
    assert sum(alarms) <= 0.005 * OPS * len(alarms)


@pytest.mark.parametrize("slower", [1.25, 0.75])
def test_an_operation_that_changed_by_more_than_its_noise_is_found_and_no_other(
    slower: float,
) -> None:
    rng = np.random.default_rng(12)
    found = [_significant(_capture(rng), _capture(rng, slower)) for _ in range(20)]
    assert sum(one == {"fusion.0"} for one in found) >= 19
