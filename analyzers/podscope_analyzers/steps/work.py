"""What the operations of every step did, summed: the programs of a step as one."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

# Their work is that of the operations that they call, which count themselves.
CALLERS: Final = frozenset({"call", "conditional", "while", "megacore fusion"})

COSTS: Final = (
    "flops",
    "model_flops",
    "bytes_accessed",
    "own_flops",
    "own_model_flops",
    "own_bytes_accessed",
)
"""Per operation, as in the database of operations."""

MEMORIES: Final = ((1, 1), (1, 2), (1, 0), (2, 1), (2, 2), (3, 1), (3, 2), (0, 0))
"""Memory space and kind of access of the columns behind the costs; the last is all others."""

WIDTH: Final = len(COSTS) + len(MEMORIES)
NOT_FEEDS, FEEDS = 0, 1


def is_feed(category: str) -> bool:
    """Whether operations of a category hand data to or from the host."""
    return "infeed" in category or "outfeed" in category


def memory_column(space: int, access: int) -> int:
    """The column of a memory space and kind of access."""
    key = (space, access)
    return len(COSTS) + (MEMORIES.index(key) if key in MEMORIES else len(MEMORIES) - 1)


@dataclass(frozen=True)
class StepWork:
    """Work of the TensorCores' operations in every step.

    Loops and conditionals are left out: what they call counts itself. Of a thousand steps these
    are a few hundred kilobytes, however many operations ran.

    Attributes:
        values: By step, ``NOT_FEEDS`` or ``FEEDS``, and column of ``COSTS`` and ``MEMORIES``,
            shape (s, 2, w).
        time_ps: All the time looked at, summed over cores, shape (s,).
        feeds_time_ps: Time of infeeds and outfeeds in it, shape (s,).
    """

    values: NDArray[np.float64]
    time_ps: Int64s
    feeds_time_ps: Int64s

    @classmethod
    def zeros(cls, steps: int) -> "StepWork":
        """Steps in which nothing was done."""
        nothing = np.zeros(steps, np.int64)
        return cls(np.zeros((steps, 2, WIDTH)), nothing, nothing.copy())

    def take(self, steps: NDArray[Any]) -> "StepWork":
        """That of some steps."""
        return StepWork(self.values[steps], self.time_ps[steps], self.feeds_time_ps[steps])

    def plus(self, other: "StepWork") -> "StepWork":
        """The same steps of two hosts together."""
        return StepWork(
            self.values + other.values,
            self.time_ps + other.time_ps,
            self.feeds_time_ps + other.feeds_time_ps,
        )

    def total(self) -> "StepWork":
        """All steps as one."""
        return StepWork(
            self.values.sum(axis=0, keepdims=True),
            self.time_ps.sum(keepdims=True),
            self.feeds_time_ps.sum(keepdims=True),
        )

    def to_state(self) -> dict[str, Any]:
        """The arrays by name."""
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "StepWork":
        """The work that ``to_state`` wrote."""
        return cls(**state)
