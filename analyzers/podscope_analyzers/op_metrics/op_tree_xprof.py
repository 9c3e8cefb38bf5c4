"""The operations' tree as the reference's clients read it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from podscope_analyzers.op_metrics.database import IDLE, OpDatabase, safe_divide
from podscope_analyzers.op_metrics.kernel_metadata import kernel_metadata
from podscope_analyzers.op_metrics.op_tree import Node, OpTree, Work
from podscope_analyzers.op_metrics.rates import GIBI
from podscope_analyzers.peaks import HBM, SRAM_READ, SRAM_WRITE, PerfEnv

MAX_CHILDREN: Final = 100
# Levels from the root whose nodes keep all their children.
_WHOLE_LEVELS: Final = {"program": 2, "category": 1, "provenance": 100}
_FUSION: Final = " fusion"


@dataclass(slots=True)
class _Shown:
    """A node as it is shown; ``details`` are None where there are none."""

    name: str
    metrics: dict[str, Any]
    details: dict[str, Any] | None = None
    children: list["_Shown"] = field(default_factory=list)
    count: int = 0

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "name": self.name,
            "metrics": self.metrics,
            "children": [child.to_json() for child in self.children],
            "numChildren": self.count,
        }
        if self.details is not None:
            shown["xla"] = self.details
        return shown


class XprofTree:
    """Renders a tree with its time and rates relative to the devices' peaks."""

    def __init__(self, tree: OpTree, perf_env: PerfEnv) -> None:
        self._tree = tree
        self._database = tree.database
        self._peak_flops = perf_env.peak_tera_flops_per_second * 1000
        self._peaks = [perf_env.bandwidth(at) / GIBI for at in (HBM, SRAM_READ, SRAM_WRITE)]

    def root(self, *, with_idle: bool) -> dict[str, Any]:
        """The root, with or without the time in which nothing ran."""
        database, tree = self._database, self._tree
        if not len(database):
            return _Shown(tree.root.name, self._metrics(Work(), 0)).to_json()
        total_ps = database.total_time_ps if with_idle else database.total_op_time_ps
        root = self._shown(tree.root, total_ps, with_idle=with_idle)
        _sort(root, _WHOLE_LEVELS[tree.grouping])
        return _merged(root).to_json()

    def _shown(self, node: Node, total_ps: int, *, with_idle: bool) -> _Shown:
        work = node.work
        metrics = self._metrics(work, total_ps, total_ps if node.kind == "root" else work.time_ps)
        children = [
            self._shown(child, total_ps, with_idle=with_idle)
            for child in self._tree.children(node, with_idle=with_idle)
        ]
        details = _details(self._database, node.row) if node.row >= 0 else None
        return _Shown(node.name, metrics, details, children, len(children))

    def _metrics(self, work: Work, total_ps: int, time_ps: int = 0) -> dict[str, Any]:
        nanoseconds = time_ps / 1e3
        rate = safe_divide(work.flops, nanoseconds)
        if work.normalized_time_ps > 0:
            rate *= safe_divide(time_ps, work.normalized_time_ps)
        utilization = safe_divide(rate, self._peak_flops)
        share = safe_divide(time_ps, total_ps)
        bandwidths = [
            safe_divide(size, nanoseconds) / GIBI
            for size in (work.hbm_bytes, work.on_chip_read_bytes, work.on_chip_written_bytes)
        ]
        return {
            "flops": min(utilization, 1.0) * share,
            "uncappedFlops": utilization * share,
            "bandwidthUtils": [
                min(safe_divide(bandwidth, peak), 1.0)
                for bandwidth, peak in zip(bandwidths, self._peaks, strict=True)
            ],
            "rawTime": time_ps,
            "rawFlops": work.model_flops,
            "bf16Flops": work.flops,
            "normalizedTimePs": work.normalized_time_ps,
            "rawBytesAccessedArray": [one * GIBI * nanoseconds for one in bandwidths],
            "occurrences": work.occurrences,
            "avgTimePs": safe_divide(time_ps, work.occurrences),
        }


def _details(database: OpDatabase, row: int) -> dict[str, Any]:
    category, expression = database.text("category", row), database.text("long_name", row)
    metadata = kernel_metadata(expression)
    return {
        "op": "",
        "expression": expression,
        "provenance": database.text("provenance", row),
        "category": category,
        "computationPrimitiveSize": 0,
        "fingerprint": "0",
        "programId": "0" if category == IDLE else str(database.module_id(row)),
        "sourceInfo": {
            "fileName": database.text("source_file", row),
            "lineNumber": int(database.column("source_line")[row]),
            "stackFrame": database.text("source_stack", row),
        },
        "xprofKernelMetadata": ""
        if metadata is None
        else json.dumps(metadata, separators=(",", ":"), sort_keys=True, ensure_ascii=False),
    }


def _sort(node: _Shown, whole_levels: int) -> None:
    """By time, longest first, what fusions hold by work; cut below the levels kept whole."""
    for child in node.children:
        _sort(child, whole_levels - 1)
    node.count = len(node.children)
    if len(node.children) > 1:
        is_fusion = node.details is not None and node.details["category"].endswith(_FUSION)
        by = "rawFlops" if is_fusion else "rawTime"
        node.children.sort(key=lambda child: -child.metrics[by])
        if whole_levels <= 0:
            del node.children[MAX_CHILDREN:]


def _merged(node: _Shown) -> _Shown:
    """Copies of an operation under the name of the longest; single ones without their group."""
    is_group = (
        node.details is None
        and bool(node.children)
        and all(child.details is not None for child in node.children)
    )
    if not is_group:
        node.children = [_merged(child) for child in node.children]
        return node
    first = node.children[0]
    if len(node.children) == 1:
        return first
    node.name = f"{first.name} and its duplicate(s)"
    node.details = dict(_copied(first.details or {}))
    return node


def _copied(details: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from (details | {"computationPrimitiveSize": 0}).items()
    if details["category"].endswith(_FUSION):
        yield "provenance", ""
    else:
        yield "layout", {"dimensions": []}
