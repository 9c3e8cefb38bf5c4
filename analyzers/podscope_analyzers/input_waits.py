"""When the GPUs of a host had nothing to run while the host waited for its next batch.

A GPU's own events name copying the input, but not waiting for it: the reference leaves that time in
no category. The host's threads say what it was.
"""

import re

import numpy as np
import numpy.typing as npt

from podscope_analyzers.intervals import Int64s, Union, join, union
from podscope_analyzers.kernels import natural_order
from podscope_analyzers.planes import HOST_PLANE, is_derived_line, is_gpu
from podscope_analyzers.step_annotations import names_input, outermost
from podscope_analyzers.xspace import Line, XSpace

# Whoever calls it waits, on whatever thread.
_NEXT_ELEMENT = re.compile(r"(?:EagerExecute: |.*:)?IteratorGetNext")


def input_waits_ps(space: XSpace, begin_ps: Int64s, end_ps: Int64s) -> Int64s:
    """Time of each step in which no GPU ran anything and the host waited for input.

    Args:
        space: The host's XSpace.
        begin_ps: Start of each step, shape (n,).
        end_ps: End of each step, shape (n,).

    Returns:
        Shape (n,); zeros for hosts without GPUs, whose threads or infeeds say it themselves.
    """
    devices = [plane for plane in space.planes if is_gpu(plane.name)]
    if not devices or not len(begin_ps):
        return np.zeros(len(begin_ps), np.int64)
    waits = _waits(space)
    if not len(waits.start_ps):
        return np.zeros(len(begin_ps), np.int64)
    lines = [line for plane in devices for line in plane.lines if not is_derived_line(line.id)]
    spans = [_spans(line) for line in lines if line.event_count]
    running = _union(spans)
    either = join(running, waits)
    idle_ps: Int64s = either.covered_ps(begin_ps, end_ps) - running.covered_ps(begin_ps, end_ps)
    return idle_ps


def _waits(space: XSpace) -> Union:
    """Spans of threads that wait for the next batch."""
    spans: list[tuple[Int64s, Int64s]] = []
    for plane in space.planes:
        if plane.name != HOST_PLANE:
            continue
        names = plane.event_metadata.names
        is_next = np.array([bool(_NEXT_ELEMENT.match(name)) for name in names], np.bool_)
        is_input = np.array([names_input(name) for name in names], np.bool_)
        for line in plane.lines:
            if line.event_count:
                spans += _line_waits(line, is_next, is_input)
    return _union(spans)


def _line_waits(
    line: Line, is_next: npt.NDArray[np.bool_], is_input: npt.NDArray[np.bool_]
) -> list[tuple[Int64s, Int64s]]:
    columns = line.columns(stats=("step_num",))
    start, rows = columns.start_ps, columns.metadata
    end = start + columns.duration_ps
    is_marker = columns.stat("step_num").present()
    order = natural_order(start, columns.duration_ps)
    if order is not None:
        start, end, rows = start[order], end[order], rows[order]
        is_marker = is_marker[order]
    found = [(start[is_next[rows]], end[is_next[rows]])]
    # Right below the marker of a step: what the training loop itself calls input.
    for marker in np.flatnonzero(is_marker).tolist():
        last = int(np.searchsorted(start, end[marker], side="left"))
        inside = np.arange(marker + 1, last)
        below = inside[outermost(start[inside], end[inside])]
        below = below[is_input[rows[below]] & (end[below] <= end[marker])]
        found.append((start[below], end[below]))
    return found


def _spans(line: Line) -> tuple[Int64s, Int64s]:
    columns = line.columns()
    return columns.start_ps, columns.start_ps + columns.duration_ps


def _union(spans: list[tuple[Int64s, Int64s]]) -> Union:
    none = np.zeros(0, np.int64)
    return union(
        np.concatenate([none, *(start for start, _ in spans)]),
        np.concatenate([none, *(end for _, end in spans)]),
    )
