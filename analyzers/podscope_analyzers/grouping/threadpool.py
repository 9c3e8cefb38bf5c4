"""Regions of thread pools: what ran between a start and a stop."""

import numpy as np

from podscope_analyzers.grouping.event_types import REGION, REGION_START, REGION_STOP
from podscope_analyzers.kernels import natural_order
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.prepared_lines import reordered_line


def add_regions(plane: PreparedPlane) -> None:
    """Adds an event from each start of a region to the begin of each stop that follows."""
    names = plane.source.event_metadata.names
    if REGION_START not in names or REGION_STOP not in names:
        return
    start_row, stop_row = names.index(REGION_START), names.index(REGION_STOP)
    plane.lines = tuple(_with_regions(line, start_row, stop_row) for line in plane.lines)


def _with_regions(line: PreparedLine, start_row: int, stop_row: int) -> PreparedLine:
    sifted = line.notable
    if sifted is not None:
        rows = sifted.columns.metadata
        if not (rows == start_row).any() or not (rows == stop_row).any():
            return line
    columns = line.columns(("_c",) if "_c" in line.plane.stat_names else ())
    is_start = columns.metadata == start_row
    if "_c" in columns.stat_names:
        is_start &= columns.stat("_c").present()
    else:
        is_start[:] = False
    stops = np.flatnonzero(columns.metadata == stop_row)
    if not len(stops) or not is_start.any():
        return line
    # A start stays open: the next stop makes a region with it too.
    last_start = np.maximum.accumulate(np.where(is_start, np.arange(len(columns)), -1))[stops]
    stops, starts = stops[last_start >= 0], last_start[last_start >= 0]
    begin = columns.start_ps[starts]
    duration = np.maximum(columns.start_ps[stops] - begin, 0)
    all_start = np.concatenate([columns.start_ps, begin])
    all_duration = np.concatenate([columns.duration_ps, duration])
    events = np.concatenate([np.arange(len(columns)), -1 - np.arange(len(starts))])
    order = natural_order(all_start, all_duration)
    if order is not None:
        events = events[order]
    row = line.plane.event_metadata.add(REGION)
    return reordered_line(line, events, row, begin, duration)
