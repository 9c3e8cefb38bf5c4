"""Operations on a host's threads: TensorFlow's, tf.data's and input-pipeline stages."""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels.activities import match_activities
from podscope_analyzers.op_metrics.database import IDLE, OpDatabase
from podscope_analyzers.op_metrics.grouping import first_nonzero, group_rows
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.op_names import (
    FrameworkOp,
    OpCategory,
    is_infeed_enqueue_type,
    parse_op_name,
)
from podscope_analyzers.plane_views import (
    MetadataTable,
    OpLine,
    OpPlane,
    notable_columns,
    notable_steps,
)
from podscope_analyzers.step_times import StepTimes

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

STAGE_ID: Final = "_ipl_stage_id"
STAGE_CATEGORY: Final = "_ipl_stage_cat"
_STATS: Final = (STAGE_ID, STAGE_CATEGORY, "tf_op", "is_eager")


@dataclass(frozen=True)
class _OpColumns:
    """The table of operations as columns, shape (r,).

    Attributes:
        key: Number of name and module together.
    """

    names: Int64s
    types: Int64s
    modules: Int64s
    infeed: Bools
    key: NDArray[np.intp]


@dataclass
class _OpTable:
    """Operations by definition: a stage's or event metadata's id.

    Attributes:
        rows: Row of every defined id.
        names, types: Codes of name and category of every row.
        modules: Stage id of a stage, 0 of any other operation.
    """

    texts: TextTable = field(default_factory=TextTable)
    rows: dict[int, int] = field(default_factory=dict)
    names: list[int] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    modules: list[int] = field(default_factory=list)
    infeed: list[bool] = field(default_factory=list)
    _columns: _OpColumns | None = None

    def add(self, name: str, op_type: str, module: int) -> int:
        self.names.append(self.texts.code(name))
        self.types.append(self.texts.code(op_type))
        self.modules.append(module)
        self.infeed.append(is_infeed_enqueue_type(op_type))
        return len(self.names) - 1

    def columns(self) -> _OpColumns:
        """All operations so far; made anew only when there are more: a host has many lines."""
        if self._columns is None or len(self._columns.names) != len(self.names):
            names, types, modules = (
                np.asarray(listed, np.int64) for listed in (self.names, self.types, self.modules)
            )
            key, _ = group_rows(np.stack([modules, names]))
            infeed = np.asarray(self.infeed, np.bool_)
            self._columns = _OpColumns(names, types, modules, infeed, key)
        return self._columns


@dataclass(frozen=True)
class _Activities:
    """Activities of one line: rows of the op table, with times in file order."""

    row: Int64s
    start_ps: Int64s
    duration_ps: Int64s
    step: Int64s
    is_eager: NDArray[np.bool_]


def host_plane_ops(plane: OpPlane) -> OpDatabase:
    """Operations on the threads of one host plane; total times add over threads."""
    table = _OpTable()
    table.texts.code(IDLE)
    rows = [_define(plane, line, table) for line in plane.lines]
    of_text: dict[str, int] = {}
    parts = [
        _line_database(_activities(line, keys, table, of_text), table)
        for line, keys in zip(plane.lines, rows, strict=True)
        if not line.is_derived
    ]
    combined = OpDatabase.combine(parts, add_cores=False)
    return replace(combined, step_times=combined.step_times.bounded())


def _define(plane: OpPlane, line: OpLine, table: _OpTable) -> tuple[Int64s, Int64s]:
    """Defines the operations of a line's events.

    Returns:
        The distinct keys of the line, ascending, and which of them every event has.
    """
    columns = notable_columns(line, _STATS)
    metadata = plane.event_metadata
    stage = columns.stat(STAGE_ID)
    is_stage = stage.present()
    has_stages = bool(is_stage.any())
    ids = _ids(metadata)
    found: list[tuple[int, int, str, str, int]] = []
    plain = np.flatnonzero(~is_stage)
    first = np.full(len(metadata), -1, np.int64)
    # Assigned from the last to the first, so that the first stays.
    first[columns.metadata[plain[::-1]]] = plain[::-1]
    for row in np.flatnonzero(first >= 0).tolist():
        if row == metadata.empty_row or int(ids[row]) in table.rows:
            continue
        op = parse_op_name(metadata.names[row])
        if op.category != OpCategory.UNKNOWN:
            at = int(first[row]) if has_stages else 0
            found.append((at, int(ids[row]), op.name, op.type, 0))
    if has_stages:
        events = np.flatnonzero(is_stage)
        codes, categories = columns.stat(STAGE_CATEGORY).strings()
        stages = np.stack(
            [stage.ints()[events], codes[events].astype(np.int64), columns.metadata[events]]
        )
        for at in group_rows(stages)[1].tolist():
            key, code, row = (int(part) for part in stages[:, at])
            name = metadata.names[row]
            if code < 0 or not name:
                continue
            # A stage of no category has the type that its name gives.
            op = FrameworkOp(OpCategory.UNKNOWN, name, categories[code])
            op = op if op.type else parse_op_name(name)
            found.append((int(events[at]), key, op.name, op.type, key))
    for _, key, name, op_type, module in sorted(found):
        if key not in table.rows:
            table.rows[key] = table.add(name, op_type, module)
    # Keys by metadata row, then those of stages: never an array as long as an id is large.
    if not has_stages:
        return ids, columns.metadata.astype(np.int64)
    stage_keys, of_event = np.unique(stage.ints(), return_inverse=True)
    index = np.where(is_stage, len(metadata) + of_event, columns.metadata)
    return np.concatenate([ids, stage_keys]), index


def _ids(metadata: MetadataTable) -> Int64s:
    """The id of every row; rows that preparation added follow the largest of the file."""
    stored = metadata.ids
    added = len(metadata) - len(stored) - 1
    last = int(stored[-1]) if len(stored) else 0
    # A file may take the largest id there is for itself.
    last = min(last, np.iinfo(np.int64).max - 1 - added)
    return np.concatenate([stored, [0], last + 1 + np.arange(added)])


def _is_eager(line: OpLine) -> Bools:
    """Which notable events ran eagerly, or which of all where the line does not tell these."""
    is_eager: Bools = line.is_eager == 1
    return is_eager if line.notable is None else is_eager[line.notable.events]


def _activities(
    line: OpLine, keys: tuple[Int64s, Int64s], table: _OpTable, of_text: dict[str, int]
) -> _Activities:
    """The activities of a line: its events that are operations, and their ``tf_op`` stats."""
    columns = notable_columns(line, _STATS)
    distinct, index = keys
    row_of_key = np.full(len(distinct), -1, np.int64)
    # A line has few of the keys that the plane has.
    used = np.flatnonzero(np.bincount(index, minlength=len(distinct)))
    row_of_key[used] = [table.rows.get(key, -1) for key in distinct[used].tolist()]
    row = row_of_key[index]
    events = np.flatnonzero(row >= 0)
    start, duration = columns.start_ps, columns.duration_ps
    tf_op = columns.stat("tf_op")
    if not tf_op.present().any():
        if not len(events):
            # Most lines have no operations, and then nobody wants to know their steps.
            return _Activities(events, events, events, events, np.zeros(0, np.bool_))
        step, is_eager = notable_steps(line)[events], _is_eager(line)[events]
        return _Activities(row[events], start[events], duration[events], step, is_eager)
    codes, texts = tf_op.strings()
    # After the event itself comes the operation that its stat names.
    op_row = np.full(len(texts) + 1, -1, np.int64)
    for code, text in enumerate(texts):
        if text:
            if text not in of_text:
                op = parse_op_name(text)
                of_text[text] = table.add(op.name, op.type, 0)
            op_row[code] = of_text[text]
    named = op_row[codes]
    also = np.flatnonzero(named >= 0)
    order = np.argsort(np.concatenate([2 * events, 2 * also + 1]), kind="stable")
    both = np.concatenate([events, also])[order]
    return _Activities(
        np.concatenate([row[events], named[also]])[order],
        start[both],
        duration[both],
        notable_steps(line)[both],
        np.concatenate([_is_eager(line)[events], np.zeros(len(also), np.bool_)])[order],
    )


def _line_database(activities: _Activities, table: _OpTable) -> OpDatabase:
    start, duration = activities.start_ps, activities.duration_ps
    matched = match_activities(start, duration)
    ended = np.flatnonzero(matched.ended_at >= 0)
    ended = ended[np.argsort(matched.ended_at[ended])]
    row = activities.row[ended]
    ops = table.columns()
    # Operations of one line are numbered by who ends first.
    used, first, group = np.unique(ops.key[row], return_index=True, return_inverse=True)
    rank = np.empty(len(used), np.int64)
    rank[np.argsort(first)] = np.arange(len(used))
    group = rank[group]
    first = np.sort(first)
    count = len(first)
    first_row = row[first]
    sums = {
        name: _sum(group, values[ended], count)
        for name, values in (("time_ps", duration), ("self_time_ps", matched.self_ps))
    }
    eager = np.zeros(count, np.bool_)
    eager[group[activities.is_eager[ended]]] = True
    infeed = ended[ops.infeed[row]]
    total = int((start + duration).max() - start.min()) if len(start) else 0
    database = OpDatabase.build(
        {
            "name": ops.names[first_row],
            # The first that has one: the same operation may come from a stat without type.
            "category": first_nonzero(group, ops.types[row], count),
            "module_id": ops.modules[first_row],
            "occurrences": np.bincount(group, minlength=count),
            "is_eager": eager,
            **sums,
        },
        table.texts,
        step_times=StepTimes.of(group, activities.step[ended], matched.self_ps[ended]),
        total_op_time_ps=int(sums["self_time_ps"].sum()),
        infeed_enqueue_ps=int(duration[infeed[:-1]].sum()),
        infeed_enqueue_start_difference_ps=int(np.diff(start[infeed]).sum()),
    )
    return database.with_total_time(total).with_idle()


def _sum(group: NDArray[np.intp], values: Int64s, count: int) -> Int64s:
    total = np.zeros(count, np.int64)
    np.add.at(total, group, values)
    return total
