"""Operations of GPUs: kernels on streams, matched to HLO instructions or framework ops."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.hlo import Instruction, Programs
from podscope_analyzers.hlo.cost import UNKNOWN_COST, instruction_cost
from podscope_analyzers.hlo.custom_calls import stated_cost
from podscope_analyzers.op_metrics.database import (
    TEXT_COLUMNS,
    Access,
    CostSource,
    MemoryAccesses,
    MemorySpace,
    OpDatabase,
)
from podscope_analyzers.op_metrics.grouping import group_rows
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.op_names import parse_op_name
from podscope_analyzers.plane_views import OpLine, OpPlane
from podscope_analyzers.step_times import StepTimes

Int64s = NDArray[np.int64]

_INT64_MAX: Final = (1 << 63) - 1
_STATS: Final = ("hlo_op", "program_id", "tf_op", "flops", "bytes_accessed")


@dataclass(frozen=True)
class _Key:
    """What makes an operation: an instruction, or a kernel of a framework operation."""

    module_id: int
    name: str
    instruction: Instruction | None = None
    category: str = ""
    provenance: str = ""


class _Keys:
    """The operations of a plane, numbered in order of their first run."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._numbers: dict[tuple[int, str], int] = {}
        self._instructions: dict[tuple[int, str], Instruction | None] = {}
        self.keys: list[_Key] = []

    def instruction(self, program_id: int, name: str) -> Instruction | None:
        key = program_id, name
        if key not in self._instructions:
            self._instructions[key] = self._programs.instruction(*key)
        return self._instructions[key]

    def number(self, key: _Key) -> int:
        number = self._numbers.setdefault((key.module_id, key.name), len(self.keys))
        if number == len(self.keys):
            self.keys.append(key)
        return number


@dataclass(frozen=True)
class _Runs:
    """Runs of one line, shape (r,)."""

    key: Int64s
    step: Int64s
    occurrences: Int64s
    time_ps: Int64s
    stat_flops: Int64s
    stat_bytes: Int64s
    is_eager: NDArray[np.bool_]


def gpu_plane_ops(plane: OpPlane, programs: Programs) -> OpDatabase:
    """Operations of one GPU; streams overlap, so their sum may exceed the time looked at."""
    keys = _Keys(programs)
    first, last = None, 0
    runs: list[_Runs] = []
    for line in plane.lines:
        if line.is_derived:
            continue
        columns = line.columns(_STATS)
        if len(columns):
            # Offsets within the line, as in the reference: lines may start at different times.
            offset = columns.start_ps - line.timestamp_ns * 1000
            begin, end = int(offset.min()), int((offset + columns.duration_ps).max())
            first = begin if first is None else min(first, begin)
            last = max(last, end)
            runs.append(_line_runs(plane, line, keys))
    span = last - first if first is not None and last else 0
    database = _database(runs, keys)
    return database.with_total_time(span).with_idle()


def _line_runs(plane: OpPlane, line: OpLine, keys: _Keys) -> _Runs:
    columns = line.columns(_STATS)
    hlo_codes, paths = columns.stat("hlo_op").strings()
    # Of nested operations `a::b::c` the innermost ran; -1 for an absent name. An empty one is of
    # no instruction, so that its event counts for nothing.
    innermost: dict[str, int] = {}
    op_of_code = np.full(len(paths) + 1, -1, np.int64)
    for code, path in enumerate(paths):
        op_of_code[code] = innermost.setdefault(path.rsplit("::", 1)[-1], len(innermost))
    names = list(innermost)
    op = op_of_code[hlo_codes]
    tf_codes, frameworks = columns.stat("tf_op").strings()
    is_named = np.array([*map(bool, frameworks), False])[tf_codes]
    is_framework = is_named & (op < 0)
    program = columns.stat("program_id").ints_or_uints()
    op = np.where(_is_known(op, program, names, keys), op, -1)
    used = np.flatnonzero((op >= 0) | is_framework)
    op, program, group = op[used], program[used], line.group_id[used]
    starts = np.ones(len(used), np.bool_)
    starts[1:] = (op[1:] < 0) | (op[1:] != op[:-1]) | (group[1:] < 0) | (group[1:] != group[:-1])
    begin = np.flatnonzero(starts)
    length = np.diff(np.append(begin, len(used)))
    head, tail = used[begin], used[begin + length - 1]
    is_hlo = op[begin] >= 0
    # Kinds of runs: operation and program, or framework name (below -1) and kernel.
    kinds = np.stack(
        [
            np.where(is_hlo, op[begin], -2 - tf_codes[head].astype(np.int64)),
            np.where(is_hlo, program[begin], columns.metadata[head]),
        ]
    )
    kind, first = group_rows(kinds)
    kernels = plane.event_metadata.names
    numbers = np.zeros(len(first), np.int64)
    for index, at in enumerate(first.tolist()):
        one, other = int(kinds[0, at]), int(kinds[1, at])
        if one >= 0:
            instruction = keys.instruction(other, names[one])
            numbers[index] = keys.number(_Key(other, names[one], instruction))
        else:
            numbers[index] = keys.number(_framework_key(frameworks[-2 - one], kernels[other]))
    duration = columns.duration_ps[used]
    return _Runs(
        numbers[kind],
        group[begin].astype(np.int64),
        length,
        np.add.reduceat(duration, begin) if len(begin) else duration,
        np.where(is_hlo, columns.stat("flops").ints_or_uints()[tail], 0) * length,
        np.where(is_hlo, columns.stat("bytes_accessed").ints_or_uints()[tail], 0) * length,
        (line.is_eager == 1)[head],
    )


def _is_known(op: Int64s, program: Int64s, names: list[str], keys: _Keys) -> NDArray[np.bool_]:
    """Which events name an instruction that the capture has, shape (n,)."""
    known = np.zeros(len(op), np.bool_)
    events = np.flatnonzero(op >= 0)
    if len(events):
        pairs = np.stack([op[events], program[events]])
        group, first = group_rows(pairs)
        found = [
            keys.instruction(int(pairs[1, at]), names[int(pairs[0, at])]) is not None
            for at in first.tolist()
        ]
        known[events] = np.array(found)[group]
    return known


def _framework_key(full_name: str, kernel: str) -> _Key:
    op = parse_op_name(full_name)
    return _Key(
        0,
        f"{op.name}/{kernel}",
        category=op.type or "unknown",
        provenance=full_name,
    )


def _database(runs: list[_Runs], keys: _Keys) -> OpDatabase:
    count = len(keys.keys)
    texts = TextTable()
    key = np.concatenate([run.key for run in runs]) if runs else np.zeros(0, np.int64)

    def total(name: str) -> Int64s:
        summed = np.zeros(count, np.int64)
        if runs:
            np.add.at(summed, key, np.concatenate([getattr(run, name) for run in runs]))
        return summed

    # Whether an operation is eager, its first run says.
    eager = np.zeros(count, np.bool_)
    if runs:
        used, first = np.unique(key, return_index=True)
        eager[used] = np.concatenate([run.is_eager for run in runs])[first]
    occurrences, time_ps = total("occurrences"), total("time_ps")
    step_times = StepTimes()
    if runs:
        steps, run_ps = (
            np.concatenate([getattr(run, name) for run in runs]) for name in ("step", "time_ps")
        )
        step_times = StepTimes.of(key, steps, run_ps).bounded()
    described = [_described(one, texts) for one in keys.keys]
    costs = [
        instruction_cost(one.instruction) if one.instruction else UNKNOWN_COST for one in keys.keys
    ]

    def analysed(name: str) -> NDArray[np.float64]:
        return np.array([getattr(cost, name) for cost in costs], np.float64) * occurrences

    stat_flops = total("stat_flops").astype(np.float64)
    stat_bytes = total("stat_bytes")
    flops, model_flops = analysed("flops"), analysed("model_flops")
    size = np.array([cost.bytes_accessed for cost in costs], np.int64) * occurrences
    used_flops = np.where(flops > 0, flops, stat_flops)
    used_model = np.where(model_flops > 0, model_flops, stat_flops)
    stated = [
        stated_cost(one.instruction.proto) if one.instruction else (0, 0) for one in keys.keys
    ]
    stated_flops, stated_bytes = np.array(stated, np.int64).reshape(-1, 2).T * occurrences
    own_flops, own_bytes = (
        np.where(flops > 0, flops, stated_flops),
        np.where(size > 0, size, stated_bytes),
    )
    from_stats = (stat_flops > 0) | (stat_bytes > 0)
    from_kernel = (stated_flops > 0) | (stated_bytes > 0)
    from_analysis = (flops > 0) | (size > 0)
    accesses = MemoryAccesses.of(
        [
            (row, MemorySpace.HBM, access, min(size_bytes * int(occurrences[row]), _INT64_MAX))
            for row, cost in enumerate(costs)
            for access, size_bytes in (
                (Access.READ, cost.read_bytes),
                (Access.WRITE, cost.written_bytes),
            )
            if size_bytes > 0
        ]
    )
    columns: dict[str, Any] = {
        name: np.array([one[name] for one in described], np.int64)
        for name in (*TEXT_COLUMNS, "source_line")
    }
    return OpDatabase.build(
        {
            **columns,
            "module_id": np.array([one.module_id for one in keys.keys], np.int64),
            "occurrences": occurrences,
            "time_ps": time_ps,
            "self_time_ps": time_ps,
            "is_eager": eager,
            "num_cores": 1,
            "flops": used_flops,
            "model_flops": np.where(used_model > 0, used_model, used_flops),
            "bytes_accessed": np.where(size > 0, size, stat_bytes),
            "own_flops": np.where(stat_flops > 0, stat_flops, own_flops),
            "own_model_flops": np.where(
                model_flops > 0, model_flops, np.where(used_flops > 0, used_flops, own_flops)
            ),
            "own_bytes_accessed": np.where(stat_bytes > 0, stat_bytes, own_bytes),
            "cost_source": np.where(
                from_stats,
                CostSource.STATS,
                np.where(
                    from_analysis, CostSource.ANALYSIS, np.where(from_kernel, CostSource.KERNEL, 0)
                ),
            ),
        },
        texts,
        accesses=accesses,
        step_times=step_times,
        total_op_time_ps=int(time_ps.sum()),
    )


def _described(key: _Key, texts: TextTable) -> dict[str, int]:
    instruction = key.instruction
    described = {
        "name": key.name,
        "long_name": "",
        "category": key.category,
        "provenance": key.provenance,
        "deduplicated_name": "",
        "source_file": "",
        "source_stack": "",
    }
    line = -1
    if instruction is not None:
        source = instruction.source
        line = source.line
        described |= {
            "long_name": instruction.expression,
            "category": instruction.category,
            "provenance": instruction.framework_name,
            "deduplicated_name": instruction.deduplicated_name,
            "source_file": source.file,
            "source_stack": source.stack,
        }
    return {name: texts.code(text) for name, text in described.items()} | {"source_line": line}
