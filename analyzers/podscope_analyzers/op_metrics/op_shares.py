"""Self time by operation and by type: what pie charts of operations show."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.grouping import group_rows

MAX_SHARES: Final = 20
"""Shares named of each kind; the rest is one more."""

NAMELESS: Final = "Unknown"
"""What operations without a type are called."""

Grouping = Literal["type", "operation"]
_COLUMNS: Final[dict[Grouping, str]] = {"type": "category", "operation": "name"}


@dataclass(frozen=True)
class OpShare:
    """One slice.

    Attributes:
        name: Of the operation or type; None for all that have no slice of their own.
        count: Operations in it.
        ratio: Share of the self time of all.
    """

    grouped_by: Grouping
    name: str | None
    count: int
    self_time_ps: int
    ratio: float


def op_shares(database: OpDatabase, grouped_by: Grouping, *, with_idle: bool) -> list[OpShare]:
    """Shares of the self time of all operations at the top, the largest first.

    Args:
        database: Of a place.
        grouped_by: Whether operations of one name, or of one type, are added up.
        with_idle: Whether the time without operations has a share.
    """
    top = database.top_count
    rows = np.arange(top) if with_idle else np.flatnonzero(~database.is_idle[:top])
    codes = database.top(_COLUMNS[grouped_by])[rows].astype(np.int64)
    group, first = group_rows(codes[None, :])
    sums = np.zeros(len(first), np.int64)
    np.add.at(sums, group, database.top("self_time_ps")[rows])
    counts = np.bincount(group, minlength=len(first))
    total = int(sums.sum())
    if total <= 0:
        return []
    names = [database.texts[int(code)] for code in codes[first]]
    order = sorted(range(len(names)), key=lambda at: (-int(sums[at]), names[at]))

    def share(name: str | None, members: list[int]) -> OpShare:
        own_ps = int(sums[members].sum())
        return OpShare(grouped_by, name, int(counts[members].sum()), own_ps, own_ps / total)

    shares = [share(names[at] or NAMELESS, [at]) for at in order[:MAX_SHARES]]
    rest = order[MAX_SHARES:]
    return [*shares, share(None, rest)] if rest else shares
