"""What analyses of operations need of prepared spaces, planes and lines."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.planes import GPU_PREFIX, TPU_PREFIX
from podscope_analyzers.xspace import Columns, Sifted, StatValue

T = TypeVar("T")


class MetadataTable(Protocol):
    """A plane's event metadata; see ``xspace.EventMetadataTable``."""

    ids: NDArray[np.int64]
    names: list[str]
    display_names: list[str]

    def __len__(self) -> int:
        """How many rows."""

    @property
    def empty_row(self) -> int:
        """The row of ids that the plane does not have."""

    def row(self, metadata_id: int) -> int:
        """The row of an id."""

    def stats(self, row: int) -> dict[str, StatValue]:
        """The row's stats by name."""

    def stat_pairs(self, row: int) -> list[tuple[str, StatValue]]:
        """The row's stats, repeats included."""

    def child_ids(self, row: int) -> list[int]:
        """Ids of the row's children."""

    def made_of(self, rows: NDArray[np.int64], what: Hashable, make: Callable[[], T]) -> T:
        """What is made of some rows, once for planes of equal metadata."""


class OpLine(Protocol):
    """A line of a prepared plane."""

    @property
    def id(self) -> int:
        """As stored, or one of the derived ids."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def timestamp_ns(self) -> int:
        """What its offsets count from."""

    @property
    def is_derived(self) -> bool:
        """Whether it was made from other lines: its events are no new ones."""

    @property
    def group_id(self) -> NDArray[np.int64]:
        """Step of every event, -1 for none, shape (n,)."""

    @property
    def is_eager(self) -> NDArray[np.int8]:
        """1 for eager execution, 0 for none, -1 unknown, shape (n,)."""

    @property
    def notable(self) -> Sifted | None:
        """Its events that say something themselves; None where all are worked on."""

    @property
    def notable_groups(self) -> NDArray[np.int32] | None:
        """Step of every notable event, where grouping worked on these."""

    def named_steps(self) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
        """The events that mark a step, their steps and these' names."""

    def columns(self, stats: Iterable[str] = ()) -> Columns:
        """Its events."""


class OpPlane(Protocol):
    """A prepared plane."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def id(self) -> int:
        """Its id."""

    @property
    def stats(self) -> Mapping[str, StatValue]:
        """Its own stats by name."""

    @property
    def lines(self) -> Sequence[OpLine]:
        """Its lines, derived ones included."""

    @property
    def stat_names(self) -> frozenset[str]:
        """Names of all stats that its events and metadata may have."""

    @property
    def event_metadata(self) -> MetadataTable:
        """What its events are called."""

    @property
    def framework_span(self) -> tuple[int, int] | None:
        """First begin and last end of a line of framework operations that was left out."""


class OpSpace(Protocol):
    """A prepared XSpace."""

    @property
    def planes(self) -> Sequence[OpPlane]:
        """Its planes, in the file's order."""

    @property
    def hostnames(self) -> tuple[str, ...]:
        """Of the machines that were profiled."""


def notable_columns(line: OpLine, stats: Iterable[str]) -> Columns:
    """A line's notable events, or all where it does not tell these."""
    sifted = line.notable
    return line.columns(stats) if sifted is None else sifted.columns


def notable_steps(line: OpLine) -> NDArray[np.int64]:
    """Step of every event of ``notable_columns``, -1 for none, shape (n,)."""
    sifted = line.notable
    if sifted is None:
        return line.group_id
    if line.notable_groups is not None:
        return line.notable_groups.astype(np.int64)
    return line.group_id[sifted.events]


def device_planes(space: OpSpace) -> list[OpPlane]:
    """The planes of TPU cores, or of GPUs where there is no TPU."""
    for prefix in (TPU_PREFIX, GPU_PREFIX):
        found = [plane for plane in space.planes if plane.name.startswith(prefix)]
        if found:
            return found
    return []
