"""Operations of many hosts, to which hosts can be added in any order.

What combining takes from the first host that has it is kept together with the host it is from:
a host that comes late may stand before it in name order, and then takes its place. Sums of floats
are exact. So it does not matter when a host is added, and one host more costs as much as there are
operations, however many hosts there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.op_metrics.database import (
    ACCESS_COLUMNS,
    COLUMNS,
    DTYPES,
    SCALARS,
    SUMS,
    TEXT_COLUMNS,
    MemoryAccesses,
    OpDatabase,
)
from podscope_analyzers.op_metrics.exact_sums import ExactSums
from podscope_analyzers.op_metrics.grouping import group_rows
from podscope_analyzers.op_metrics.texts import Codes, TextTable
from podscope_analyzers.step_times import StepTimes

Int64s = NDArray[np.int64]

_EXACT: Final = tuple(name for name in SUMS if DTYPES[name] is np.float64)
_WHOLE: Final = tuple(name for name in SUMS if name not in _EXACT)
# Of a key's metadata the first that is not empty counts.
_CHOSEN: Final = (*(n for n in TEXT_COLUMNS if n != "name"), "core_type", "cost_source")
_NEVER: Final = np.iinfo(np.int64).max
# Rows of so many hosts are in memory at once.
_BATCH: Final = 64


@dataclass(frozen=True)
class PodOps:
    """Operations by key, with the hosts that decide.

    A host is known by a number that it keeps; its place in name order, which changes when others
    come, is passed to what needs it.

    Attributes:
        texts: What the text columns are codes of.
        top: Columns of the operations at the top, in the order in which hosts have them:
            ``OpDatabase``'s less the floats that are sums, ``first_host`` and ``first_row`` that
            had it first, ``child_host`` whose rows are below it (-1 for none), and for each
            column of metadata ``<column>_host``.
        exact: The floats that are sums.
        below: Columns of the rows below others, as one host has them; ``parent`` counts the top
            rows first, ``row`` is the place in that host's database.
        accesses: Columns of ``MemoryAccesses``, and ``host`` and ``row`` that had it first.
        scalars: ``OpDatabase``'s totals.
    """

    texts: tuple[str, ...]
    top: Mapping[str, NDArray[Any]]
    exact: Mapping[str, ExactSums]
    below: Mapping[str, NDArray[Any]]
    accesses: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, int]

    @classmethod
    def of_hosts(
        cls, databases: Iterable[tuple[int, OpDatabase]], rank: Int64s, *, add_cores: bool
    ) -> "PodOps":
        """Operations of some hosts.

        Args:
            databases: With the numbers of the hosts, in any order.
            rank: Place in name order by number of the host.
            add_cores: Whether cores add; those of hosts' threads do not.
        """
        lifted = (_of_host(number, database) for number, database in databases)
        merged = _of_host(0, OpDatabase.empty())
        while some := list(islice(lifted, _BATCH)):
            merged = merge([merged, *some], rank, add_cores=add_cores)
        return merged

    def database(self) -> OpDatabase:
        """The operations as tools want them, without times by step."""
        count = len(self.top["name"])
        rounded = {name: sums.rounded() for name, sums in self.exact.items()}
        columns = {
            name: np.concatenate([rounded.get(name, self.top.get(name)), self.below[name]])
            for name in COLUMNS
            if name != "parent"
        }
        columns["parent"] = np.concatenate(
            [np.full(count, -1, np.int32), self.below["parent"].astype(np.int32)]
        )
        accesses = MemoryAccesses(**{name: self.accesses[name] for name in ACCESS_COLUMNS})
        return OpDatabase(columns, self.texts, accesses, StepTimes(), **self.scalars)

    def to_state(self) -> dict[str, Any]:
        """The operations as arrays, texts and numbers."""
        exact = {name: sums.to_state() for name, sums in self.exact.items()}
        return {**vars(self), "texts": list(self.texts), "exact": exact}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "PodOps":
        """The operations that ``to_state`` wrote."""
        exact = {name: ExactSums.from_state(sums) for name, sums in state["exact"].items()}
        return cls(**{**state, "texts": tuple(state["texts"]), "exact": exact})


def _of_host(number: int, database: OpDatabase) -> PodOps:
    count, every = database.top_count, database.columns
    own, rows = np.full(count, number, np.int64), np.arange(len(database))
    parent = every["parent"]
    with_children = np.full(count, -1, np.int64)
    with_children[parent[(parent >= 0) & (parent < count)]] = number
    access = database.accesses
    return PodOps(
        texts=database.texts,
        top={
            **{n: every[n][:count] for n in COLUMNS if n not in _EXACT and n != "parent"},
            **{f"{name}_host": own for name in _CHOSEN},
            "first_host": own,
            "first_row": rows[:count],
            "child_host": with_children,
        },
        exact={name: ExactSums.of(every[name][:count]) for name in _EXACT},
        below={**{name: every[name][count:] for name in COLUMNS}, "row": rows[count:]},
        accesses={
            **{name: getattr(access, name) for name in ACCESS_COLUMNS},
            "host": np.full(len(access.op), number, np.int64),
            "row": np.arange(len(access.op)),
        },
        scalars={name: int(getattr(database, name)) for name in SCALARS},
    )


def merge(parts: Sequence[PodOps], rank: Int64s, *, add_cores: bool) -> PodOps:
    """Operations of all hosts of the parts, which have no host in common.

    Args:
        parts: In any order.
        rank: Place in name order by number of the host.
        add_cores: As in ``PodOps.of_hosts``.
    """
    texts, recode = _joined_texts(parts)
    top = {
        name: np.concatenate(
            [_recoded(p.top[name], name, c) for p, c in zip(parts, recode, strict=True)]
        )
        for name in parts[0].top
    }
    order = np.lexsort((top["first_row"], rank[top["first_host"]]))
    top = {name: values[order] for name, values in top.items()}
    group, first = group_rows(np.stack([top["module_id"], top["name"].astype(np.int64)]))
    count = len(first)
    merged = {name: top[name][first] for name in ("name", "module_id", "first_host", "first_row")}
    for name in _CHOSEN:
        chosen = _first_by(group, rank[top[f"{name}_host"]], top[name] != 0, first)
        merged[name], merged[f"{name}_host"] = top[name][chosen], top[f"{name}_host"][chosen]
        if name == "source_file":
            # A line belongs to the file that it is of.
            merged["source_line"] = top["source_line"][chosen]
    for name in _WHOLE:
        merged[name] = np.zeros(count, top[name].dtype)
        np.add.at(merged[name], group, top[name])
    merged["is_eager"] = np.bincount(group, weights=top["is_eager"], minlength=count) > 0
    merged["num_cores"] = top["num_cores"][first]
    if add_cores:
        merged["num_cores"] = np.zeros(count, top["num_cores"].dtype)
        np.add.at(merged["num_cores"], group, top["num_cores"])
    merged["min_time_ps"] = _minimum(group, top["min_time_ps"], top["occurrences"] > 0, count)
    has_children = top["child_host"] >= 0
    parent_row = _first_by(group, rank[top["child_host"]], has_children, first)
    merged["child_host"] = top["child_host"][parent_row]
    keeps_children = np.zeros(len(order), np.bool_)
    keeps_children[parent_row[has_children[parent_row]]] = True
    exact = {
        name: ExactSums.concatenate([p.exact[name] for p in parts])
        .take(order)
        .grouped(group, count)
        for name in _EXACT
    }
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    below, places = _below(parts, recode, _Tops(place, group, keeps_children, top, count), rank)
    return PodOps(
        texts=texts,
        top=merged,
        exact=exact,
        below=below,
        accesses=_accesses(parts, places, rank),
        scalars={name: sum(part.scalars[name] for part in parts) for name in SCALARS},
    )


@dataclass(frozen=True)
class _Tops:
    """The top rows of all parts.

    Attributes:
        place: Where the parts' rows, one after the other, are now.
        group: The merged operation of each row, by place.
        keeps_children: Whether the rows below it stay, by place.
        columns: By place.
        count: Merged operations.
    """

    place: Int64s
    group: NDArray[np.intp]
    keeps_children: NDArray[np.bool_]
    columns: Mapping[str, NDArray[Any]]
    count: int


def _joined_texts(parts: Sequence[PodOps]) -> tuple[tuple[str, ...], list[Codes]]:
    table = TextTable()
    # Hosts of one job mostly have the same texts.
    known: dict[tuple[str, ...], Codes] = {}
    for part in parts:
        if part.texts not in known:
            known[part.texts] = table.codes(part.texts)
    return table.texts(), [known[part.texts] for part in parts]


def _recoded(values: NDArray[Any], name: str, codes: Codes) -> NDArray[Any]:
    return codes[values] if name in TEXT_COLUMNS else values


def _first_by(
    group: NDArray[np.intp], rank: Int64s, is_known: NDArray[np.bool_], first: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Per group the row of the lowest rank among the known ones, else its first row."""
    chosen = first.copy()
    rows = np.flatnonzero(is_known)
    rows = rows[np.argsort(rank[rows], kind="stable")][::-1]
    # Assigned from the last to the first, so that the first stays.
    chosen[group[rows]] = rows
    return chosen


def _minimum(
    group: NDArray[np.intp], minimum: Int64s, happened: NDArray[np.bool_], count: int
) -> Int64s:
    """The smallest of the rows that happened, or of all where none did."""
    result = np.full(count, _NEVER, np.int64)
    np.minimum.at(result, group[happened], minimum[happened])
    any_happened = np.bincount(group, weights=happened, minlength=count) > 0
    rest = np.flatnonzero(~any_happened[group])
    np.minimum.at(result, group[rest], minimum[rest])
    return result


def _below(
    parts: Sequence[PodOps], recode: Sequence[Codes], tops: _Tops, rank: Int64s
) -> tuple[dict[str, NDArray[Any]], list[Int64s]]:
    """Rows below others, of the first host that has any below the same operation.

    Returns:
        The rows, and for each part where its rows are now, -1 for those that are left out.
    """
    kept: list[dict[str, NDArray[Any]]] = []
    owners: list[Int64s] = []
    places: list[Int64s] = []
    at, next_row = 0, tops.count
    for part, codes in zip(parts, recode, strict=True):
        count = len(part.top["name"])
        top_place = tops.place[at : at + count]
        at += count
        own = np.concatenate(
            [tops.group[top_place], np.full(len(part.below["row"]), -1)], dtype=np.int64
        )
        parent = part.below["parent"].astype(np.int64)
        if len(parent):
            root = parent.copy()
            while (deeper := root >= count).any():
                root = np.where(deeper, parent[np.maximum(root - count, 0)], root)
            rows = np.flatnonzero(tops.keeps_children[top_place[root]])
            own[count + rows] = next_row + np.arange(len(rows))
            next_row += len(rows)
            columns = {n: _recoded(part.below[n][rows], n, codes) for n in part.below}
            kept.append({**columns, "parent": own[parent[rows]]})
            owners.append(tops.columns["child_host"][top_place[root[rows]]])
        places.append(own)
    if not kept:
        return {**{n: np.zeros(0, DTYPES[n]) for n in COLUMNS}, "row": np.zeros(0, int)}, places
    joined = {name: np.concatenate([one[name] for one in kept]) for name in kept[0]}
    order = np.lexsort((joined["row"], rank[np.concatenate(owners)]))
    new_place = np.empty(tops.count + len(order), np.int64)
    new_place[: tops.count] = np.arange(tops.count)
    new_place[tops.count + order] = tops.count + np.arange(len(order))
    joined["parent"] = new_place[joined["parent"]]
    moved = [np.where(own >= 0, new_place[own], -1) for own in places]
    return {name: values[order] for name, values in joined.items()}, moved


def _accesses(
    parts: Sequence[PodOps], places: Sequence[Int64s], rank: Int64s
) -> dict[str, NDArray[Any]]:
    """One row per operation, space and access, in the order in which hosts have them."""
    every = {
        name: np.concatenate([part.accesses[name] for part in parts]) for name in parts[0].accesses
    }
    op = np.concatenate([own[p.accesses["op"]] for p, own in zip(parts, places, strict=True)])
    order = np.lexsort((every["row"], rank[every["host"]]))
    order = order[op[order] >= 0]
    every = {name: values[order] for name, values in every.items()}
    every["op"] = op[order].astype(np.int32)
    keys = np.stack([op[order], every["space"], every["access"].astype(np.int64)])
    group, first = group_rows(keys)
    size = np.zeros(len(first), np.int64)
    np.add.at(size, group, every["size_bytes"])
    return {**{name: values[first] for name, values in every.items()}, "size_bytes": size}
