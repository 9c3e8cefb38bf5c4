"""An XSpace made ready for analysis: events grouped into steps, derived lines added.

The prepared planes and lines answer as the XSpace's own do, and say more: the group of every
event, whether it ran eagerly, the names of steps.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels import natural_order
from podscope_analyzers.planes import (
    HOST_PLANE,
    TPU_PREFIX,
    is_derived_line,
    is_gpu,
)
from podscope_analyzers.xspace import Columns, EventMetadataTable, Line, Plane, StatColumn, XSpace
from podscope_analyzers.xspace.columns import INT64, Int32s, Int64s
from podscope_analyzers.xspace.metadata import StatValue
from podscope_analyzers.xspace.wire import ListPayloads

Int8s = NDArray[np.int8]
T = TypeVar("T", bound=np.generic)

ABSENT = -1


class PreparedMetadata:
    """A plane's event metadata, with rows for the events that preparation adds.

    Attributes:
        ids: Of the rows that the file has, ascending.
        names: Of every row.
        display_names: Of every row; empty where there is none.
    """

    def __init__(self, table: EventMetadataTable) -> None:
        self._table = table
        self._added: dict[tuple[str, str], int] = {}
        self.ids: Int64s = table.ids
        self.names: list[str] = list(table.names)
        self.display_names: list[str] = list(table.display_names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def empty_row(self) -> int:
        """The row of ids that the plane does not have."""
        return self._table.empty_row

    def add(self, name: str, display_name: str = "") -> int:
        """The row of an added name; one row per pair of names."""
        key = (name, display_name)
        if key not in self._added:
            self._added[key] = len(self.names)
            self.names.append(name)
            self.display_names.append(display_name)
        return self._added[key]

    def row(self, metadata_id: int) -> int:
        """The row of an id, or the empty row."""
        return self._table.row(metadata_id)

    def _own(self, row: int) -> int:
        return row if row < len(self._table) else self._table.empty_row

    def stats(self, row: int) -> dict[str, StatValue]:
        """The row's stats by name; of a name that repeats, the first."""
        return self._table.stats(self._own(row))

    def stat_pairs(self, row: int) -> list[tuple[str, StatValue]]:
        """The row's stats in the file's order, repeats included."""
        return self._table.stat_pairs(self._own(row))

    def child_ids(self, row: int) -> list[int]:
        """Ids of the metadata that the row names as its children."""
        return self._table.child_ids(self._own(row))

    def metadata(self, row: int) -> bytes:
        """The tracer's own bytes of the row."""
        return self._table.metadata(self._own(row))


class GroupNames(Protocol):
    """The names of groups by id."""

    def name(self, group_id: int) -> str:
        """Name of a group; empty for an id that is none."""


class PreparedLine:
    """A line with what grouping found; derived lines are of the same kind.

    Attributes:
        plane: The plane that the line is of.
        source: The XSpace's own line; None for a derived one.
        id: As stored, or one of the derived ids.
        event_count: Events, added ones included.
    """

    def __init__(
        self,
        plane: "PreparedPlane",
        source: Line | None,
        *,
        name: str,
        line_id: int,
        event_count: int,
        decode: Callable[[Iterable[str]], Columns],
        display_name: str = "",
        display_id: int = 0,
        timestamp_ns: int = 0,
        source_events: Int64s | None = None,
    ) -> None:
        self.plane = plane
        self.source = source
        self.id = line_id
        self.name = name
        self.display_id = display_id
        self.display_name = display_name
        self.timestamp_ns = timestamp_ns
        self.event_count = event_count
        self._decode = decode
        self._source_events = source_events
        self._group: NDArray[np.int32] | Int64s | None = None
        self._eager: Int8s | None = None
        self._named: tuple[Int64s, Int64s] | None = None

    def __repr__(self) -> str:
        return f"PreparedLine({self.name!r}, id={self.id}, events={self.event_count})"

    @property
    def is_derived(self) -> bool:
        """Whether the line was made from other lines."""
        return is_derived_line(self.id)

    def columns(self, stats: Iterable[str] = ()) -> Columns:
        """The line's events; see ``xspace.Line.columns``."""
        return self._decode(stats)

    def release(self) -> None:
        """Forgets decoded columns; the next ``columns`` decodes again."""
        if self.source is not None:
            self.source.release()

    def event_stats(self, event: int) -> dict[str, StatValue]:
        """All stats of one event as stored; none for an added event."""
        if self.source is None:
            return {}
        at = event if self._source_events is None else int(self._source_events[event])
        return self.source.event_stats(at) if at >= 0 else {}

    def set_groups(
        self,
        group: NDArray[np.int32] | Int64s,
        eager: Int8s | None = None,
        named: tuple[Int64s, Int64s] | None = None,
    ) -> None:
        """Takes what grouping found.

        Args:
            group: Group id of every event, -1 for none, shape (n,).
            eager: 1 for eager execution, 0 for none, -1 where it does not apply, shape (n,).
            named: Events that are a named step, and their groups, both of shape (k,).
        """
        self._group = group
        self._eager = eager
        self._named = named

    def fill_groups(self, group: Int64s) -> None:
        """Replaces the groups alone, shape (n,)."""
        self._group = group

    @property
    def group_id(self) -> Int64s:
        """Group (step) of every event, -1 where there is none, shape (n,)."""
        if self._group is None:
            return self._stored("group_id")
        group = self._group.astype(np.int64)
        if "group_id" in self.plane.stat_names and self.source is not None:
            # Grouping overwrites what it finds and leaves the rest.
            return np.where(group >= 0, group, self._stored("group_id"))
        return group

    @property
    def is_eager(self) -> Int8s:
        """1 for eager execution, 0 for none, -1 where it does not apply, shape (n,)."""
        if self._eager is not None:
            return self._eager
        if self._group is not None:
            return np.full(self.event_count, ABSENT, np.int8)
        return np.sign(self._stored("is_eager")).astype(np.int8)

    def step_names(self) -> tuple[Int32s, list[str]]:
        """Names of the steps that events themselves mark.

        Returns:
            Codes, shape (n,), -1 where the event marks no step; the table of names.
        """
        codes = np.full(self.event_count, ABSENT, np.int32)
        if self._group is None:
            if "step_name" in self.plane.stat_names and self.source is not None:
                return self.columns(("step_name",)).stat("step_name").strings()
            return codes, []
        if self._named is None:
            return codes, []
        events, groups = self._named
        ids, inverse = np.unique(groups, return_inverse=True)
        codes[events] = inverse
        return codes, [self.plane.space.groups.name(int(i)) for i in ids]

    def _stored(self, stat: str) -> Int64s:
        if stat not in self.plane.stat_names or self.source is None:
            return np.full(self.event_count, ABSENT, np.int64)
        column = self.columns((stat,)).stat(stat)
        return np.where(column.present(), column.ints(), ABSENT)


class PreparedPlane:
    """A plane with its lines prepared.

    Attributes:
        source: The XSpace's own plane.
        lines: Stored lines first, derived ones after them.
    """

    def __init__(self, space: "PreparedSpace", source: Plane) -> None:
        self.space = space
        self.source = source
        self.id = source.id
        self.name = source.name
        self.lines: tuple[PreparedLine, ...] = tuple(own_line(self, line) for line in source.lines)

    def __repr__(self) -> str:
        return f"PreparedPlane({self.name!r}, id={self.id}, lines={len(self.lines)})"

    @cached_property
    def event_metadata(self) -> PreparedMetadata:
        """What the plane's events are called."""
        return PreparedMetadata(self.source.event_metadata)

    @property
    def stats(self) -> dict[str, StatValue]:
        """The plane's own stats by name."""
        return self.source.stats

    @property
    def stat_names(self) -> frozenset[str]:
        """Names of the plane's stat metadata."""
        return self.source.stat_names

    def line(self, name: str) -> PreparedLine | None:
        """The first line of this name."""
        return next((line for line in self.lines if line.name == name), None)


class PreparedSpace:
    """An XSpace whose events know their steps.

    Attributes:
        source: The XSpace.
        planes: In the file's order.
        groups: What the groups are called.
    """

    def __init__(self, source: XSpace) -> None:
        self.source = source
        self.groups: GroupNames = _StoredNames()
        self.planes: tuple[PreparedPlane, ...] = tuple(
            PreparedPlane(self, plane) for plane in source.planes
        )

    @property
    def hostnames(self) -> tuple[str, ...]:
        """Of the machines that were profiled."""
        return self.source.hostnames

    @property
    def errors(self) -> tuple[str, ...]:
        """What the tracers could not record."""
        return self.source.errors

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the tracers warn of."""
        return self.source.warnings

    @property
    def has_tpu(self) -> bool:
        """Whether there are TPU planes; GPU planes do not count beside them."""
        return any(plane.name.startswith(TPU_PREFIX) for plane in self.planes)

    @property
    def has_gpu(self) -> bool:
        """Whether there are GPU planes."""
        return any(is_gpu(plane.name) for plane in self.planes)

    @property
    def host_plane(self) -> PreparedPlane | None:
        """The plane of the host's threads."""
        return self.plane(HOST_PLANE)

    def plane(self, name: str) -> PreparedPlane | None:
        """The first plane of this name."""
        return next((plane for plane in self.planes if plane.name == name), None)


class _StoredNames:
    """Groups of a file that was grouped before: their names are on its events."""

    def name(self, group_id: int) -> str:
        return ""


def own_line(plane: PreparedPlane, line: Line) -> PreparedLine:
    """A stored line, as it is."""
    return PreparedLine(
        plane,
        line,
        name=line.name,
        line_id=line.id,
        event_count=line.event_count,
        decode=line.columns,
        display_name=line.display_name,
        display_id=line.display_id,
        timestamp_ns=line.timestamp_ns,
    )


def reordered_line(
    line: PreparedLine,
    source_events: Int64s,
    metadata_row: int,
    added_start_ps: Int64s,
    added_duration_ps: Int64s,
) -> PreparedLine:
    """A stored line in another order, with added events of one name.

    Args:
        line: The line as stored.
        source_events: Index of every event in the stored line, or for the i-th added event
            ``-1 - i``, shape (n,).
        metadata_row: What the added events are.
        added_start_ps: Shape (a,).
        added_duration_ps: Shape (a,).
    """
    source = line.source
    if source is None:
        problem = "only stored lines are reordered"
        raise ValueError(problem)
    added = np.flatnonzero(source_events < 0)
    nth = -1 - source_events[added]
    taken = np.maximum(source_events, 0)

    def take(values: NDArray[T], fill: Int64s | int) -> NDArray[T]:
        result = values[taken] if len(values) else np.zeros(len(taken), values.dtype)
        result[added] = fill
        return result

    def decode(stats: Iterable[str]) -> Columns:
        wanted = tuple(stats)
        columns = source.columns(wanted)
        decoded = {}
        for name in wanted:
            stat = columns.stat(name)
            decoded[name] = StatColumn(
                kind=take(stat.kind, 0),
                raw=take(stat.raw, 0),
                _payloads=stat._payloads,
                _names=stat._names,
                _gzip_limit=stat._gzip_limit,
            )
        return Columns(
            metadata=take(columns.metadata, metadata_row),
            start_ps=take(columns.start_ps, added_start_ps[nth]),
            duration_ps=take(columns.duration_ps, added_duration_ps[nth]),
            occurrences=take(columns.occurrences, 0),
            _stats=decoded,
        )

    return PreparedLine(
        line.plane,
        source,
        name=line.name,
        line_id=line.id,
        event_count=len(source_events),
        decode=decode,
        display_name=line.display_name,
        display_id=line.display_id,
        timestamp_ns=line.timestamp_ns,
        source_events=np.where(source_events < 0, -1, source_events),
    )


def sort_lines(plane: PreparedPlane) -> None:
    """Puts the events of each line in natural order, where they are not."""
    lines = []
    none = np.zeros(0, np.int64)
    for line in plane.lines:
        columns = line.columns()
        order = natural_order(columns.start_ps, columns.duration_ps)
        if order is None:
            lines.append(line)
        else:
            lines.append(reordered_line(line, order, plane.event_metadata.empty_row, none, none))
    plane.lines = tuple(lines)


def derived_line(
    plane: PreparedPlane,
    *,
    name: str,
    line_id: int,
    metadata: Int32s,
    start_ps: Int64s,
    duration_ps: Int64s,
    group_id: Int64s,
    stats: dict[str, tuple[NDArray[np.bool_], Int64s]] | None = None,
    display_name: str = "",
    display_id: int = 0,
    timestamp_ns: int = 0,
) -> PreparedLine:
    """A line made of arrays.

    Args:
        plane: Gets the line's names from its event metadata.
        name: The line's.
        line_id: One of the derived ids, or that of the line it replaces.
        metadata: Rows of the plane's metadata, shape (n,).
        start_ps: Shape (n,).
        duration_ps: Shape (n,).
        group_id: -1 for none, shape (n,).
        stats: Integer stats by name: which events carry it, and its values, both (n,).
        display_name: The line's.
        display_id: The line's.
        timestamp_ns: The line's.
    """
    known = stats or {}
    count = len(start_ps)

    def column(name: str) -> StatColumn:
        present, values = known.get(name, (np.zeros(count, np.bool_), np.zeros(count, np.int64)))
        return StatColumn(
            kind=np.where(present, INT64, 0).astype(np.uint8),
            raw=values,
            _payloads=ListPayloads([]),
            _names={},
            _gzip_limit=0,
        )

    def decode(wanted: Iterable[str]) -> Columns:
        return Columns(
            metadata=metadata,
            start_ps=start_ps,
            duration_ps=duration_ps,
            occurrences=np.zeros(count, np.int64),
            _stats={stat: column(stat) for stat in wanted},
        )

    line = PreparedLine(
        plane,
        None,
        name=name,
        line_id=line_id,
        event_count=count,
        decode=decode,
        display_name=display_name,
        display_id=display_id,
        timestamp_ns=timestamp_ns,
    )
    grouped = np.flatnonzero(group_id >= 0)
    line.set_groups(group_id, named=(grouped, group_id[grouped]))
    return line
