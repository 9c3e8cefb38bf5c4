"""Where the operations' time goes, as a tree, with what each part uses of the devices."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import quote

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.op_metrics.database import CostSource, OpDatabase, safe_divide
from podscope_analyzers.op_metrics.kernel_metadata import kernel_metadata
from podscope_analyzers.op_metrics.layouts import result_layout
from podscope_analyzers.op_metrics.op_columns import (
    SPREAD_COLUMNS,
    cost_source_value,
    description_values,
    in_order,
    op_columns,
    spread_values,
)
from podscope_analyzers.op_metrics.op_description import describe_op
from podscope_analyzers.op_metrics.op_tree import GROUPINGS, Grouping, Node, OpTree
from podscope_analyzers.op_metrics.op_tree_xprof import XprofTree
from podscope_analyzers.op_metrics.rates import Roofline
from podscope_analyzers.peaks import HBM, SRAM_READ, SRAM_WRITE, PerfEnv
from podscope_analyzers.reasons import NO_HLO_OPS, NO_PEAK_RATES
from podscope_analyzers.result import Cell, Column, Scope, Table, ToolResult
from podscope_analyzers.spread import Spread
from podscope_analyzers.step_table import PARAMETER, Series, step_table, wants_step_times

NAME: Final = "op_profile"
VERSION: Final = 3
PARAMETERS: Final = {
    "group_by": "program, category, or provenance; program without it",
    "idle": "exclude or include the time in which nothing ran; exclude without it",
    "sort": "order of a node's children, time or wasted; time without it",
    "children": "most children of a node that are listed, 1 to 10000; 100 without it",
    "cursor": "where to go on with a node's children, as next_cursor of its row tells",
    "place": "device or host_execution; devices if they ran anything without it",
    PARAMETER: "1 to list the self time of every listed node in every step, as far as it is kept",
}

_PLACES: Final = ("device", "host_execution")
_CHILDREN: Final = 100
_MOST_CHILDREN: Final = 10_000
_MAX_ROWS: Final = 20_000
# Nodes that stand for operations have their details; those above only their sums.
_MEMORIES: Final = (
    ("hbm", "Main memory", HBM),
    ("on_chip_read", "On-chip read", SRAM_READ),
    ("on_chip_write", "On-chip write", SRAM_WRITE),
)

_COLUMNS: Final = (
    Column("depth", "Depth", "integer"),
    Column("kind", "Kind", "string"),
    Column("name", "Name", "string"),
    *op_columns("occurrences", "total_time_us", "avg_time_us", "total_self_time_us"),
    Column("normalized_time_us", "Time at nominal clock rate", "number", "us"),
    Column("time_ratio", "Share of time", "number", "ratio"),
    Column("wasted_ratio", "Wasted", "number", "ratio"),
    Column("flops", "Flops", "number", "flops"),
    Column("model_flops", "Model flops", "number", "flops"),
    *op_columns("measured_flops_per_second", "model_flops_per_second"),
    Column("flops_utilization_ratio", "FLOPS utilization", "number", "ratio"),
    *(
        column
        for name, label, _ in _MEMORIES
        for column in (
            Column(f"{name}_bytes", f"{label} traffic", "integer", "bytes"),
            Column(f"{name}_bytes_per_second", f"{label} bandwidth", "number", "bytes/s"),
            Column(f"{name}_utilization_ratio", f"{label} utilization", "number", "ratio"),
        )
    ),
    *op_columns("operational_intensity_flops_per_byte", "bound_by", "dma_stall_ratio", "energy_j"),
    Column("child_count", "Children", "integer"),
    Column("next_cursor", "Further children", "string"),
    *op_columns("program_id", "category", "framework_name"),
    Column("expression", "Text", "string"),
    *op_columns("source"),
    Column("source_stack", "Stack", "string"),
    Column("layout", "Layout", "string"),
    Column("padding_ratio", "Padding", "number", "ratio"),
    Column("element_bits", "Element width", "integer", "bits"),
    Column("kernel_metadata", "Kernel metadata", "string"),
    *op_columns("core_type", "is_rematerialized", "is_outside_compilation", "cost_source"),
    *SPREAD_COLUMNS,
    Column("node", "Node", "string"),
    Column("parent", "Parent", "string"),
)
_DETAILS: Final = (
    "bound_by", "program_id", "category", "framework_name", "expression", "source",
    "source_stack", "layout", "padding_ratio", "element_bits", "kernel_metadata", "core_type",
    "is_rematerialized", "is_outside_compilation", "cost_source",
)  # fmt: skip

_STEP_COLUMNS: Final = tuple(
    column for name in ("node", "kind", "name") for column in _COLUMNS if column.id == name
)


@dataclass(slots=True)
class _Listed:
    """A node that is listed, with those of its children that are."""

    id: str
    parent: str | None
    depth: int
    node: Node
    children: list["_Listed"] = field(default_factory=list)
    child_count: int = 0
    next_cursor: str | None = None


class _Rows:
    """The tree as rows, parents before their children.

    Args:
        tree: Of one place's operations.
        env: Peak rates; zeros where they do not apply.
        device_type: Of the devices.
        with_idle: Whether the time in which nothing ran counts.
        by_waste: Whether children are sorted by wasted time.
    """

    def __init__(
        self, tree: OpTree, env: PerfEnv, device_type: str, *, with_idle: bool, by_waste: bool
    ) -> None:
        self._tree = tree
        self._database = tree.database
        self._with_idle = with_idle
        self._by_waste = by_waste
        self._spreads = self._database.spreads()
        self._roofline = Roofline(self._database, env, device_type, own=True)
        self._peak_flops = env.peak_tera_flops_per_second * 1e12
        self._peaks = {name: env.bandwidth(at) * 1e9 for name, _, at in _MEMORIES}
        database = self._database
        self.total_ps = database.total_time_ps if with_idle else database.total_op_time_ps

    def listed(self, limit: int, cursor: tuple[str, int] | None) -> Iterator[_Listed]:
        """The root and all below, or of the children of one node from one on.

        Args:
            limit: Most children of a node.
            cursor: A node's id, and how many of its children are left out.
        """
        top = _Listed("", None, 0, self._tree.root)
        if cursor is not None:
            top = self._find(cursor[0])
        pending, count = deque([(top, cursor[1] if cursor else 0)]), 1
        # Level by level, so that a full table lacks the deepest rows.
        while pending:
            at, skipped = pending.popleft()
            children = self._children(at.node)
            kept = children[skipped : skipped + min(limit, max(_MAX_ROWS - count, 0))]
            count += len(kept)
            at.child_count = len(children)
            if skipped + len(kept) < len(children):
                at.next_cursor = f"{at.id}@{skipped + len(kept)}"
            at.children = [self._below(at, child) for child in kept]
            pending.extend((child, 0) for child in at.children)
        yield from self._preorder(top)

    def _below(self, parent: _Listed, child: tuple[str, Node]) -> _Listed:
        key, node = child
        return _Listed(
            f"{parent.id}/{quote(key, safe='() .,:')}" if parent.id else quote(key, safe="() .,:"),
            parent.id,
            parent.depth + 1,
            node,
        )

    def _find(self, wanted: str) -> _Listed:
        at = _Listed("", None, 0, self._tree.root)
        for part in wanted.split("/") if wanted else ():
            found = next(
                (
                    below
                    for child in self._children(at.node)
                    if (below := self._below(at, child)).id.rpartition("/")[2] == part
                ),
                None,
            )
            if found is None:
                msg = f"cursor: there is no node '{wanted[:200]}'"
                raise ParameterError(msg)
            at = found
        return at

    def _children(self, node: Node) -> list[tuple[str, Node]]:
        """Children by time or waste, each with what tells it from its siblings."""
        shown = []
        for child in self._tree.children(node, with_idle=self._with_idle):
            key, one = child.name, child
            if child.kind == "duplicates" and len(child.children) == 1:
                (one,) = child.children.values()
            elif child.kind == "op" and self._tree.grouping == "category":
                key = f"{child.name}({self._database.module_id(child.row)})"
            elif child.kind == "scope":
                key = f"{child.name}:"
            shown.append((key, one))
        order = self._waste_order if self._by_waste else _time_order
        if node.kind in ("op", "part") and self._is_fusion(node.row):
            order = _work_order
        return sorted(_numbered(shown), key=lambda pair: order(pair[1]))

    def _is_fusion(self, row: int) -> bool:
        return self._database.text("category", row).endswith(" fusion")

    def _waste_order(self, node: Node) -> tuple[float, int]:
        wasted = self._ratios(node)["wasted_ratio"]
        return (1.0 if wasted is None else -wasted, -node.work.time_ps)

    def _preorder(self, listed: _Listed) -> Iterator[_Listed]:
        pending = [listed]
        while pending:
            at = pending.pop()
            yield at
            pending.extend(reversed(at.children))

    def step_series(self, listed: Iterable[_Listed], *, on_device: bool) -> Series:
        """The operations of each node together, where nearly all of their time is known."""
        times, self_ps = self._database.step_times, self._database.column("self_time_ps")
        told: dict[int, list[tuple[Cell, ...]]] = {}
        for one in listed:
            if one.node.kind in ("part", "idle"):
                continue
            rows = np.fromiter((leaf.row for leaf in _leaves(one.node)), np.int64)
            if len(rows) and times.knows(rows, self_ps[rows]):
                for row in rows.tolist():
                    told.setdefault(row, []).append((one.id, one.node.kind, self._name(one.node)))
        return Series(times, on_device, lambda row: told.get(row, []))

    def _time_ps(self, node: Node) -> int:
        return self.total_ps if node.kind == "root" else node.work.time_ps

    def _ratios(self, node: Node) -> dict[str, float | None]:
        """Share, utilizations and waste."""
        work, time_ps = node.work, self._time_ps(node)
        flops: float | None = None
        if self._peak_flops and work.knows_cost:
            rate = safe_divide(work.flops * 1e12, time_ps)
            if work.normalized_time_ps > 0:
                rate *= time_ps / work.normalized_time_ps
            flops = rate / self._peak_flops
        found: dict[str, float | None] = {
            f"{name}_utilization_ratio": safe_divide(size * 1e12, time_ps) / peak
            if (peak := self._peaks[name]) and work.knows_cost
            else None
            for name, size in _traffic(node).items()
        }
        known = [one for one in (flops, found["hbm_utilization_ratio"]) if one is not None]
        share = safe_divide(time_ps, self.total_ps)
        wasted = share * (1 - min(max(known), 1.0)) if known else None
        return found | {
            "flops_utilization_ratio": flops,
            "time_ratio": share,
            "wasted_ratio": wasted,
        }

    def cells(self, listed: _Listed) -> list[Cell]:
        node, work, time_ps = listed.node, listed.node.work, self._time_ps(listed.node)
        knows_cost = work.knows_cost
        has_count = node.kind not in ("root", "program", "scope", "idle")
        traffic = _traffic(node)
        values: dict[str, Cell] = {
            "node": listed.id,
            "parent": listed.parent,
            "depth": listed.depth,
            "kind": node.kind,
            "name": self._name(node),
            "occurrences": work.occurrences if has_count else None,
            "total_time_us": time_ps / 1e6,
            "avg_time_us": safe_divide(time_ps / 1e6, work.occurrences) if has_count else None,
            "total_self_time_us": work.self_time_ps / 1e6,
            "normalized_time_us": work.normalized_time_ps / 1e6 or None,
            "flops": work.flops if knows_cost else None,
            "model_flops": work.model_flops if knows_cost else None,
            "measured_flops_per_second": safe_divide(work.flops * 1e12, time_ps)
            if knows_cost
            else None,
            "model_flops_per_second": safe_divide(work.model_flops * 1e12, time_ps)
            if knows_cost
            else None,
            **{f"{name}_bytes": size if knows_cost else None for name, size in traffic.items()},
            **{
                f"{name}_bytes_per_second": safe_divide(size * 1e12, time_ps)
                if knows_cost
                else None
                for name, size in traffic.items()
            },
            "operational_intensity_flops_per_byte": safe_divide(work.flops, work.bytes_accessed)
            if knows_cost
            else None,
            "dma_stall_ratio": safe_divide(work.dma_stall_ps, time_ps) or None,
            "energy_j": work.energy_j or None,
            "child_count": listed.child_count,
            "next_cursor": listed.next_cursor,
            **dict.fromkeys(_DETAILS),
            **self._ratios(node),
            **spread_values(self._spread(node)),
            **self._details(node),
        }
        return in_order(_COLUMNS, values)

    def _spread(self, node: Node) -> Spread | None:
        """How far the self time varies over steps, of an operation or of all below a node."""
        if node.kind in ("part", "idle"):
            return None
        if node.kind == "op":
            return self._spreads[node.row]
        rows = np.fromiter((leaf.row for leaf in _leaves(node)), np.int64)
        database = self._database
        return database.step_times.spread_together(rows, database.column("self_time_ps")[rows])

    def _name(self, node: Node) -> str:
        if node.kind != "duplicates":
            return node.name
        longest = min(node.children.values(), key=_time_order)
        return f"{longest.name} and its duplicates"

    def _details(self, node: Node) -> dict[str, Cell]:
        if node.kind == "duplicates":
            node = min(node.children.values(), key=_time_order)
        if node.kind not in ("op", "part"):
            return {}
        database, row = self._database, node.row
        op = describe_op(database, row)
        layout = result_layout(op.expression)
        metadata = kernel_metadata(op.expression)
        bound = self._roofline[row].bound_by.lower()
        return {
            **description_values(op),
            "program_id": op.program_id if database.module_id(row) else None,
            "expression": op.expression if database.text("long_name", row) else None,
            "source_stack": database.text("source_stack", row).rstrip("\n") or None,
            "layout": (layout.hint() or None) if layout else None,
            "padding_ratio": layout.padding_ratio if layout and layout.hint() else None,
            "element_bits": (layout.element_bits or None) if layout else None,
            "kernel_metadata": None
            if metadata is None
            else json.dumps(metadata, sort_keys=True, ensure_ascii=False),
            "bound_by": None if bound == "unknown" else bound,
            "cost_source": cost_source_value(CostSource(int(database.column("cost_source")[row]))),
        }


def _leaves(node: Node) -> Iterator[Node]:
    """The operations below a node."""
    pending = [node]
    while pending:
        at = pending.pop()
        if at.kind == "op":
            yield at
        else:
            pending.extend(at.children.values())


def _traffic(node: Node) -> dict[str, int]:
    work = node.work
    return {
        "hbm": work.hbm_bytes,
        "on_chip_read": work.on_chip_read_bytes,
        "on_chip_write": work.on_chip_written_bytes,
    }


def _time_order(node: Node) -> tuple[float, int]:
    return (0.0, -node.work.time_ps)


def _work_order(node: Node) -> tuple[float, int]:
    return (-node.work.model_flops, -node.work.time_ps)


def _numbered(children: list[tuple[str, Node]]) -> Iterator[tuple[str, Node]]:
    """The children with keys of which no two are equal."""
    seen: dict[str, int] = {}
    for key, node in children:
        number = seen[key] = seen.get(key, 0) + 1
        yield (key if number == 1 else f"{key}#{number}"), node


def _choice(parameters: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    chosen = parameters.get(name) or choices[0]
    if chosen not in choices:
        msg = f"{name} '{chosen[:60]}' is none of {', '.join(choices)}"
        raise ParameterError(msg)
    return chosen


def _limit(parameters: Mapping[str, str]) -> int:
    text = parameters.get("children") or str(_CHILDREN)
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= _MOST_CHILDREN:
        msg = f"children '{text[:60]}' is not a number from 1 to {_MOST_CHILDREN}"
        raise ParameterError(msg)
    return int(text)


def _cursor(parameters: Mapping[str, str]) -> tuple[str, int] | None:
    text = parameters.get("cursor")
    if not text:
        return None
    node, at, skipped = text.rpartition("@")
    if not at or not (skipped.isascii() and skipped.isdigit()) or len(skipped) > 9:
        msg = f"cursor '{text[:200]}' is not as next_cursor tells it"
        raise ParameterError(msg)
    return node, int(skipped)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """The tree of operations as a table of nodes, parents before their children."""
    grouping = cast("Grouping", _choice(parameters, "group_by", GROUPINGS))
    with_idle = _choice(parameters, "idle", ("exclude", "include")) == "include"
    by_waste = _choice(parameters, "sort", ("time", "wasted")) == "wasted"
    limit, cursor = _limit(parameters), _cursor(parameters)
    with_step_times = wants_step_times(parameters)
    ops, place = _chosen(stats, parameters)
    env = stats.perf_env if place == "device" else PerfEnv()
    tree = OpTree(ops, grouping, stats.program_titles, own=True)
    rows = _Rows(
        tree, env, stats.run_environment.device_type, with_idle=with_idle, by_waste=by_waste
    )
    has_ops = bool(ops.total_op_time_ps)
    listed = list(rows.listed(limit, cursor)) if has_ops else []
    tables = {"nodes": Table(_COLUMNS, [rows.cells(one) for one in listed])}
    if with_step_times:
        series = rows.step_series(listed, on_device=place == "device")
        tables[PARAMETER] = step_table(stats, _STEP_COLUMNS, [series])
    reasons = []
    if not has_ops:
        reasons.append(NO_HLO_OPS)
    elif not env.peak_tera_flops_per_second:
        reasons.append(NO_PEAK_RATES)
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if has_ops else "empty",
        result={
            "device_type": stats.run_environment.device_type,
            "place": place,
            "group_by": grouping,
            "includes_idle": with_idle,
            "total_time_us": ops.total_time_ps / 1e6,
            "total_op_time_us": ops.total_op_time_ps / 1e6,
            "time_scale_ratio": safe_divide(ops.normalized_total_op_time_ps, ops.total_op_time_ps)
            or None,
            "peak_flops_per_second": env.peak_tera_flops_per_second * 1e12 or None,
            **{
                f"peak_{name}_bytes_per_second": env.bandwidth(at) * 1e9 or None
                for name, _, at in _MEMORIES
            },
            **{name: table.to_json() for name, table in tables.items()},
        },
        tables=tables,
        reasons=reasons,
    )


def _chosen(stats: CaptureStats, parameters: Mapping[str, str]) -> tuple[OpDatabase, str]:
    place = parameters.get("place")
    if not place:
        # Hosts without devices beside hosts with them coordinate; the work is the devices'.
        place = _PLACES[
            0 if stats.device_ops.total_op_time_ps or not len(stats.host_execution) else 1
        ]
    place = _choice({"place": place}, "place", _PLACES)
    return (stats.device_ops if place == "device" else stats.host_execution), place


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's profile: one grouping, with and without idle time."""
    asked = parameters.get("group_by")
    grouping = cast("Grouping", asked if asked in GROUPINGS else GROUPINGS[0])
    ops = stats.device_ops
    tree = XprofTree(OpTree(ops, grouping, stats.program_titles, own=False), stats.perf_env)
    key = f"by{grouping.capitalize()}"
    return {
        key: tree.root(with_idle=True),
        "deviceType": stats.run_environment.hardware_type,
        f"{key}ExcludeIdle": tree.root(with_idle=False),
        "aggDvfsTimeScaleMultiplier": safe_divide(
            ops.normalized_total_op_time_ps, ops.total_op_time_ps
        ),
    }
