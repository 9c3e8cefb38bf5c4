"""What is wanted, kept and known of a line whose events are not all decoded."""

from dataclasses import dataclass

import numpy as np

from podscope_analyzers.xspace.columns import Bools, Columns, Int32s, Int64s, UInt8s
from podscope_analyzers.xspace.wire import OuterEvents


@dataclass(frozen=True)
class Sieve:
    """Which events of a plane's lines say something themselves.

    Attributes:
        rows: 1 for the rows of the event metadata whose events are wanted, shape (m + 1,).
        stats: Names of stats whose events are wanted; decoded with them.
        aside: Name of the stat that takes an event out of the nesting of spans.
    """

    rows: UInt8s
    stats: frozenset[str]
    aside: str


@dataclass(frozen=True)
class Survey:
    """What is known of a line's events without their columns.

    Attributes:
        first_ps: Earliest start of the events of each row of the event metadata, (m + 1,).
        last_ps: Latest end, before the first start for a row without events, shape (m + 1,).
        asked: Stats that were looked for.
        stats: Those of them that an event has.
        is_natural: Whether the events are in natural order (see ``kernels.natural_order``).
    """

    first_ps: Int64s
    last_ps: Int64s
    asked: frozenset[str]
    stats: frozenset[str]
    is_natural: bool

    @property
    def rows(self) -> Int64s:
        """Rows of the event metadata that have events, ascending."""
        return np.flatnonzero(self.first_ps <= self.last_ps)

    def has_none(self, stats: frozenset[str]) -> bool:
        """Whether no event has any of these stats, as far as they were looked for."""
        return stats <= self.asked and not stats & self.stats


@dataclass(frozen=True)
class Sifted:
    """The events of a line that a sieve kept, and how they nest, all of shape (k,).

    Attributes:
        events: Their indices in the line, ascending.
        parent: Which of them is the innermost around each, -1 for none.
        between: Events of the line between the two that are not among them.
        apart: Which take no part in the nesting.
        columns: Their columns.
        outer: Of the other events, those right below a kept one, and those without duration
            below any; what else is within a kept event is within these.
        reach_ps: Earliest start and latest end of the other events; None where there are none.
        is_nested: Whether no event of the line comes before one that it lies in, and none begins
            within a kept one and ends after it.
    """

    events: Int32s
    parent: Int32s
    between: Int32s
    apart: Bools
    columns: Columns
    outer: OuterEvents
    reach_ps: tuple[int, int] | None
    is_nested: bool
