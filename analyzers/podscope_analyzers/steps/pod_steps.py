"""Steps of many hosts as columns, host after host: those that all have are found without objects.

What is here is what each host recorded. Which steps are common depends on all hosts, so it is
found anew when one more has come; that is a few passes over the columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.steps.alignment import Alignment, align_lacking
from podscope_analyzers.steps.database import (
    CORES_PER_HOST,
    MOST_KEPT_WHOLE,
    Collectives,
    Int64s,
    StepDatabase,
    Transfers,
)
from podscope_analyzers.steps.intersection import StepIntersection, intersect_spans
from podscope_analyzers.steps.work import WIDTH, StepWork

# Columns by what they have a row of; of the rows' breakdown there are as many as categories.
_OF_STEPS: Final = ("step_numbers",)
_OF_ROWS: Final = ("row_step", "core_id", "begin_ps", "duration_ps", "name_code")
_OF_CELLS: Final = ("breakdown_ps", "in_breakdown")
_OF_TRANSFERS: Final = tuple(Transfers.__dataclass_fields__)
_OF_COLLECTIVES: Final = tuple(Collectives.__dataclass_fields__)
_OF_WORK: Final = tuple(StepWork.__dataclass_fields__)
_PER_HOST: Final = (
    "steps",
    "rows",
    "collectives",
    "is_tpu",
    "has_device",
    "has_work",
    "names",
    "categories",
    "precision_16bit_ps",
    "precision_32bit_ps",
    "steps_dropped",
    "is_intersection_empty",
)


@dataclass(frozen=True)
class PodSteps:
    """The steps of h hosts.

    Attributes:
        hosts: Int64 arrays of shape (h,) by name: how many ``steps``, ``rows`` and
            ``collectives`` each has, which of the ``names`` and ``categories`` are its, and the
            scalars of its ``StepDatabase``.
        names: Names of steps as hosts have them, each once.
        categories: Categories as hosts have them, each once.
        columns: ``StepDatabase``'s columns with the rows of all hosts, one host after the other.
            Steps and rows count from 0 in each host; breakdowns are flat.
    """

    hosts: Mapping[str, Int64s]
    names: tuple[tuple[str, ...], ...]
    categories: tuple[tuple[str, ...], ...]
    columns: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, databases: Sequence[StepDatabase]) -> "PodSteps":
        """The steps of some hosts, in this order."""
        names: dict[tuple[str, ...], int] = {}
        categories: dict[tuple[str, ...], int] = {}
        rows = [
            (
                len(d),
                len(d.row_step),
                len(d.collectives.step),
                d.kind == "tpu",
                d.has_device,
                d.work is not None,
                names.setdefault(d.names, len(names)),
                categories.setdefault(d.categories, len(categories)),
                d.precision_16bit_ps,
                d.precision_32bit_ps,
                d.steps_dropped,
                d.is_intersection_empty,
            )
            for d in databases
        ]
        table = np.array(rows, np.int64).reshape(-1, len(_PER_HOST)).T
        works = [d.work for d in databases if d.work is not None]
        columns = {
            **{n: _joined([getattr(d, n) for d in databases]) for n in (*_OF_STEPS, *_OF_ROWS)},
            **{n: _joined([getattr(d, n).ravel() for d in databases]) for n in _OF_CELLS},
            **{
                f"transfers.{n}": _joined([getattr(d.transfers, n) for d in databases], (0, 3))
                for n in _OF_TRANSFERS
            },
            **{
                f"collectives.{n}": _joined([getattr(d.collectives, n) for d in databases])
                for n in _OF_COLLECTIVES
            },
            **{
                f"work.{n}": _joined(
                    [getattr(work, n) for work in works], (0, 2, WIDTH) if n == "values" else (0,)
                )
                for n in _OF_WORK
            },
        }
        hosts = dict(zip(_PER_HOST, table, strict=True))
        return cls(hosts, tuple(names), tuple(categories), columns)

    @classmethod
    def concatenate(cls, parts: Sequence["PodSteps"]) -> "PodSteps":
        """The hosts of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        names: dict[tuple[str, ...], int] = {}
        categories: dict[tuple[str, ...], int] = {}
        hosts = []
        for part in parts:
            of_names = np.array([names.setdefault(n, len(names)) for n in part.names], np.int64)
            of_categories = np.array(
                [categories.setdefault(c, len(categories)) for c in part.categories], np.int64
            )
            hosts.append(
                {
                    **part.hosts,
                    "names": of_names[part.hosts["names"]],
                    "categories": of_categories[part.hosts["categories"]],
                }
            )
        return cls(
            {name: _joined([one[name] for one in hosts]) for name in _PER_HOST},
            tuple(names),
            tuple(categories),
            {name: _joined([p.columns[name] for p in parts]) for name in parts[0].columns},
        )

    def __len__(self) -> int:
        """How many hosts."""
        return len(self.hosts["steps"])

    def host(self, at: int) -> StepDatabase:
        """The steps of one host as it recorded them."""
        own = {name: int(values[at]) for name, values in self.hosts.items()}
        starts = self._starts
        categories = self.categories[own["categories"]]

        def cut(name: str, kind: str, count: int) -> NDArray[Any]:
            start = int(starts[kind][at])
            return self.columns[name][start : start + count]

        cells = own["rows"] * len(categories)
        shape = (own["rows"], len(categories))
        work = None
        if own["has_work"]:
            work = StepWork(*(cut(f"work.{n}", "work", own["steps"]) for n in _OF_WORK))
        return StepDatabase(
            kind="tpu" if own["is_tpu"] else "generic",
            has_device=bool(own["has_device"]),
            **{name: cut(name, "steps", own["steps"]) for name in _OF_STEPS},
            **{name: cut(name, "rows", own["rows"]) for name in _OF_ROWS},
            host_index=np.zeros(own["rows"], np.int64),
            **{name: cut(name, "cells", cells).reshape(shape) for name in _OF_CELLS},
            names=self.names[own["names"]],
            categories=categories,
            collectives=Collectives(
                *(
                    cut(f"collectives.{n}", "collectives", own["collectives"])
                    for n in _OF_COLLECTIVES
                )
            ),
            transfers=Transfers(
                *(cut(f"transfers.{n}", "steps", own["steps"]) for n in _OF_TRANSFERS)
            ),
            work=work,
            precision_16bit_ps=own["precision_16bit_ps"],
            precision_32bit_ps=own["precision_32bit_ps"],
            steps_dropped=own["steps_dropped"],
            is_intersection_empty=bool(own["is_intersection_empty"]),
        )

    @property
    def _starts(self) -> dict[str, Int64s]:
        """Where the hosts begin in the columns, by what these have a row of."""
        hosts = self.hosts
        widths = np.array([len(names) for names in self.categories], np.int64)
        counts = {
            "steps": hosts["steps"],
            "rows": hosts["rows"],
            "collectives": hosts["collectives"],
            "cells": hosts["rows"] * widths[hosts["categories"]],
            "work": hosts["steps"] * hosts["has_work"],
        }
        return {kind: np.cumsum(count) - count for kind, count in counts.items()}

    def cut_steps(self) -> Int64s:
        """How many steps at either end of each host's the capture probably cut, shape (h,)."""
        is_cut = (self.hosts["is_tpu"] == 0) & (self.hosts["steps"] > MOST_KEPT_WHOLE)
        return np.where(is_cut, 1, 0)

    def common(
        self, order: Int64s, *, keep_incomplete: bool, max_steps: int | None = None
    ) -> StepDatabase:
        """The steps that all hosts have, with the cores of all hosts side by side.

        Args:
            order: Which host is at which place, shape (h,), two or more.
            keep_incomplete: Keep each host's first and last step too.
            max_steps: Keep at most so many common steps; None keeps all.
        """
        found = self.intersection(order, keep_incomplete=keep_incomplete, max_steps=max_steps)
        workers = np.flatnonzero(found.first_step >= 0)
        first = found.first_step[workers]
        common = self._starts["steps"][order][workers] + first
        place = np.full(len(self.columns["step_numbers"]), -1, np.int64)
        counts = np.full(len(workers), found.step_count)
        place[_ranges(common, counts)] = np.tile(np.arange(found.step_count), len(workers))
        return self._chosen(order, workers, place, found.step_count, first).database(
            self, steps_dropped=found.steps_dropped, is_intersection_empty=found.is_empty
        )

    def compared(self, order: Int64s) -> tuple[StepDatabase, Alignment] | None:
        """As ``common``, where a host that recorded few of the steps takes none from the others.

        Hosts that lack a step have no row of it. None where no host lacks steps: then the common
        steps are all there are.

        Args:
            order: Which host is at which place, shape (h,), two or more.
        """
        counts = self.hosts["steps"][order]
        spans = self._spans(self._starts["steps"][order], counts)
        found = align_lacking(*spans, counts, self.hosts["has_device"][order] != 0)
        if found is None:
            return None
        place = np.full(len(self.columns["step_numbers"]), -1, np.int64)
        place[_ranges(self._starts["steps"][order], counts)] = found.place
        workers = np.flatnonzero(found.takes_part)
        return self._chosen(order, workers, place, found.step_count, None).database(self), found

    def _chosen(
        self, order: Int64s, workers: Int64s, place: Int64s, count: int, first: Int64s | None
    ) -> "_Chosen":
        hosts = {name: values[order] for name, values in self.hosts.items()}
        starts = {name: values[order] for name, values in self._starts.items()}
        return _Chosen(
            self.columns,
            {name: values[workers] for name, values in hosts.items()},
            {name: values[workers] for name, values in starts.items()},
            workers,
            place,
            count,
            first,
            int(hosts["precision_16bit_ps"].sum()),
            int(hosts["precision_32bit_ps"].sum()),
        )

    def intersection(
        self, order: Int64s, *, keep_incomplete: bool, max_steps: int | None = None
    ) -> StepIntersection:
        """Which of the hosts' own steps are those that all have; see ``common``."""
        cut = np.zeros(len(order), np.int64) if keep_incomplete else self.cut_steps()[order]
        kept = self.hosts["steps"][order] - 2 * cut
        spans = self._spans(self._starts["steps"][order] + cut, kept)
        has_device = self.hosts["has_device"][order] != 0
        found = intersect_spans(*spans, kept, has_device, max_steps)
        first = np.where(found.first_step >= 0, found.first_step + cut, -1)
        return replace(found, first_step=first)

    def step_numbers(self, order: Int64s, found: StepIntersection) -> list[Int64s]:
        """Of every host the ids of the common steps; none of one that takes no part."""
        starts = self._starts["steps"][order]
        numbers = self.columns["step_numbers"]
        return [
            numbers[start + first : start + first + found.step_count] if first >= 0 else numbers[:0]
            for start, first in zip(starts.tolist(), found.first_step.tolist(), strict=True)
        ]

    def _spans(self, first: Int64s, count: Int64s) -> tuple[Int64s, Int64s]:
        """Begin and end of some steps over their cores, one host after the other; 0 without."""
        starts = self._starts["steps"]
        total = len(self.columns["step_numbers"])
        begin, end = np.zeros(total, np.int64), np.zeros(total, np.int64)
        row_step = self.columns["row_step"]
        if len(row_step):
            key = np.repeat(starts, self.hosts["rows"]) + row_step
            opens = np.flatnonzero(np.diff(key, prepend=-1))
            begins, durations = self.columns["begin_ps"], self.columns["duration_ps"]
            begin[key[opens]] = np.minimum.reduceat(begins, opens)
            end[key[opens]] = np.maximum.reduceat(begins + durations, opens)
        rows = _ranges(first, count)
        return begin[rows], end[rows]

    def to_state(self) -> dict[str, Any]:
        """The steps as arrays and texts."""
        return {
            "hosts": dict(self.hosts),
            "names": [list(names) for names in self.names],
            "categories": [list(names) for names in self.categories],
            "columns": dict(self.columns),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "PodSteps":
        """The steps that ``to_state`` wrote."""
        return cls(
            state["hosts"],
            tuple(tuple(names) for names in state["names"]),
            tuple(tuple(names) for names in state["categories"]),
            state["columns"],
        )


@dataclass(frozen=True)
class _Chosen:
    """The common steps among the columns.

    Attributes:
        hosts: Of the hosts that take part, in their order.
        starts: Where these begin in the columns.
        host_place: Their places among all hosts.
        step_place: Which common step every step of the columns is; -1 for none.
        count: Common steps.
        first: Of every host its first common step, the others follow; None where some are absent.
        precision_16bit_ps: Of all hosts, whether they take part or not.
        precision_32bit_ps: Likewise.
    """

    columns: Mapping[str, NDArray[Any]]
    hosts: Mapping[str, Int64s]
    starts: Mapping[str, Int64s]
    host_place: Int64s
    step_place: Int64s
    count: int
    first: Int64s | None
    precision_16bit_ps: int
    precision_32bit_ps: int

    def _rows(self, kind: str, step_column: str) -> tuple[Int64s, Int64s, Int64s]:
        """Rows of the common steps: where they are, their host (of those here), their step."""
        counts = self.hosts[kind]
        rows = _ranges(self.starts[kind], counts)
        host = np.repeat(np.arange(len(counts)), counts)
        step = self.step_place[self.starts["steps"][host] + self.columns[step_column][rows]]
        kept = np.flatnonzero(step >= 0)
        return rows[kept], host[kept], step[kept]

    def database(
        self, pod: PodSteps, *, steps_dropped: int = 0, is_intersection_empty: bool = False
    ) -> StepDatabase:
        rows, host, step = self._rows("rows", "row_step")
        core_id = self.columns["core_id"][rows] + CORES_PER_HOST * self.host_place[host]
        order = np.lexsort((core_id, step))
        rows, host, step, core_id = rows[order], host[order], step[order], core_id[order]
        names, name_code = self._names(pod, rows, host)
        categories, breakdown_ps, in_breakdown = self._breakdown(pod, rows, host)
        return StepDatabase(
            kind="tpu" if self.hosts["is_tpu"].any() else "generic",
            has_device=bool(self.hosts["has_device"].any()),
            step_numbers=np.arange(self.count),
            row_step=step,
            core_id=core_id,
            host_index=self.host_place[host],
            begin_ps=self.columns["begin_ps"][rows],
            duration_ps=self.columns["duration_ps"][rows],
            name_code=name_code,
            names=names,
            categories=categories,
            breakdown_ps=breakdown_ps,
            in_breakdown=in_breakdown,
            collectives=self._collectives(),
            # The reference leaves the copies of several hosts out.
            transfers=Transfers.zeros(self.count),
            work=self._work(),
            precision_16bit_ps=self.precision_16bit_ps,
            precision_32bit_ps=self.precision_32bit_ps,
            steps_dropped=steps_dropped,
            is_intersection_empty=is_intersection_empty,
        )

    def _kinds(self, name: str) -> list[int]:
        """Which of the names or categories the hosts have, in the order of the hosts."""
        kinds, first = np.unique(self.hosts[name], return_index=True)
        found: list[int] = kinds[np.argsort(first)].tolist()
        return found

    def _names(self, pod: PodSteps, rows: Int64s, host: Int64s) -> tuple[tuple[str, ...], Int64s]:
        kinds = self._kinds("names")
        names = tuple(dict.fromkeys(["", *(name for kind in kinds for name in pod.names[kind])]))
        code = {name: at for at, name in enumerate(names)}
        own = self.columns["name_code"][rows]
        result = np.zeros(len(rows), np.int64)
        for kind, of_kind in self._by_kind(kinds, self.hosts["names"][host]):
            new = np.array([code[name] for name in pod.names[kind]], np.int64)
            result[of_kind] = new[own[of_kind]]
        return names, result

    def _breakdown(
        self, pod: PodSteps, rows: Int64s, host: Int64s
    ) -> tuple[tuple[str, ...], Int64s, NDArray[np.bool_]]:
        kinds = self._kinds("categories")
        categories = tuple(dict.fromkeys(c for kind in kinds for c in pod.categories[kind]))
        shape = (len(rows), len(categories))
        breakdown_ps, in_breakdown = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        # Place of the row in its host, times the host's categories.
        own_row = rows - self.starts["rows"][host]
        for kind, of_kind in self._by_kind(kinds, self.hosts["categories"][host]):
            own = pod.categories[kind]
            cells = self.starts["cells"][host[of_kind]] + own_row[of_kind] * len(own)
            cells = cells[:, None] + np.arange(len(own))
            columns = np.array([categories.index(c) for c in own], np.int64)
            target = (of_kind,) if own == categories else np.ix_(of_kind, columns)
            breakdown_ps[target] = self.columns["breakdown_ps"][cells]
            in_breakdown[target] = self.columns["in_breakdown"][cells]
        return categories, breakdown_ps, in_breakdown

    @staticmethod
    def _by_kind(kinds: Sequence[int], of_rows: Int64s) -> list[tuple[int, NDArray[np.intp]]]:
        if len(kinds) == 1:
            return [(kinds[0], np.arange(len(of_rows)))]
        order = np.argsort(of_rows, kind="stable")
        first = np.searchsorted(of_rows[order], np.array(kinds, np.int64))
        last = np.searchsorted(of_rows[order], np.array(kinds, np.int64), side="right")
        return [(k, order[a:b]) for k, a, b in zip(kinds, first, last, strict=True)]

    def _collectives(self) -> Collectives:
        rows, host, step = self._rows("collectives", "collectives.step")
        columns = {n: self.columns[f"collectives.{n}"][rows] for n in _OF_COLLECTIVES}
        columns["step"] = step
        columns["core_id"] = columns["core_id"] + CORES_PER_HOST * self.host_place[host]
        return Collectives(**columns)

    def _work(self) -> StepWork | None:
        known = np.flatnonzero(self.hosts["has_work"])
        if self.first is None or not len(known):
            return None
        found = StepWork.zeros(self.count)
        # One host after the other: sums of floats in the order of the hosts.
        for start in (self.starts["work"][known] + self.first[known]).tolist():
            here = slice(start, start + self.count)
            found = found.plus(StepWork(*(self.columns[f"work.{n}"][here] for n in _OF_WORK)))
        return found


def combine_step_databases(
    databases: Sequence[StepDatabase],
    *,
    keep_incomplete: bool = False,
    max_steps: int | None = None,
) -> StepDatabase:
    """The steps that all hosts have, with the cores of all hosts side by side.

    Args:
        databases: One per host, with all its steps, in the order of the hosts: host h's cores
            get the ids ``1000 * h`` plus their own.
        keep_incomplete: Keep each host's first and last step too.
        max_steps: Keep at most so many common steps; None keeps all.
    """
    if not databases:
        return StepDatabase.empty()
    if len(databases) == 1:
        return databases[0] if keep_incomplete else databases[0].without_incomplete_steps()
    return PodSteps.of(databases).common(
        np.arange(len(databases)), keep_incomplete=keep_incomplete, max_steps=max_steps
    )


def _joined(arrays: Sequence[NDArray[Any]], empty: tuple[int, ...] = (0,)) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(empty, np.int64)


def _ranges(starts: Int64s, counts: Int64s) -> Int64s:
    """``start .. start + count - 1`` of every pair, one after the other."""
    ends = np.cumsum(counts)
    shift = np.repeat(starts - (ends - counts), counts)
    found: Int64s = np.arange(len(shift)) + shift
    return found
