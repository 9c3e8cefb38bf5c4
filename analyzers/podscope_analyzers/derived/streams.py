"""Derived lines of a GPU's streams: what the kernels on each are part of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from podscope_analyzers.derived.framework import framework_scopes
from podscope_analyzers.derived.rows import merged_line
from podscope_analyzers.derived.scopes import scope_stack
from podscope_analyzers.hlo.instructions import Instruction
from podscope_analyzers.hlo.programs import Programs
from podscope_analyzers.kernels.levels import MAX_LEVELS, Merged, Paths, merge_levels
from podscope_analyzers.op_metrics.grouping import group_rows
from podscope_analyzers.op_names import display_name, parse_op_name
from podscope_analyzers.planes import (
    COMMAND_BUFFERS,
    DERIVED_PER_STREAM,
    DERIVED_STREAMS,
    FRAMEWORK_OPS,
    MAX_DERIVED_STREAMS,
    NAME_SCOPE,
    SOURCE,
    XLA_MODULES,
    XLA_OPS,
)
from podscope_analyzers.prepared import DerivedStat, PreparedLine, PreparedPlane
from podscope_analyzers.prepared_metadata import PreparedMetadata
from podscope_analyzers.xspace import Columns
from podscope_analyzers.xspace.columns import UINT64, Bools, Int32s, Int64s

_STATS: Final = (
    "kernel_details",
    "cuda_graph_exec_id",
    "cuda_graph_id",
    "correlation_id",
    "hlo_op",
    "hlo_module",
    "program_id",
    "tf_op",
    "scope_range_id",
)
_LINES: Final = (NAME_SCOPE, FRAMEWORK_OPS, XLA_MODULES, XLA_OPS, SOURCE, COMMAND_BUFFERS)
_UNSIGNED: Final = 1 << 64


def stream_lines(
    plane: PreparedPlane, programs: Programs, parents: Mapping[int, int]
) -> tuple[PreparedLine, ...]:
    """The lines of the streams of one GPU, the busiest compute streams' first.

    Args:
        plane: The GPU.
        programs: Programs of the capture: they know framework names and source lines.
        parents: See ``scope_parents``.
    """
    streams = [line for line in plane.lines if not line.is_derived]
    streams.sort(key=lambda line: ("Compute" not in line.name, -line.event_count))
    found: list[PreparedLine] = []
    for number, line in enumerate(streams[:MAX_DERIVED_STREAMS]):
        if line.event_count:
            found.extend(_Stream(line, programs, parents).lines(number))
    return tuple(found)


@dataclass(frozen=True)
class _Kind:
    """What events of one kind are part of, as levels of the derived lines."""

    scopes: Sequence[int] = ()
    operation: Sequence[int] = ()
    module: Sequence[int] = ()
    hlo: Sequence[int] = ()
    source: Sequence[int] = ()


class _Stream:
    """The kernels and graph launches of one stream, in order of time, shape (n,) each."""

    def __init__(self, line: PreparedLine, programs: Programs, parents: Mapping[int, int]) -> None:
        self.line = line
        columns = line.columns(_STATS)
        codes, texts = columns.stat("kernel_details").strings()
        kept = np.array([*map(bool, texts), False])[codes]
        kept |= columns.stat("cuda_graph_exec_id").present()
        at = np.flatnonzero(kept)
        at = at[np.lexsort((columns.duration_ps[at], columns.start_ps[at]))]
        self.start: Int64s = columns.start_ps[at]
        self.end: Int64s = self.start + columns.duration_ps[at]
        self.group: Int64s = line.group_id[at]
        self.kind, self.kinds = _kinds(line.plane.event_metadata, columns, at, programs)
        self.scope, stacks = _scopes(columns, at, parents)
        self.scopes = Paths.of(stacks)
        # A program is told apart by the outermost range, its operations at each level.
        self.outermost = Paths.of([stack[:1] for stack in stacks])
        graph = columns.stat("cuda_graph_id")
        self.graph: Int64s = np.where(graph.kind == UINT64, graph.raw, 0)[at]
        correlation = columns.stat("correlation_id")
        self.is_correlated: Bools = correlation.present()[at]
        self.correlation: Int64s = correlation.ints_or_uints()[at]

    def lines(self, number: int) -> list[PreparedLine]:
        """The derived lines of the stream, which is the one shown at place ``number``."""
        modules = self._merged([kind.module for kind in self.kinds], scopes=self.outermost)
        anew = np.cumsum(modules.renewed, dtype=np.int64)
        graphs = self._graphs(anew)
        hlo = self._merged(
            [kind.hlo for kind in self.kinds], scopes=self.scopes, shrinks=True, epoch=anew
        )
        scopes = self._merged([kind.scopes for kind in self.kinds], shrinks=True, epoch=anew)
        anew = anew + np.cumsum(scopes.renewed, dtype=np.int64)
        operations = self._merged([kind.operation for kind in self.kinds], epoch=anew)
        sources = self._merged([kind.source for kind in self.kinds])
        found: list[PreparedLine] = []
        merged = (scopes, operations, modules, hlo, sources, graphs)
        for place, (name, events) in enumerate(zip(_LINES, merged, strict=True)):
            has_graphs = events is hlo or events is graphs
            found.extend(
                merged_line(
                    self.line.plane,
                    events,
                    self.group,
                    name=f"{name} - from #{self.line.id}",
                    line_id=DERIVED_STREAMS + DERIVED_PER_STREAM * number + place,
                    display_id=(DERIVED_PER_STREAM + 1) * number + place + 2,
                    stats=self._graph_stats(events) if has_graphs else None,
                )
            )
        return found

    def _merged(
        self,
        levels: Sequence[Sequence[int]],
        *,
        scopes: Paths | None = None,
        shrinks: bool = False,
        epoch: Int64s | None = None,
    ) -> Merged:
        return merge_levels(
            self.kind,
            Paths.of(levels),
            self.start,
            self.end,
            self.group,
            limits_gaps=False,
            shrinks=shrinks,
            # As the reference does: what is last on its stream keeps its length.
            shrinks_last=False,
            scope=None if scopes is None else self.scope,
            scopes=scopes,
            epoch=epoch,
        )

    def _graphs(self, epoch: Int64s) -> Merged:
        """Runs of the launches that belong to one command buffer."""
        graphs, path = np.unique(self.graph, return_inverse=True)
        metadata = self.line.plane.event_metadata
        rows = [metadata.add(f"Command Buffer {graph % _UNSIGNED}") for graph in graphs.tolist()]
        correlations, scope = np.unique(self.correlation, return_inverse=True)
        return merge_levels(
            np.where(self.graph != 0, path, -1).astype(np.int32),
            Paths.of([[row] for row in rows]),
            self.start,
            self.end,
            self.group,
            limits_gaps=False,
            scope=np.where(self.is_correlated, scope, -1).astype(np.int32),
            scopes=Paths.of([[value] for value in correlations.tolist()]),
            epoch=epoch,
        )

    def _graph_stats(self, events: Merged) -> dict[str, DerivedStat]:
        """The command buffer of events that have one, of those merged the last."""
        count = len(events.code)
        stats: dict[str, DerivedStat] = {}
        in_graph = (self.graph != 0) & (events.into >= 0)
        for name, values, told in (
            ("correlation_id", self.correlation.view(np.uint64), in_graph & self.is_correlated),
            ("cuda_graph_id", self.graph.view(np.uint64), in_graph),
        ):
            present, latest = np.zeros(count, np.bool_), np.zeros(count, values.dtype)
            present[events.into[told]] = True
            latest[events.into[told]] = values[told]
            stats[name] = present, latest
        return stats


def _scopes(
    columns: Columns, at: Int64s, parents: Mapping[int, int]
) -> tuple[Int32s, list[list[int]]]:
    """The range of every event, -1 for none, and of each the ranges around it, outermost first."""
    stat = columns.stat("scope_range_id")
    present = stat.present()[at]
    ranges, code = np.unique(stat.ints()[at], return_inverse=True)
    stacks = [scope_stack(scope, parents) for scope in ranges.tolist()]
    return np.where(present, code, -1).astype(np.int32), stacks


def _kinds(
    metadata: PreparedMetadata, columns: Columns, at: Int64s, programs: Programs
) -> tuple[Int32s, list[_Kind]]:
    """The kind of every event, shape (n,), and what each kind is part of."""
    program = columns.stat("program_id")
    tables = {}
    parts = [program.ints_or_uints()[at], program.present()[at].astype(np.int64)]
    for name in ("hlo_op", "hlo_module", "tf_op"):
        codes, tables[name] = columns.stat(name).strings()
        parts.append(codes[at].astype(np.int64))
    kind, first = group_rows(np.stack(parts))
    kinds = []
    for event in first.tolist():
        program_id = int(parts[0][event]) % _UNSIGNED if parts[1][event] else None
        texts = {
            name: tables[name][int(code[event])] if code[event] >= 0 else None
            for name, code in zip(tables, parts[2:], strict=True)
        }
        kinds.append(_kind(metadata, programs, program_id, **texts))
    return kind.astype(np.int32), kinds


def _kind(
    metadata: PreparedMetadata,
    programs: Programs,
    program_id: int | None,
    hlo_op: str | None,
    hlo_module: str | None,
    tf_op: str | None,
) -> _Kind:
    module: list[int] = []
    if hlo_module:
        title = hlo_module if program_id is None else f"{hlo_module}({program_id})"
        module = [metadata.add(title)]
    if hlo_op is None:
        return _Kind(*_framework(metadata, tf_op), module=module)
    program = hlo_module or "" if program_id is None else str(program_id)
    components = hlo_op.split("::", MAX_LEVELS)[:MAX_LEVELS]
    hlo = [metadata.add(f"{program}/{name}", name) for name in components]
    innermost = hlo_op.rpartition("::")[2]
    instruction = None if program_id is None else programs.instruction(program_id, innermost)
    if instruction is None:
        return _Kind(module=module, hlo=hlo)
    return _Kind(
        *_framework(metadata, instruction.framework_name),
        module=module,
        hlo=hlo,
        source=_source(metadata, instruction),
    )


def _framework(metadata: PreparedMetadata, name: str | None) -> tuple[list[int], list[int]]:
    """Levels of the name's scopes, and of the operation itself."""
    if not name:
        return [], []
    operation = metadata.add(name, display_name(parse_op_name(name)))
    return [metadata.add(scope) for scope in framework_scopes(name)], [operation]


def _source(metadata: PreparedMetadata, instruction: Instruction) -> list[int]:
    source = instruction.source
    if not source.file:
        return []
    return [metadata.add(f"{source.file.rsplit('/', 1)[-1]}:{source.line}")]
