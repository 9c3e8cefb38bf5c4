"""Results of tools: the stored ones, and those with parameters, computed when asked for."""

import json
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from podscope_analyzers.clocks import HostClock
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import run_tool, run_tool_xprof
from podscope_analyzers.registry import TOOLS, Tool
from podscope_analyzers.result import MissingHost, Scope
from podscope_collector.analyses import services
from podscope_collector.captures.services import find_capture, find_host
from podscope_collector.captures.states import AnalysisState
from podscope_collector.errors import CollectorError, InputNotFoundError, RequestError
from podscope_collector.runtime import Runtime
from podscope_collector.storage import Storage

ALL_HOSTS = "ALL_HOSTS"

_MAX_PART_BYTES: Final = 1 << 30
# Partials of a thousand hosts take memory; a burst of requests must not multiply it.
_computing = threading.BoundedSemaphore(2)


class NotAnalyzedError(CollectorError):
    """The result is not there (yet)."""

    code: ClassVar[str] = "not_analyzed"
    http_status: ClassVar[int] = 409


@dataclass(frozen=True)
class Question:
    """What a client wants to know.

    Attributes:
        host: Empty for all hosts together.
        parameters: The tool's own.
    """

    capture_id: uuid.UUID
    tool: Tool
    host: str
    parameters: Mapping[str, str]


def tool_named(name: str) -> Tool:
    """The tool.

    Raises:
        InputNotFoundError: there is none of this name.
    """
    tool = TOOLS.get(name)
    if tool is None:
        message = f"no tool '{name[:80]}'; there are {', '.join(TOOLS)}"
        raise InputNotFoundError(message)
    return tool


def ask(
    runtime: Runtime,
    capture_id: uuid.UUID,
    name: str,
    host: str,
    parameters: Mapping[str, str],
    *,
    as_xprof: bool = False,
    of_any_host: bool = False,
) -> Question:
    """A question that can be answered now.

    A tool for single hosts that is asked without one answers for the first in name order, and so
    do some more ``as_xprof``, unless they are asked for all hosts by name. A tool for all hosts
    together answers for one of them ``of_any_host`` alone.

    Raises:
        InputNotFoundError: there is no such capture, host or tool.
        NotAnalyzedError: the analysis is under way, or failed.
    """
    tool = tool_named(name)
    for_first = tool.scope == "host" or (as_xprof and tool.first_host_in_xprof and not host)
    if host == ALL_HOSTS:
        host = ""
    if host and tool.scope == "all_hosts" and not of_any_host:
        message = f"{name} answers for all hosts together; leave out host"
        raise RequestError(message)
    with runtime.database.reading() as session:
        capture = find_capture(session, capture_id)
        if not host and for_first:
            analyzed = sorted(name for name, _ in services.partials_of(session, capture_id))
            host = analyzed[0] if analyzed else ""
        if host:
            row = find_host(session, capture_id, host)
            state, error = row.analysis_state, row.analysis_error or row.message
        else:
            state, error = capture.analysis_state, capture.analysis_error
    if state is AnalysisState.DONE:
        return Question(capture_id, tool, host, parameters)
    whose = f"host {host}" if host else "the capture"
    if state is AnalysisState.FAILED or state is None:
        message = f"{whose} has no results: {error or 'it was not captured'}"
    else:
        message = f"{whose} is still being captured or analysed; ask again in a moment"
    raise NotAnalyzedError(message)


def answer(runtime: Runtime, question: Question) -> dict[str, Any]:
    """``body`` and ``tables`` of a result, JSON-ready."""
    if not question.parameters:
        with runtime.database.reading() as session:
            stored = services.find_result(
                session, question.capture_id, question.tool.name, question.host
            )
        if stored is not None and stored.file is not None:
            found: dict[str, Any] = json.loads(runtime.storage.read(stored.file))
            return found
        if stored is not None:
            return {"body": stored.body, "tables": stored.tables}
    with _computing:
        partials, scope = _load(runtime, question)
        result = run_tool(question.tool.name, partials, scope, question.parameters)
    return {
        "body": result.to_json(),
        "tables": {name: table.to_json() for name, table in result.tables.items()},
    }


def answer_xprof(runtime: Runtime, question: Question) -> object:
    """What XProf's data route answers for the same tool, JSON-ready or text."""
    with _computing:
        partials, _ = _load(runtime, question)
        return run_tool_xprof(question.tool.name, partials, question.parameters)


def _load(runtime: Runtime, question: Question) -> tuple[list[HostPartial], Scope]:
    with runtime.database.reading() as session:
        capture = find_capture(session, question.capture_id)
        stored = services.partials_of(session, question.capture_id, question.host or None)
        missing = [] if question.host else services.missing_hosts(session, question.capture_id)
        clocks = [] if question.host else services.clocks_of(session, question.capture_id)
    scope = Scope(
        hosts=[host for host, _ in stored],
        session=capture.session,
        capture=str(capture.id),
        missing_hosts=[MissingHost(host, reason) for host, reason in missing],
        clocks={name: HostClock(offset_ns, error_ns) for name, offset_ns, error_ns in clocks},
    )
    partials = [HostPartial.from_bytes(runtime.storage.read(path)) for _, path in stored]
    parts = question.tool.parts
    return [_with_parts(runtime.storage, capture.session, p, parts) for p in partials], scope


def _with_parts(
    storage: Storage, session: str, partial: HostPartial, names: Sequence[str]
) -> HostPartial:
    for name in names:
        try:
            packed = storage.read_derived("parts", session, f"{partial.host}.{name}")
        except InputNotFoundError as error:
            message = (
                f"the {name} of host {partial.host} were not kept; run the tool on the profile "
                "itself: podscope analyze"
            )
            raise NotAnalyzedError(message) from error
        partial = partial.with_part(name, packed, max_bytes=_MAX_PART_BYTES)
    return partial
