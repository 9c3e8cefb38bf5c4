"""Times of operations by step, of many hosts as columns: summed over the steps that all have.

Every host counts its own steps, and which of them are common depends on all hosts. So the times are
kept by the host's own steps, and summed when they are read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.step_times import StepTimes
from podscope_analyzers.steps.database import StepDatabase

Int64s = NDArray[np.int64]

_PER_HOST: Final = ("cells", "first", "last")
_PER_CELL: Final = ("op", "step", "self_ps")


@dataclass(frozen=True)
class PodStepTimes:
    """Self times of the operations at the top by step, one host after the other.

    Attributes:
        names: Names of operations, each once with each of its programs.
        modules: Their programs, shape (k,).
        hosts: Int64 arrays of shape (h,) by name: how many ``cells`` each host has, and the
            ``first`` and ``last`` of its steps that are known, as places among its own.
        cells: Columns: ``op`` into ``names``, ``step`` as a place, both int32, and ``self_ps``.
    """

    names: tuple[str, ...]
    modules: Int64s
    hosts: Mapping[str, Int64s]
    cells: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, hosts: Sequence[tuple[OpDatabase, StepDatabase]]) -> "PodStepTimes":
        """The times of some hosts, in this order, with the steps that they are of."""
        keys: dict[tuple[int, str], int] = {}
        rows, cells = [], []
        for ops, steps in hosts:
            times, numbers = ops.step_times, steps.step_numbers
            at = np.searchsorted(numbers, times.step)
            kept = np.flatnonzero((at < len(numbers)) & (times.op < ops.top_count))
            kept = kept[numbers[at[kept]] == times.step[kept]]
            used, place = np.unique(times.op[kept], return_inverse=True)
            codes = [
                keys.setdefault(
                    (int(ops.columns["module_id"][op]), ops.text("name", op)), len(keys)
                )
                for op in used.tolist()
            ]
            first = int(np.searchsorted(numbers, times.first))
            last = int(np.searchsorted(numbers, times.last, side="right")) - 1
            rows.append((len(kept), first, last))
            cells.append(
                (
                    np.array(codes, np.int32)[place],
                    at[kept].astype(np.int32),
                    times.self_ps[kept],
                )
            )
        table = np.array(rows, np.int64).reshape(-1, len(_PER_HOST)).T
        return cls(
            tuple(name for _, name in keys),
            np.array([module for module, _ in keys], np.int64),
            dict(zip(_PER_HOST, table, strict=True)),
            {
                name: np.concatenate([np.zeros(0, kind), *(cell[at] for cell in cells)])
                for at, (name, kind) in enumerate(
                    zip(_PER_CELL, (np.int32, np.int32, np.int64), strict=True)
                )
            },
        )

    @classmethod
    def concatenate(cls, parts: Sequence["PodStepTimes"]) -> "PodStepTimes":
        """The hosts of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        keys: dict[tuple[int, str], int] = {}
        ops = []
        for part in parts:
            own = zip(part.modules.tolist(), part.names, strict=True)
            codes = np.array([keys.setdefault(key, len(keys)) for key in own], np.int32)
            ops.append(codes[part.cells["op"]])
        joined = {
            name: np.concatenate([part.cells[name] for part in parts]) for name in _PER_CELL[1:]
        }
        return cls(
            tuple(name for _, name in keys),
            np.array([module for module, _ in keys], np.int64),
            {name: np.concatenate([part.hosts[name] for part in parts]) for name in _PER_HOST},
            {"op": np.concatenate(ops), **joined},
        )

    def common(self, ops: OpDatabase, first_step: Int64s, step_count: int) -> StepTimes:
        """Sums over the hosts in the steps that all have, numbered from 0.

        Args:
            ops: Of all the hosts; the rows that the result is of.
            first_step: Place of the first common step among the own ones of each host, shape (h,);
                -1 for a host that takes no part.
            step_count: Common steps.
        """
        # A host knows the times of some of its steps only.
        first = np.maximum(self.hosts["first"] - first_step, 0)
        last = np.minimum(self.hosts["last"] - first_step, step_count - 1)
        takes_part = (first_step >= 0) & (first <= last)
        host = np.repeat(np.arange(len(first_step)), self.hosts["cells"])
        step = self.cells["step"] - first_step[host]
        kept = np.flatnonzero(takes_part[host] & (step >= 0) & (step < step_count))
        known = distinct(host[kept])
        if not len(known):
            return StepTimes()
        begin, end = int(first[known].max()), int(last[known].min())
        row = self._rows(ops)[self.cells["op"][kept]]
        step = step[kept]
        rows = np.flatnonzero((step >= begin) & (step <= end) & (row >= 0))
        return StepTimes.summed(
            row[rows], step[rows].astype(np.int64), self.cells["self_ps"][kept[rows]], begin, end
        )

    def _rows(self, ops: OpDatabase) -> Int64s:
        """Rows of the operations in a database, shape (k,); -1 for those that it lacks."""
        own = zip(ops.top("module_id").tolist(), ops.text_column("name"), strict=False)
        place = {key: row for row, key in enumerate(own)}
        keys = zip(self.modules.tolist(), self.names, strict=True)
        return np.array([place.get(key, -1) for key in keys], np.int64)

    def to_state(self) -> dict[str, Any]:
        """The times as arrays and texts."""
        texts = TextTable()
        names = texts.codes(self.names)
        return {
            "texts": list(texts.texts()),
            "names": names,
            "modules": self.modules,
            "hosts": dict(self.hosts),
            "cells": dict(self.cells),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "PodStepTimes":
        """The times that ``to_state`` wrote."""
        texts = state["texts"]
        names = tuple(texts[code] for code in state["names"].tolist())
        return cls(names, state["modules"], state["hosts"], state["cells"])
