"""Spreads a step's own compute time over its executions, to the picosecond."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from podscope_agent.simulator.program import Op, Program
from podscope_agent.simulator.timeline import standard_normal

VARIANTS = 8
"""Different spreads of the time; a step and core choose one."""
_SPREAD = 0.05


@lru_cache(maxsize=16)
def _cumulative(program: Program, seed: int, variant: int) -> list[int]:
    """Running sums of the slots' weights, each disturbed by about 5 %."""
    weights = (
        max(1, round(slot.weight_ps * (1 + _SPREAD * standard_normal(seed, 5, variant, i % 997))))
        for i, slot in enumerate(program.compute_slots)
    )
    return [0, *accumulate(weights)]


def compute_bounds(program: Program, seed: int, variant: int, compute_ps: int) -> list[int]:
    """Boundaries between the compute slots, picoseconds after the start of the first.

    The last is exactly ``compute_ps``.
    """
    cumulative = _cumulative(program, seed, variant % VARIANTS)
    total = cumulative[-1]
    return [compute_ps * value // total for value in cumulative]


@dataclass(frozen=True)
class Execution:
    """One op that ran.

    Attributes:
        op: What ran.
        start_ps: After the step's start.
        duration_ps: How long.
    """

    op: Op
    start_ps: int
    duration_ps: int


def after_compute(
    program: Program, arrival_ps: int, collective_end_ps: tuple[int, ...]
) -> Iterator[Execution]:
    """The all-reduces and the optimizer's ops, from the end of the own compute on."""
    clock = arrival_ps
    for op, end in zip(program.collectives, collective_end_ps, strict=True):
        yield Execution(op, clock, end - clock)
        clock = end
    for op in program.epilogue:
        yield Execution(op, clock, op.weight_ps)
        clock += op.weight_ps
