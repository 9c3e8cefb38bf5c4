"""What runs in an analysis process: read from storage, analyse, store, return the rest as JSON."""

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.clocks import HostClock
from podscope_analyzers.common_ends import find_common_ends
from podscope_analyzers.errors import PartialError
from podscope_analyzers.partials import PARTS
from podscope_analyzers.pipeline import analyze_host, combine, run_on_stats
from podscope_analyzers.registry import TOOLS, Tool
from podscope_analyzers.result import MissingHost, Scope, Table, ToolResult
from podscope_analyzers.summary import summarize_hosts
from podscope_analyzers.xspace import open_xspace, verify
from podscope_collector.analyses.outdated import unreadable_hosts
from podscope_collector.analyses.pod_states import StoredPartial, bring_up_to_date, open_state
from podscope_collector.captures.statement import statement_of
from podscope_collector.errors import InputNotFoundError
from podscope_collector.storage import Storage
from podscope_protos.errors import PodscopeError

_ALL_HOSTS = "ALL_HOSTS"
_SUMMARY_FIELDS = (
    "device_type",
    "step_count",
    "step_time_ms",
    "duty_cycle_ratio",
    "flops_per_second",
    "peak_flops_per_second",
)
# Columns of the pod viewer's table of steps that have a column of their own in the database.
_STEP_COLUMNS = {
    "step": "step_num",
    "host": "host",
    "core_id": "core_id",
    "begin_us": "begin_us",
    "duration_us": "total_duration_us",
    "own_work_us": "own_work_us",
    "bottleneck": "bottleneck",
}


def analyze_stored_host(
    storage_root: str, session: str, host: str, capture_id: str, max_inline_bytes: int
) -> dict[str, Any]:
    """Analyse one stored XSpace; its partial goes to storage.

    Returns:
        ``summary``, ``window_ns``, ``warnings``, ``partial_file``, ``partial_digest`` and
        ``results``, ready for the database. A tool that fails has none and is among the warnings.

    Raises:
        XSpaceError: It is damaged, in whatever part.
    """
    storage = Storage(storage_root)
    xspace = storage.load(storage.xspace_path(session, host))
    # On arrival only the structure was checked, and no analysis reads all of it.
    verify(xspace)
    statement = statement_of(open_xspace(xspace))
    partial = analyze_host(xspace, host)
    # The parts first: whoever finds the partial finds them too.
    for part in PARTS:
        storage.put_derived("parts", session, f"{host}.{part}", partial.part_to_bytes(part))
    stored = storage.put_derived("partials", session, f"{host}.partial", partial.to_bytes())
    scope = Scope(hosts=[host], session=session, capture=capture_id)
    tools = _Results(functools.partial(combine, [partial]), scope)
    summary = {name: getattr(partial.summary, name) for name in _SUMMARY_FIELDS}
    results, failed = tools.packed(
        [tool for tool in TOOLS.values() if tool.scope != "all_hosts"],
        lambda result: pack_result(result, storage, session, host, max_inline_bytes),
    )
    return {
        "summary": {**summary, "breakdown": dict(partial.summary.breakdown)},
        "window_ns": statement.window_ns,
        "warnings": [*statement.warnings, *failed],
        "partial_file": stored.path,
        "partial_digest": stored.sha256,
        "results": results,
    }


def merge_stored_hosts(
    storage_root: str, session: str, partials: Sequence[StoredPartial], files: Sequence[str]
) -> dict[str, Any]:
    """Bring the combined state of a capture's hosts up to date with their stored partials.

    Args:
        storage_root: Where both are.
        session: The capture's.
        partials: Of all hosts that have one.
        files: The state of before; empty without one.

    Returns:
        ``files`` of the state, how many hosts were ``merged`` into it, and ``why_anew`` all of them
        where the state of before could not be used. Or, where partials cannot be read,
        ``outdated``, the hosts whose partials have to be made again first, and ``lasting``, those
        of which that gives the same, with the reasons.

    Raises:
        PartialError: a partial cannot be read, and what it was made of is gone; or a newer podscope
            made it.
        InputNotFoundError: a partial is gone, and so is what it was made of.
    """
    storage = Storage(storage_root)
    try:
        kept = bring_up_to_date(storage, session, partials, files)
    except (PartialError, InputNotFoundError):
        unreadable = unreadable_hosts(storage, session, partials)
        if not unreadable.outdated and not unreadable.lasting:
            raise
        return {"outdated": list(unreadable.outdated), "lasting": dict(unreadable.lasting)}
    return {"files": list(kept.files), "merged": kept.merged, "why_anew": kept.why_anew}


def reduce_stored_capture(
    storage_root: str,
    session: str,
    capture_id: str,
    hosts: Sequence[str],
    missing: Sequence[tuple[str, str]],
    files: Sequence[str],
    max_inline_bytes: int,
    clocks: Sequence[tuple[str, int, int]] = (),
) -> dict[str, Any]:
    """Make the results of all hosts together out of their combined state.

    Args:
        storage_root: Where it is.
        session: The capture's.
        capture_id: For the results' scope.
        hosts: Those in the state, in the order of the request.
        missing: The others, with the reasons.
        files: Of the state.
        max_inline_bytes: Larger results go to storage.
        clocks: Host, offset and error of each clock that was measured, nanoseconds.

    Returns:
        ``summary``, ``pod_viewer_rows`` and ``results``, ready for the database, the tools that
        ``failed``, a sentence each, and ``common_ends`` of the hosts where they share any.
    """
    storage = Storage(storage_root)
    scope = Scope(
        hosts=list(hosts),
        session=session,
        capture=capture_id,
        missing_hosts=[MissingHost(host, reason) for host, reason in missing],
        clocks={host: HostClock(offset_ns, error_ns) for host, offset_ns, error_ns in clocks},
    )
    tools = _Results(open_state(storage, files).stats, scope)
    pod = tools.of(TOOLS["pod_viewer"])
    stats = tools.stats(keep_incomplete_steps=False)
    summary = summarize_hosts(stats).to_json()
    ends = find_common_ends(stats, scope.clocks)
    results, failed = tools.packed(
        [tool for tool in TOOLS.values() if tool.scope != "host"],
        lambda result: pack_result(result, storage, session, _ALL_HOSTS, max_inline_bytes),
    )
    return {
        "summary": {
            **{name: summary[name] for name in (*_SUMMARY_FIELDS, "breakdown")},
            "slow_host": pod.result["straggler"]["host"],
        },
        "common_ends": None if ends is None else ends.to_json(),
        "pod_viewer_rows": _pod_viewer_rows(pod.tables["steps"]),
        "results": results,
        "failed": failed,
    }


class _Results:
    """Results of several tools on the same hosts, which are combined once for all of them."""

    def __init__(self, combined: Callable[..., CaptureStats], scope: Scope) -> None:
        self._combined = combined
        self._scope = scope
        self._stats: dict[bool, CaptureStats] = {}
        self._results: dict[str, ToolResult] = {}

    def stats(self, *, keep_incomplete_steps: bool) -> CaptureStats:
        if keep_incomplete_steps not in self._stats:
            self._stats[keep_incomplete_steps] = self._combined(
                keep_incomplete_steps=keep_incomplete_steps
            )
        return self._stats[keep_incomplete_steps]

    def of(self, tool: Tool) -> ToolResult:
        if tool.name not in self._results:
            stats = self.stats(keep_incomplete_steps=tool.keeps_incomplete_steps)
            self._results[tool.name] = run_on_stats(tool, stats, self._scope, {})
        return self._results[tool.name]

    def packed(
        self, wanted: Sequence[Tool], pack: Callable[[ToolResult], dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Rows for the results, and a sentence for each tool that failed.

        Profiles come from anywhere: one that a single tool cannot take keeps its other results.
        """
        rows, failed = [], []
        for tool in wanted:
            try:
                rows.append(pack(self.of(tool)))
            except (PodscopeError, MemoryError):
                # Of the profile, the storage or the machine, and not of the tool.
                raise
            except Exception as error:  # noqa: BLE001 - a tool's bug costs that tool alone
                failed.append(tool_failed(tool.name, error))
        return rows, failed


def tool_failed(name: str, error: Exception) -> str:
    """What is said of a tool that cannot take a profile."""
    return (
        f"{name} cannot take this profile ({type(error).__name__}: {error}); the other tools' "
        "results are complete"
    )


def pack_result(
    result: ToolResult, storage: Storage, session: str, host: str, max_inline_bytes: int
) -> dict[str, Any]:
    """A row for the result; a large one goes to storage, and the row points at it."""
    content = {
        "body": result.to_json(),
        "tables": {name: table.to_json() for name, table in result.tables.items()},
    }
    # NaN has no JSON, and a tool that lets one out must fail here and not in a browser.
    text = json.dumps(content, allow_nan=False).encode()
    file = None
    if len(text) > max_inline_bytes:
        # A name for these bytes: who makes older results at the same time does not replace them.
        digest = hashlib.sha256(text).hexdigest()[:16]
        name = f"{host}.{result.tool}.{digest}.json"
        file = storage.put_derived("results", session, name, text).path
    return {
        "tool": result.tool,
        "version": result.version,
        "status": result.status,
        "body": content["body"] if file is None else None,
        "tables": content["tables"] if file is None else None,
        "file": file,
        "size_bytes": len(text),
    }


def _pod_viewer_rows(steps: Table) -> list[dict[str, Any]]:
    names = [column.id for column in steps.columns]
    categories = [name for name in names if name.endswith("_us") and name not in _STEP_COLUMNS]
    rows = []
    for cells in steps.rows:
        row = dict(zip(names, cells, strict=True))
        rows.append(
            {
                **{column: row[name] for name, column in _STEP_COLUMNS.items()},
                "breakdown_us": {name.removesuffix("_us"): row[name] for name in categories},
            }
        )
    return rows
