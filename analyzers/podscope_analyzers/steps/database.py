"""The steps of one host, or of all of them: spans and breakdowns as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.steps.event_types import EVENT_TYPES
from podscope_analyzers.steps.work import StepWork

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

IDLE: Final = "IDLE"
"""Category of a TPU core's time without any operation."""

SPARSE_CORE_OFFSET: Final = 1_000_000
"""Added to the plane id of a SparseCore to give its core id."""

CORES_PER_HOST: Final = 1000
"""Core ids of host h start at ``h * CORES_PER_HOST`` once hosts are combined."""

# The reference drops the first and last of more steps than this: profiling began and ended
# somewhere within them.
MOST_KEPT_WHOLE: Final = 5

Kind = Literal["generic", "tpu"]


def _no_ints() -> Int64s:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Collectives:
    """Collective operations of the steps, one row each; all arrays have shape (c,).

    Attributes:
        step: Index of the step.
        core_id: Core that took part.
        id: Tells one collective of a step from another; equal on all cores. On GPUs its kind,
            see ``collectives.kind_id``; 0 where that is unknown too.
        begin_ps: Picoseconds from the space's base.
        end_ps: Picoseconds from the space's base.
        size_bytes: Bytes that the operation accesses; 0 where unknown.
    """

    step: Int64s = field(default_factory=_no_ints)
    core_id: Int64s = field(default_factory=_no_ints)
    id: Int64s = field(default_factory=_no_ints)
    begin_ps: Int64s = field(default_factory=_no_ints)
    end_ps: Int64s = field(default_factory=_no_ints)
    size_bytes: Int64s = field(default_factory=_no_ints)

    def take(self, rows: NDArray[Any], step: Int64s | None = None) -> "Collectives":
        """Some rows, their steps renumbered when ``step`` is given."""
        return Collectives(
            step=self.step[rows] if step is None else step,
            core_id=self.core_id[rows],
            id=self.id[rows],
            begin_ps=self.begin_ps[rows],
            end_ps=self.end_ps[rows],
            size_bytes=self.size_bytes[rows],
        )

    @classmethod
    def concatenate(cls, parts: Sequence["Collectives"]) -> "Collectives":
        """The rows of all parts, in order."""
        if not parts:
            return cls()
        names = cls.__dataclass_fields__
        return cls(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in names})


@dataclass(frozen=True)
class Transfers:
    """Copies of every step by direction; all arrays have shape (s, 3).

    The columns are host to device, device to host, device to device.

    Attributes:
        count: How many copies.
        time_us: Sum of their durations, microseconds, float64.
        size_bytes: Sum of their sizes; 0 where the tracer did not say.
    """

    count: Int64s
    time_us: NDArray[np.float64]
    size_bytes: Int64s

    @classmethod
    def zeros(cls, steps: int) -> "Transfers":
        """No copies in any of the steps."""
        shape = (steps, 3)
        return cls(np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, np.int64))

    def take(self, steps: NDArray[Any]) -> "Transfers":
        """Those of some steps."""
        return Transfers(self.count[steps], self.time_us[steps], self.size_bytes[steps])


@dataclass(frozen=True)
class StepDatabase:
    """Steps, and what every core did in each: one row per step and core.

    Rows are sorted by step, then by core. On CPU and GPU hosts each step has one row, of core
    1, which stands for the whole host. A step of a TPU may have no row.

    Attributes:
        kind: Whether ``categories`` are event types (CPU, GPU) or HLO categories (TPU).
        has_device: Whether the host, or any of the hosts, has an accelerator.
        step_numbers: Shape (s,), ascending. Of one host: its group ids; of several: 0 to s-1.
        row_step: Index of the row's step, shape (r,).
        core_id: Shape (r,); a SparseCore's is ``SPARSE_CORE_OFFSET`` plus its plane's id. Of
            several hosts, ``CORES_PER_HOST`` times the host's index is added.
        host_index: The row's host, shape (r,).
        begin_ps: Picoseconds from the space's base, shape (r,).
        duration_ps: Shape (r,).
        name_code: Index into ``names``, shape (r,).
        names: Names of steps; empty where the tracer gave none.
        categories: What the columns of the breakdown are, k of them.
        breakdown_ps: Time in each category, shape (r, k).
        in_breakdown: Whether the row has the category at all, if only for no time, shape (r, k).
        collectives: Collective operations.
        transfers: Copies per step.
        work: What the operations of every step did, on TPUs; None elsewhere.
        precision_16bit_ps: Time of 16-bit computation in all steps, incomplete ones included.
        precision_32bit_ps: Time of 32-bit computation likewise.
        steps_dropped: Common steps beyond the most that were asked for.
        is_intersection_empty: The hosts have steps, but none in common.
    """

    kind: Kind
    has_device: bool
    step_numbers: Int64s
    row_step: Int64s
    core_id: Int64s
    host_index: Int64s
    begin_ps: Int64s
    duration_ps: Int64s
    name_code: Int64s
    names: tuple[str, ...]
    categories: tuple[str, ...]
    breakdown_ps: Int64s
    in_breakdown: Bools
    collectives: Collectives
    transfers: Transfers
    work: StepWork | None = None
    precision_16bit_ps: int = 0
    precision_32bit_ps: int = 0
    steps_dropped: int = 0
    is_intersection_empty: bool = False

    def __len__(self) -> int:
        """How many steps."""
        return len(self.step_numbers)

    @property
    def row_offsets(self) -> Int64s:
        """Step i has the rows ``row_offsets[i]`` to ``row_offsets[i + 1]``, shape (s + 1,)."""
        return np.searchsorted(self.row_step, np.arange(len(self) + 1)).astype(np.int64)

    @property
    def is_sparse_core(self) -> Bools:
        """Which rows are of SparseCores, shape (r,)."""
        # Of the 1,000th host on, the capture's ids of TensorCores are as large.
        sparse: Bools = self.core_id - CORES_PER_HOST * self.host_index >= SPARSE_CORE_OFFSET
        return sparse

    def row_name(self, row: int) -> str:
        """The step's name as the row's host knows it; empty when it has none."""
        return self.names[int(self.name_code[row])]

    def time_ps(self, *categories: str) -> Int64s:
        """Time of every row in some categories together, shape (r,)."""
        columns = [i for i, name in enumerate(self.categories) if name in categories]
        total: Int64s = self.breakdown_ps[:, columns].sum(axis=1)
        return total

    def select(self, steps: NDArray[Any]) -> Self:
        """Some of the steps.

        Args:
            steps: Their indices, ascending, shape (m,).
        """
        place = np.full(len(self), -1, np.int64)
        place[steps] = np.arange(len(steps))
        new_step = place[self.row_step]
        rows = np.flatnonzero(new_step >= 0)
        collective_step = place[self.collectives.step]
        kept = np.flatnonzero(collective_step >= 0)
        return replace(
            self,
            step_numbers=self.step_numbers[steps],
            row_step=new_step[rows],
            core_id=self.core_id[rows],
            host_index=self.host_index[rows],
            begin_ps=self.begin_ps[rows],
            duration_ps=self.duration_ps[rows],
            name_code=self.name_code[rows],
            breakdown_ps=self.breakdown_ps[rows],
            in_breakdown=self.in_breakdown[rows],
            collectives=self.collectives.take(kept, collective_step[kept]),
            transfers=self.transfers.take(steps),
            work=None if self.work is None else self.work.take(steps),
        )

    def incomplete_steps(self) -> Bools:
        """Which steps the capture probably cut, shape (s,).

        The first and the last when there are more than five, and none on TPUs, whose steps the
        device itself delimits. Only meaningful for one host.
        """
        cut = np.zeros(len(self), np.bool_)
        if self.kind == "generic" and len(self) > MOST_KEPT_WHOLE:
            cut[[0, -1]] = True
        return cut

    def without_incomplete_steps(self) -> Self:
        """The steps that were captured from begin to end; the precision sums stay."""
        cut = self.incomplete_steps()
        return self.select(np.flatnonzero(~cut)) if cut.any() else self

    def to_state(self) -> dict[str, Any]:
        """Scalars, text, lists and arrays that :meth:`from_state` reads back."""
        return {
            "kind": self.kind,
            "has_device": self.has_device,
            **{name: getattr(self, name) for name in _ARRAYS},
            "names": list(self.names),
            "categories": list(self.categories),
            "collectives": {
                name: getattr(self.collectives, name) for name in Collectives.__dataclass_fields__
            },
            "transfers": {
                name: getattr(self.transfers, name) for name in Transfers.__dataclass_fields__
            },
            "work": None if self.work is None else self.work.to_state(),
            **{name: getattr(self, name) for name in _SCALARS},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The database that :meth:`to_state` wrote."""
        return cls(
            kind="tpu" if state["kind"] == "tpu" else "generic",
            has_device=bool(state["has_device"]),
            **{name: state[name] for name in _ARRAYS},
            names=tuple(state["names"]),
            categories=tuple(state["categories"]),
            collectives=Collectives(**state["collectives"]),
            transfers=Transfers(**state["transfers"]),
            work=None if state["work"] is None else StepWork.from_state(state["work"]),
            **{name: state[name] for name in _SCALARS},
        )

    @classmethod
    def empty(cls, kind: Kind = "generic", *, has_device: bool = False) -> Self:
        """A database without steps."""
        categories = EVENT_TYPES if kind == "generic" else (IDLE,)
        return cls(
            kind=kind,
            has_device=has_device,
            step_numbers=_no_ints(),
            row_step=_no_ints(),
            core_id=_no_ints(),
            host_index=_no_ints(),
            begin_ps=_no_ints(),
            duration_ps=_no_ints(),
            name_code=_no_ints(),
            names=("",),
            categories=categories,
            breakdown_ps=np.zeros((0, len(categories)), np.int64),
            in_breakdown=np.zeros((0, len(categories)), np.bool_),
            collectives=Collectives(),
            transfers=Transfers.zeros(0),
        )


_ARRAYS: Final = (
    "step_numbers",
    "row_step",
    "core_id",
    "host_index",
    "begin_ps",
    "duration_ps",
    "name_code",
    "breakdown_ps",
    "in_breakdown",
)
_SCALARS: Final = (
    "precision_16bit_ps",
    "precision_32bit_ps",
    "steps_dropped",
    "is_intersection_empty",
)
