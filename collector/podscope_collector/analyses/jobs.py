"""What runs in an analysis process: read from storage, analyse, store, return the rest as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import MissingHost, Scope, ToolResult

from podscope_collector.storage import Storage

ALL_HOSTS = "ALL_HOSTS"


def analyze_stored_host(
    storage_root: str, session: str, host: str, capture_id: str, max_inline_bytes: int
) -> dict[str, Any]:
    """Analyse one stored XSpace; its partial goes to storage.

    Returns:
        ``summary``, ``partial_file`` and ``results``, JSON-ready.
    """
    storage = Storage(storage_root)
    partial = analyze_host(storage.read_xspace(session, host), host)
    stored = storage.put_derived("partials", session, f"{host}.partial", partial.to_bytes())
    scope = Scope(hosts=[host], session=session, capture=capture_id)
    results = [
        _packed(run_tool(tool.name, [partial], scope), storage, session, host, max_inline_bytes)
        for tool in TOOLS.values()
        if tool.scope != "all_hosts"
    ]
    return {
        "summary": _summary(partial),
        "partial_file": stored.path,
        "results": results,
    }


def reduce_stored_capture(
    storage_root: str,
    session: str,
    capture_id: str,
    partials: Sequence[tuple[str, str]],
    missing: Sequence[tuple[str, str]],
    max_inline_bytes: int,
) -> dict[str, Any]:
    """Make the results of all hosts together out of their stored partials.

    Returns:
        ``summary``, ``pod_viewer_rows`` and ``results``, JSON-ready.
    """
    storage = Storage(storage_root)
    loaded = [HostPartial.from_bytes(storage.read(path)) for _, path in partials]
    scope = Scope(
        hosts=[host for host, _ in partials],
        session=session,
        capture=capture_id,
        missing_hosts=[MissingHost(host, reason) for host, reason in missing],
    )
    results = {
        tool.name: run_tool(tool.name, loaded, scope)
        for tool in TOOLS.values()
        if tool.scope != "host"
    }
    return {
        "summary": {},
        "pod_viewer_rows": [],
        "results": [
            _packed(result, storage, session, ALL_HOSTS, max_inline_bytes)
            for result in results.values()
        ],
    }
