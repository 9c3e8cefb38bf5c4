"""How long TPU chips were active, and how long they could have been."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels import own_time_of_rows, union
from podscope_analyzers.plane_views import OpPlane
from podscope_analyzers.planes import SPARSE_CORE_MODULES, SPARSE_CORE_OPS, XLA_MODULES, XLA_OPS
from podscope_analyzers.xspace import Columns

Int64s = NDArray[np.int64]

OFF_DUTY: Final = frozenset(
    {
        "infeed",
        "outfeed",
        "host send",
        "host send-done",
        "host recv",
        "host recv-done",
        "async-done",
        "megacore fusion",
    }
)
_COST_STATS: Final = ("flops", "model_flops")


@dataclass(frozen=True)
class Activity:
    """Active spans of a core or a chip, and the extent of everything seen there.

    Attributes:
        start_ps, end_ps: Disjoint active spans, ascending, shape (n,).
        extent: First begin and last end of all spans, None without any.
    """

    start_ps: Int64s
    end_ps: Int64s
    extent: tuple[int, int] | None = None

    @property
    def active_ps(self) -> int:
        """Time with at least one active span."""
        return int((self.end_ps - self.start_ps).sum())

    @property
    def idle_ps(self) -> int:
        """The rest of the extent."""
        return self.extent[1] - self.extent[0] - self.active_ps if self.extent else 0

    @classmethod
    def of(
        cls,
        start_ps: Int64s,
        duration_ps: Int64s,
        rows: NDArray[np.int32],
        active_rows: NDArray[np.bool_],
    ) -> "Activity":
        """Activity from spans, of which those of some rows of the metadata are active.

        A loop is not active while what it runs is not.
        """
        if not len(start_ps):
            return cls(start_ps, start_ps)
        return cls(*own_time_of_rows(start_ps, duration_ps, rows, active_rows))

    @classmethod
    def union(cls, parts: Iterable["Activity"]) -> "Activity":
        """Activity of a core from that of its lines, of a chip from that of its cores."""
        chosen = list(parts)
        if not chosen:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))
        start = np.concatenate([part.start_ps for part in chosen])
        end = np.concatenate([part.end_ps for part in chosen])
        extents = [part.extent for part in chosen if part.extent is not None]
        extent = (min(e[0] for e in extents), max(e[1] for e in extents)) if extents else None
        return cls(*union(start, end), extent)


@dataclass(frozen=True)
class CoreActivity:
    """Activity of one core; the second form leaves out custom calls of unknown work."""

    all: Activity
    high_confidence: Activity


def core_activity(plane: OpPlane) -> CoreActivity:
    """Activity of one TensorCore or SparseCore, on the plain clock of its events."""
    whole, trusted = [], []
    for line in plane.lines:
        name = line.name
        if name not in (XLA_OPS, SPARSE_CORE_OPS, XLA_MODULES, SPARSE_CORE_MODULES):
            continue
        columns = line.columns(_COST_STATS)
        if not len(columns):
            continue
        is_active = is_trusted = np.zeros(len(plane.event_metadata), np.bool_)
        if name in (XLA_OPS, SPARSE_CORE_OPS):
            table = plane.event_metadata
            every = np.arange(len(table) - 1)
            categories, has_work = table.made_of(every, "duty", lambda: _metadata(plane))
            is_active = is_trusted = categories != _OFF
            if name == XLA_OPS:
                is_trusted = is_active & ((categories != _CUSTOM_CALL) | has_work)
        spans = columns.start_ps, columns.duration_ps, columns.metadata
        activity = Activity.of(*spans, is_active)
        whole.append(activity)
        if (is_trusted == is_active).all():
            trusted.append(activity)
        else:
            trusted.append(_trusted(columns, is_active, is_trusted))
    return CoreActivity(Activity.union(whole), Activity.union(trusted))


def _trusted(
    columns: Columns, is_active: NDArray[np.bool_], is_trusted: NDArray[np.bool_]
) -> Activity:
    """Activity without the events of active rows that are not trusted, nor say their own work."""
    known = np.zeros(len(columns), np.bool_)
    for stat in map(columns.stat, _COST_STATS):
        if stat.kind.any():
            known |= stat.ints_or_uints() > 0
    rows = columns.metadata
    is_sure = is_trusted[rows] | (is_active[rows] & known)
    own_rows = is_sure.astype(np.int32)
    return Activity.of(columns.start_ps, columns.duration_ps, own_rows, np.array([False, True]))


_ON, _OFF, _CUSTOM_CALL = range(3)


def _metadata(plane: OpPlane) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Kind of category of every metadata row, and whether its work is known."""
    table = plane.event_metadata
    kinds = np.zeros(len(table), np.int8)
    has_work = np.zeros(len(table), np.bool_)
    for row in range(len(table) - 1):
        stats = table.stats(row)
        category = stats.get("hlo_category")
        if category in OFF_DUTY:
            kinds[row] = _OFF
        elif category == "custom-call":
            kinds[row] = _CUSTOM_CALL
        values = (stats.get(name) for name in _COST_STATS)
        has_work[row] = any(isinstance(value, int) and value > 0 for value in values)
    return kinds, has_work


def sum_over_chips(cores: Iterable[tuple[int | None, Activity]]) -> tuple[int, int]:
    """Active and idle time summed over chips.

    Args:
        cores: Chip of every core, None for a core that counts alone, and its activity.
    """
    chips: dict[int, list[Activity]] = {}
    alone = []
    for chip, activity in cores:
        if chip is None:
            alone.append(activity)
        else:
            chips.setdefault(chip, []).append(activity)
    whole = [*alone, *(Activity.union(parts) for parts in chips.values())]
    return sum(one.active_ps for one in whole), sum(one.idle_ps for one in whole)
