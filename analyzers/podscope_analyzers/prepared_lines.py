"""Lines that preparation makes: stored ones in another order, and ones made of arrays."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels import natural_order
from podscope_analyzers.prepared import DerivedStat, PreparedLine, PreparedPlane
from podscope_analyzers.xspace import Columns, Line, StatColumn
from podscope_analyzers.xspace.columns import DOUBLE, INT64, UINT64, GzipTexts, Int32s, Int64s
from podscope_analyzers.xspace.wire import ListPayloads

T = TypeVar("T", bound=np.generic)

_KINDS = {"<i8": INT64, "<u8": UINT64, "<f8": DOUBLE}


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
            decoded[name] = replace(stat, kind=take(stat.kind, 0), raw=take(stat.raw, 0))
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


def sort_lines(plane: PreparedPlane, stats: frozenset[str] = frozenset()) -> None:
    """Puts the events of each line in natural order, where they are not.

    Args:
        plane: Gets the lines.
        stats: What is read of the events next: decoded along with their times, or looked for
            in long lines.
    """
    lines = []
    none = np.zeros(0, np.int64)
    for line in plane.lines:
        survey = line.survey(stats)
        if survey is not None and survey.is_natural:
            lines.append(line)
            continue
        columns = line.columns(stats & plane.stat_names)
        order = natural_order(columns.start_ps, columns.duration_ps)
        if order is None:
            lines.append(line)
        else:
            lines.append(reordered_line(line, order, plane.event_metadata.empty_row, none, none))
            line.release()
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
    stats: Mapping[str, DerivedStat] | None = None,
    is_step: bool = False,
    source: Line | None = None,
    source_events: Int64s | None = None,
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
        stats: Which events carry a stat, and its values (whole numbers, or doubles), both
            (n,), by name.
        is_step: Whether its events are steps, and are named as these are.
        source: The stored line that it replaces.
        source_events: Events of that line whose other stats the events keep, shape (n,).
        display_name: The line's.
        display_id: The line's.
        timestamp_ns: The line's.
    """
    known = stats or {}
    count = len(start_ps)

    def column(name: str) -> StatColumn:
        if source is not None and source_events is not None and name not in known:
            stored = source.columns((name,)).stat(name)
            return replace(stored, kind=stored.kind[source_events], raw=stored.raw[source_events])
        present, values = known.get(name, (np.zeros(count, np.bool_), np.zeros(count, np.int64)))
        kind = _KINDS[values.dtype.str]
        return StatColumn(
            kind=np.where(present, kind, 0).astype(np.uint8),
            raw=values.view(np.int64),
            _payloads=ListPayloads([]),
            _names={},
            _gzip=GzipTexts(0, 0),
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
        source,
        name=name,
        line_id=line_id,
        event_count=count,
        decode=decode,
        display_name=display_name,
        display_id=display_id,
        timestamp_ns=timestamp_ns,
        source_events=source_events,
        own_stats=known,
    )
    grouped = np.flatnonzero(group_id >= 0) if is_step else np.zeros(0, np.int64)
    line.set_groups(group_id, named=(grouped, group_id[grouped]))
    return line
