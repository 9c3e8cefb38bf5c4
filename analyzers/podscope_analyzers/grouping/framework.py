"""The line of framework operations that a TPU's own operations add up to."""

from functools import partial
from typing import Final

import numpy as np

from podscope_analyzers.kernels.forest import merge_runs
from podscope_analyzers.kernels.spans import by_time
from podscope_analyzers.op_names import display_name, parse_op_name
from podscope_analyzers.planes import DERIVED_FRAMEWORK_OPS, FRAMEWORK_OPS
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.prepared_lines import derived_line
from podscope_analyzers.prepared_metadata import PreparedMetadata
from podscope_analyzers.xspace import Columns
from podscope_analyzers.xspace.columns import Bools, Int32s, Int64s


def derive_framework_ops(plane: PreparedPlane) -> None:
    """Adds a line with one event for each run of events of the same framework operation."""
    codes: dict[str, int] = {}
    found = [named_events(line, "tf_op", codes) for line in plane.lines if line.event_count]
    if not codes:
        return
    code, start, duration, group = (
        np.concatenate([part[field] for part in found]) for field in range(4)
    )
    if not len(code):
        return
    order = by_time(start, duration)
    code, start, group = code[order].astype(np.int32), start[order], group[order]
    end = start + duration[order]
    run = np.empty(len(order), np.int32)
    merge_runs(code, group, start, end, run)
    first = np.flatnonzero(np.append(True, run[1:] != run[:-1]))
    rows = np.array(
        [plane.event_metadata.add(name, display_name(parse_op_name(name))) for name in codes],
        np.int32,
    )
    plane.lines = (
        *plane.lines,
        derived_line(
            plane,
            name=FRAMEWORK_OPS,
            line_id=DERIVED_FRAMEWORK_OPS,
            metadata=rows[code[first]],
            start_ps=start[first],
            duration_ps=np.maximum.reduceat(end, first) - start[first],
            group_id=group[first],
        ),
    )


FRAMEWORK_STATS: Final = frozenset({"tf_op", "_a"})


def framework_span(plane: PreparedPlane) -> tuple[int, int] | None:
    """First begin and last end of the events that would be on the line; None without any."""
    begins, ends = [], []
    codes: dict[str, int] = {}
    table = plane.event_metadata
    for line in plane.lines:
        if not line.event_count:
            continue
        survey = line.survey(FRAMEWORK_STATS)
        if survey is not None and survey.has_none(FRAMEWORK_STATS):
            rows = survey.rows
            named = table.made_of(rows, "framework operations", partial(_named, table, rows))
            if named:
                begins.append(int(survey.first_ps[named].min()))
                ends.append(int(survey.last_ps[named].max()))
            continue
        columns = line.columns(FRAMEWORK_STATS & plane.stat_names)
        kept = _kept(columns, _codes(columns, line, "tf_op", codes))
        if kept.any():
            whole = slice(None) if kept.all() else kept
            begins.append(int(columns.start_ps[whole].min()))
            ends.append(int((columns.start_ps + columns.duration_ps)[whole].max()))
    return (min(begins), max(ends)) if begins else None


def _named(table: PreparedMetadata, rows: Int64s) -> list[int]:
    return [row for row in rows.tolist() if _text_of_row(table, row, "tf_op")]


def named_events(
    line: PreparedLine, stat: str, codes: dict[str, int]
) -> tuple[Int32s, Int64s, Int64s, Int64s]:
    """The events of which a text is told, by themselves or else by their metadata.

    Asynchronous events are left out.

    Args:
        line: Whose events.
        stat: The name of the text's stat.
        codes: Numbers of the texts; new ones are added.

    Returns:
        Number of the text, start, duration and group, all (n,).
    """
    columns = line.columns({stat, "_a"} & line.plane.stat_names)
    code = _codes(columns, line, stat, codes)
    kept = _kept(columns, code)
    return (
        code[kept],
        columns.start_ps[kept],
        columns.duration_ps[kept],
        line.group_id[kept],
    )


def _codes(columns: Columns, line: PreparedLine, stat: str, codes: dict[str, int]) -> Int32s:
    """Number of every event's text, -1 for none, shape (n,)."""
    table = line.plane.event_metadata
    of_rows = np.full(len(table), -1, np.int32)
    rows = np.flatnonzero(np.bincount(columns.metadata, minlength=len(table)))
    # Equal lines of a chip's cores share the table, and have the same rows.
    said = table.made_of(rows, (stat, line.name), partial(_texts, table, rows, stat))
    for row, text in said:
        of_rows[row] = codes.setdefault(text, len(codes))
    code = of_rows[columns.metadata]
    if stat in columns.stat_names and columns.stat(stat).kind.any():
        own, texts = columns.stat(stat).strings()
        of_texts = [codes.setdefault(text, len(codes)) if text else -1 for text in texts]
        numbered = np.array([*of_texts, -1], np.int32)[own]
        code = np.where(own >= 0, numbered, code)
    return code


def _texts(table: PreparedMetadata, rows: Int64s, stat: str) -> list[tuple[int, str]]:
    """The rows that say something, with what they say."""
    return [(row, text) for row in rows.tolist() if (text := _text_of_row(table, row, stat))]


def _text_of_row(table: PreparedMetadata, row: int, stat: str) -> str:
    """What the metadata of a row says; empty where it says nothing."""
    text = table.stats(row).get(stat)
    return text if isinstance(text, str) else ""


def _kept(columns: Columns, code: Int32s) -> Bools:
    """The events that have a framework operation and are not asynchronous, shape (n,)."""
    kept = code >= 0
    if "_a" in columns.stat_names and columns.stat("_a").kind.any():
        kept &= columns.stat("_a").ints() == 0
    return kept
