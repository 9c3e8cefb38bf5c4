"""Sets of time spans: their union, and how much of a window they cover."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Union:
    """Disjoint spans in order of time.

    Attributes:
        start_ps: Shape (n,), ascending.
        end_ps: Shape (n,), each at least its start and below the next start.
    """

    start_ps: Int64s
    end_ps: Int64s

    @property
    def total_ps(self) -> int:
        """Time that at least one span covers."""
        return int((self.end_ps - self.start_ps).sum())

    def covered_ps(self, begin_ps: Int64s, finish_ps: Int64s) -> Int64s:
        """How much of each window the spans cover.

        Args:
            begin_ps: Shape (m,).
            finish_ps: Shape (m,), each at least its begin.

        Returns:
            Picoseconds, shape (m,).
        """
        return self._before(finish_ps) - self._before(begin_ps)

    def _before(self, time_ps: Int64s) -> Int64s:
        if not len(self.start_ps):
            return np.zeros(np.shape(time_ps), dtype=np.int64)
        lengths = self.end_ps - self.start_ps
        done = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        index = np.searchsorted(self.start_ps, time_ps, side="right")
        inside = np.clip(time_ps - self.start_ps[index - 1], 0, lengths[index - 1])
        return np.where(index == 0, 0, done[np.maximum(index - 1, 0)] + inside)


def union(start_ps: Int64s, end_ps: Int64s) -> Union:
    """The union of spans, which may overlap and be in any order.

    Args:
        start_ps: Shape (n,).
        end_ps: Shape (n,), each at least its start.
    """
    if not len(start_ps):
        empty = np.zeros(0, dtype=np.int64)
        return Union(empty, empty)
    order = np.argsort(start_ps, kind="stable")
    start, end = start_ps[order], end_ps[order]
    # A long span may outlive later, shorter ones: compare with the latest end so far.
    latest = np.maximum.accumulate(end)
    opens = np.concatenate([[True], start[1:] > latest[:-1]])
    first = np.flatnonzero(opens)
    last = np.concatenate([first[1:] - 1, [len(start) - 1]])
    return Union(start[first], latest[last])


def join(*unions: Union) -> Union:
    """The union of unions."""
    return union(
        np.concatenate([u.start_ps for u in unions]),
        np.concatenate([u.end_ps for u in unions]),
    )
