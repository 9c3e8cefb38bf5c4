"""Results of tools: the stored ones, and those with parameters, computed when asked for."""

import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import structlog

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.clocks import HostClock
from podscope_analyzers.errors import PartialError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import run_on_stats, run_tool, run_tool_xprof
from podscope_analyzers.registry import TOOLS, Tool, check_parameters
from podscope_analyzers.result import MissingHost, Scope, ToolResult
from podscope_collector.analyses import services
from podscope_collector.analyses.jobs import pack_result, tool_failed
from podscope_collector.analyses.models import StoredToolResult
from podscope_collector.analyses.outdated import MadeAgain, make_again, read_partial
from podscope_collector.analyses.pod_states import StoredPartial, open_state
from podscope_collector.captures.queries import find_capture, find_host
from podscope_collector.captures.states import AnalysisState
from podscope_collector.errors import CollectorError, InputNotFoundError, RequestError
from podscope_collector.runtime import Runtime
from podscope_collector.storage import StorageError
from podscope_protos.errors import PodscopeError

log = structlog.get_logger()

T = TypeVar("T")

ALL_HOSTS = "ALL_HOSTS"

# Partials of a thousand hosts take memory; a burst of requests must not multiply it.
_computing = threading.BoundedSemaphore(2)


class NotAnalyzedError(CollectorError):
    """The result is not there (yet)."""

    code: ClassVar[str] = "not_analyzed"
    http_status: ClassVar[int] = 409


class ToolFailedError(CollectorError):
    """The tool cannot take these profiles, though they are valid."""

    code: ClassVar[str] = "tool_failed"


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
            analyzed = sorted(one.host for one in services.partials_of(session, capture_id))
            host = analyzed[0] if analyzed else ""
        is_merged = False
        if host:
            row = find_host(session, capture_id, host)
            state, error = row.analysis_state, row.analysis_error or row.message
        else:
            state, error = capture.analysis_state, capture.analysis_error
            # While hosts come late, results are of those that are there.
            is_merged = services.find_state(session, capture_id) is not None
    if state is AnalysisState.DONE or (is_merged and state is not AnalysisState.FAILED):
        return Question(capture_id, tool, host, parameters)
    whose = f"host {host}" if host else "the capture"
    if state is AnalysisState.FAILED or state is None:
        message = f"{whose} has no results: {error or 'it was not captured'}"
    else:
        message = f"{whose} is still being captured or analysed; ask again in a moment"
    raise NotAnalyzedError(message)


def answer(runtime: Runtime, question: Question) -> dict[str, Any]:
    """``body`` and ``tables`` of a result, JSON-ready."""
    tool, given = question.tool, question.parameters
    check_parameters(tool, given)
    stored = None if given else _stored_row(runtime, question)
    if stored is not None and stored.version >= tool.version:
        # Newer ones are of services that were upgraded before this.
        found = _content(runtime, stored)
        if found is not None:
            return found

    def of_state(stats: CaptureStats, scope: Scope) -> ToolResult:
        return run_on_stats(tool, stats, scope, given)

    def of_partials(partials: Sequence[HostPartial], scope: Scope) -> ToolResult:
        return run_tool(tool.name, partials, scope, given)

    result = _computed(runtime, question, of_state, of_partials, with_step_times=True)
    if stored is not None and stored.version < tool.version:
        _replace(runtime, question, stored, result)
    return {
        "body": result.to_json(),
        "tables": {name: table.to_json() for name, table in result.tables.items()},
    }


def _stored_row(runtime: Runtime, question: Question) -> StoredToolResult | None:
    """The stored result, if it is of all hosts that are merged."""
    with runtime.database.reading() as session:
        return services.find_result(session, question.capture_id, question.tool.name, question.host)


def _content(runtime: Runtime, stored: StoredToolResult) -> dict[str, Any] | None:
    if stored.file is None:
        return {"body": stored.body, "tables": stored.tables}
    try:
        found: dict[str, Any] = json.loads(runtime.storage.read(stored.file))
    except InputNotFoundError:
        # Replaced since the row was read.
        return None
    return found


def _replace(
    runtime: Runtime, question: Question, older: StoredToolResult, result: ToolResult
) -> None:
    """Keep a result that had to be made anew, so that it is made once."""
    storage, most = runtime.storage, runtime.settings.max_inline_result_bytes
    with runtime.database.reading() as session:
        folder = find_capture(session, question.capture_id).session
    try:
        row = pack_result(result, storage, folder, question.host or ALL_HOSTS, most)
        with runtime.database.writing() as session:
            replaced = services.replace_result(session, older, row, runtime.clock())
        storage.delete([replaced] if replaced else [])
    except StorageError as error:
        # Full, or only to be read: the result is there, and is made again the next time.
        log.warning("result_not_replaced", tool=result.tool, reason=str(error))


def answer_xprof(runtime: Runtime, question: Question) -> object:
    """What XProf's data route answers for the same tool, JSON-ready or text."""
    tool, given = question.tool, question.parameters
    check_parameters(tool, given)

    def of_state(stats: CaptureStats, _: Scope) -> object:
        return tool.xprof_json(stats, given)

    def of_partials(partials: Sequence[HostPartial], _: Scope) -> object:
        return run_tool_xprof(tool.name, partials, given)

    return _computed(runtime, question, of_state, of_partials, with_step_times=False)


def _computed(
    runtime: Runtime,
    question: Question,
    of_state: Callable[[CaptureStats, Scope], T],
    of_partials: Callable[[Sequence[HostPartial], Scope], T],
    *,
    with_step_times: bool,
) -> T:
    """What is made of the hosts' combined state, or else of their partials.

    Raises:
        ToolFailedError: by a bug of the tool's; other tools have answers.
        NotAnalyzedError: an older podscope analysed the hosts; they are analysed again.
        PartialError: what is stored of a host cannot be read, and would be the same again.
    """

    def made() -> T:
        return _made(runtime, question, of_state, of_partials, with_step_times=with_step_times)

    try:
        try:
            return made()
        except (PartialError, InputNotFoundError) as error:
            with _computing:
                again = make_again(runtime, question.capture_id, question.tool.parts)
            if again is not MadeAgain.NOT_NEEDED:
                raise NotAnalyzedError(_why_not_now(again, error)) from error
        # All can be read now, or never: then it is said why.
        return made()
    except (PodscopeError, MemoryError):
        raise
    except Exception as error:
        raise ToolFailedError(tool_failed(question.tool.name, error)) from error


def _why_not_now(again: MadeAgain, error: Exception) -> str:
    if again is MadeAgain.UNDER_WAY:
        return (
            "an older podscope analysed this capture; it is being analysed again: ask again in a "
            "moment"
        )
    return (
        f"an older podscope analysed this capture ({error}) and its profiles are gone, so it "
        "cannot be analysed again; take another capture"
    )


def _made(
    runtime: Runtime,
    question: Question,
    of_state: Callable[[CaptureStats, Scope], T],
    of_partials: Callable[[Sequence[HostPartial], Scope], T],
    *,
    with_step_times: bool,
) -> T:
    with _computing:
        stored = _stored(runtime, question)
        if stored.state_files:
            try:
                state = open_state(runtime.storage, stored.state_files)
                held = {host.host for host in state.hosts}
                hosts = [host for host in stored.scope.hosts if host in held]
                stats = state.stats(
                    keep_incomplete_steps=question.tool.keeps_incomplete_steps,
                    with_step_times=with_step_times,
                )
                return of_state(stats, replace(stored.scope, hosts=hosts))
            except (InputNotFoundError, PartialError) as error:
                # Just replaced, or damaged: the next reduce makes another.
                log.info("pod_state_not_read", reason=str(error))
        return of_partials(_partials(runtime, stored, question.tool), stored.scope)


@dataclass(frozen=True)
class _Stored:
    """What is stored of the hosts that a question is about.

    Attributes:
        session: The capture's.
        state_files: Of their combined state; empty where they have none.
    """

    session: str
    scope: Scope
    partials: Sequence[StoredPartial]
    state_files: Sequence[str]


def _stored(runtime: Runtime, question: Question) -> _Stored:
    with runtime.database.reading() as session:
        capture = find_capture(session, question.capture_id)
        partials = services.partials_of(session, question.capture_id, question.host or None)
        missing, clocks, state = [], [], None
        if not question.host:
            missing = services.missing_hosts(session, question.capture_id)
            clocks = services.clocks_of(session, question.capture_id)
            state = services.find_state(session, question.capture_id)
        files = state.files if state is not None else []
    scope = Scope(
        hosts=[partial.host for partial in partials],
        session=capture.session,
        capture=str(capture.id),
        missing_hosts=[MissingHost(host, reason) for host, reason in missing],
        clocks={name: HostClock(offset_ns, error_ns) for name, offset_ns, error_ns in clocks},
    )
    return _Stored(capture.session, scope, partials, files)


def _partials(runtime: Runtime, stored: _Stored, tool: Tool) -> list[HostPartial]:
    storage, session = runtime.storage, stored.session
    return [read_partial(storage, session, one, tool.parts) for one in stored.partials]
