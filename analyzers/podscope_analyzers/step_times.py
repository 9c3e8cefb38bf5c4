"""Self time of operations in every step, which tells a change from chance.

What is kept is bounded: of a long capture the steps in its middle, and the longest operations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels.factorise import factorise
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.spread import Spread, spreads_of

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

MAX_CELLS: Final = 8192
"""Pairs of a step and an operation that are kept of one host's database: 200 kB, a fifth packed."""
MIN_KEPT_STEPS: Final = 32
"""As many steps tell a mean's error well enough: then more operations are worth more."""
MAX_STEPS: Final = 256

# So many pairs per event are counted in an array of all pairs, which is faster than to sort them.
_DENSE_FACTOR: Final = 4
_FROM: Final = np.iinfo(np.int64).min
_TO: Final = np.iinfo(np.int64).max
# Of an operation's parts, those that are known must make up this share of its time.
_MIN_SHARE: Final = 0.9


def _ints() -> Int64s:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class StepTimes:
    """Self times by operation and step, one row each; an absent pair within the range is zero.

    Attributes:
        op: Row of the operation in its database, shape (k,).
        step: Group id; of a capture the number of the common step, shape (k,).
        self_ps: Summed over devices or threads, shape (k,).
        first: First step that is known; steps outside of the range were left out.
        last: Last step that is known.
    """

    op: Int64s = field(default_factory=_ints)
    step: Int64s = field(default_factory=_ints)
    self_ps: Int64s = field(default_factory=_ints)
    first: int = _FROM
    last: int = _TO

    @classmethod
    def of(cls, op: NDArray[Any], step: Int64s, self_ps: Int64s) -> "StepTimes":
        """Sums of events that are of an operation and of a step; a negative step is none.

        Args:
            op: Row of every event's operation, shape (n,).
            step: Group id of every event, -1 for none, shape (n,).
            self_ps: Shape (n,).
        """
        kept = np.flatnonzero((step >= 0) & (op >= 0))
        return cls.summed(op[kept].astype(np.int64), step[kept], self_ps[kept])

    @classmethod
    def summed(
        cls, op: Int64s, step: Int64s, self_ps: Int64s, first: int = _FROM, last: int = _TO
    ) -> "StepTimes":
        """Sums of the rows of one operation and step; of what is known of the steps given.

        Args:
            op: Shape (n,).
            step: Shape (n,).
            self_ps: Shape (n,).
            first: First step that is known.
            last: Last step that is known.
        """
        row, ops = factorise(op)
        column, steps = factorise(step)
        width = max(len(steps), 1)
        cell = row * np.int64(width) + column
        # A server has a step for each request, and an operation in few of them: all pairs would
        # be far more than there are events.
        if len(ops) * width > _DENSE_FACTOR * len(cell):
            cells, cell = np.unique(cell, return_inverse=True)
        else:
            cells = np.arange(len(ops) * width)
        total = np.zeros(len(cells), np.int64)
        np.add.at(total, cell, self_ps)
        kept = np.flatnonzero(total)
        cells = cells[kept]
        return cls(ops[cells // width], steps[cells % width], total[kept], first, last)

    @classmethod
    def combine(cls, parts: Sequence["StepTimes"], places: Sequence[NDArray[Any]]) -> "StepTimes":
        """Sums of several databases, in the steps that all of them know.

        Args:
            parts: Of the databases; those without any pair know nothing.
            places: New row of every row of each database; -1 leaves it out.
        """
        known = [(part, place) for part, place in zip(parts, places, strict=True) if len(part.op)]
        if not known:
            return cls()
        first = max(part.first for part, _ in known)
        last = min(part.last for part, _ in known)
        rows = [
            np.flatnonzero((part.step >= first) & (part.step <= last) & (place[part.op] >= 0))
            for part, place in known
        ]
        op, step, self_ps = (
            np.concatenate(arrays)
            for arrays in zip(
                *(
                    (place[part.op[at]].astype(np.int64), part.step[at], part.self_ps[at])
                    for (part, place), at in zip(known, rows, strict=True)
                ),
                strict=True,
            )
        )
        return cls.summed(op, step, self_ps, first, last)

    def bounded(self) -> "StepTimes":
        """At most ``MAX_CELLS`` pairs: of few operations more steps, of many the longest."""
        steps, all_ops = distinct(self.step), distinct(self.op)
        most_steps = min(max(MAX_CELLS // max(len(all_ops), 1), MIN_KEPT_STEPS), MAX_STEPS)
        first, last = self.first, self.last
        if len(steps) > most_steps:
            at = (len(steps) - most_steps) // 2
            first, last = int(steps[at]), int(steps[at + most_steps - 1])
        rows = np.flatnonzero((self.step >= first) & (self.step <= last))
        ops, place = np.unique(self.op[rows], return_inverse=True)
        most = MAX_CELLS // max(min(len(steps), most_steps), 1)
        if len(ops) > most:
            total = np.zeros(len(ops), np.int64)
            np.add.at(total, place, self.self_ps[rows])
            is_long = np.zeros(len(ops), np.bool_)
            is_long[np.argsort(-total, kind="stable")[:most]] = True
            rows = rows[is_long[place]]
        return StepTimes(self.op[rows], self.step[rows], self.self_ps[rows], first, last)

    def numbered(self, steps: Int64s) -> "StepTimes":
        """Those of some steps, numbered anew from 0.

        Args:
            steps: Ids of the wanted ones, ascending, shape (s,).
        """
        known = np.flatnonzero((steps >= self.first) & (steps <= self.last))
        if not len(known) or not len(self.op):
            return StepTimes()
        at = np.minimum(np.searchsorted(steps, self.step), len(steps) - 1)
        rows = np.flatnonzero(steps[at] == self.step)
        return StepTimes(self.op[rows], at[rows], self.self_ps[rows], int(known[0]), int(known[-1]))

    @cached_property
    def _series(self) -> tuple[Int64s, Float64s]:
        """The operations that have any time, ascending, and their times by step, (k, s)."""
        ops, row = np.unique(self.op, return_inverse=True)
        if self.last == _TO or self.last < self.first:
            return ops[:0], np.zeros((0, 0))
        series = np.zeros((len(ops), self.last - self.first + 1))
        series[row, self.step - self.first] = self.self_ps
        return ops, series

    def spreads(self, count: int) -> list[Spread | None]:
        """How far the time of every operation varies from step to step; None where unknown.

        Only of ``numbered`` steps.

        Args:
            count: Rows of the database.
        """
        found: list[Spread | None] = [None] * count
        ops, series = self._series
        for at, spread in zip(ops.tolist(), spreads_of(series), strict=True):
            found[at] = spread
        return found

    def spread_together(self, ops: NDArray[Any], self_ps: Int64s) -> Spread | None:
        """How far the time of some operations together varies; None where unknown.

        Args:
            ops: Their rows, shape (m,).
            self_ps: Of each in all steps, shape (m,).
        """
        known = self._known_of(ops, self_ps)
        if known is None:
            return None
        _, series = self._series
        (spread,) = spreads_of(series[known].sum(axis=0)[None])
        return spread

    def knows(self, ops: NDArray[Any], self_ps: Int64s) -> bool:
        """Whether the times of some operations together are known, but for a small share.

        Only of ``numbered`` steps.

        Args:
            ops: Their rows, shape (m,).
            self_ps: Of each in all steps, shape (m,).
        """
        return self._known_of(ops, self_ps) is not None

    def _known_of(self, ops: NDArray[Any], self_ps: Int64s) -> Int64s | None:
        """Places in the series of those that are known; None where too much is not."""
        known, _ = self._series
        if not len(known):
            return None
        at = np.minimum(np.searchsorted(known, ops), len(known) - 1)
        is_known = known[at] == ops
        if self_ps[is_known].sum() < _MIN_SHARE * self_ps.sum():
            return None
        found: Int64s = at[is_known]
        return found

    def table(self) -> tuple[Int64s, Int64s, Int64s]:
        """Every known operation in every known step, also those in which it took no time.

        Only of ``numbered`` steps.

        Returns:
            Row of the operation, step, and picoseconds, shape (k,) each, by step.
        """
        ops, series = self._series
        step, op = (part.ravel() for part in np.indices(series.T.shape))
        return ops[op], step + self.first, series.T.ravel().astype(np.int64)

    def to_state(self) -> dict[str, Any]:
        """The arrays and the range."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The times that ``to_state`` wrote."""
        return cls(**state)
