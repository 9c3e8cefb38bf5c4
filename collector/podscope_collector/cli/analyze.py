"""``podscope analyze``: run a tool on profiles, with no service and no database."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podscope_analyzers.clocks import HostClock
from podscope_analyzers.errors import AnalyzerError, XSpaceError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import (
    analyze_host,
    open_host,
    run_tool,
    run_tool_xprof,
)
from podscope_analyzers.registry import Tool, check_parameters, find_tool
from podscope_analyzers.result import MissingHost, Scope
from podscope_collector.cli import analyze_documents as documents
from podscope_collector.cli.analyze_arguments import Arguments, Format, parse_arguments
from podscope_collector.errors import CollectorError, RequestError
from podscope_collector.profiles import ProfileRun, find_run
from podscope_protos.errors import ExitCode, PodscopeError


@dataclass(frozen=True)
class AnalyzedRun:
    """What could be read of a run.

    Attributes:
        is_partial: Whether a profile that is there could not be read.
    """

    session: str | None
    partials: Sequence[HostPartial]
    scope: Scope
    is_partial: bool


def app(args: Sequence[str], prog_name: str, *, standalone_mode: bool = False) -> int:
    """Run a tool on profiles; no service, no database.

    Args:
        args: Of the command line.
        prog_name: What the command is called.
        standalone_mode: Errors are raised whether set or not; only the dispatcher prints them.

    Returns:
        The exit code.
    """
    del standalone_mode
    given = parse_arguments(args, prog_name)
    path, tool, output_format = given.path, given.tool, given.output_format
    parameters = dict(_pair(text) for text in given.parameters)
    if tool is not None:
        check_parameters(find_tool(tool), parameters)
    elif parameters:
        msg = "--param belongs to a tool: name it with --tool"
        raise RequestError(msg)
    elif output_format in {Format.CSV, Format.XPROF}:
        msg = f"--format {output_format} is of one tool: name it with --tool"
        raise RequestError(msg)
    found = find_run(path, given.run)
    if found.others and given.run is None:
        _warn(f"{len(found.others) + 1} runs in {path}; this is the newest, {found.session}")
    if given.host is not None:
        found = found.only(given.host)
    elif tool is not None and _answers_for_one(find_tool(tool), output_format):
        first = min(file.host for file in found.files)
        if len(found.files) > 1:
            _warn(f"{tool} answers for one host; this is {first}, choose with --host")
        found = found.only(first)
    analyzed = analyze_hosts(found, tool)
    try:
        _print(given, parameters, analyzed)
    except XSpaceError as error:
        # Of a single host, what is not asked for is not read: so it is found here.
        raise _named(analyzed.scope.hosts[0], error) from error
    return int(ExitCode.PARTIAL if analyzed.is_partial else ExitCode.DONE)


def _print(given: Arguments, parameters: Mapping[str, str], analyzed: AnalyzedRun) -> None:
    tool, partials, scope = given.tool, analyzed.partials, analyzed.scope
    if given.output_format is Format.TABLE:
        # What draws tables takes long to load.
        from podscope_collector.cli import analyze_output as output

        if tool is None:
            output.print_summary(partials, scope)
        else:
            output.print_result(run_tool(tool, partials, scope, parameters), given.table)
    elif tool is None:
        documents.print_summary_json(partials, scope)
    elif given.output_format is Format.XPROF:
        documents.print_xprof(run_tool_xprof(tool, partials, parameters))
    else:
        result = run_tool(tool, partials, scope, parameters)
        if given.output_format is Format.JSON:
            documents.print_json(result.to_json())
        else:
            documents.print_csv(result, given.table)


def _answers_for_one(tool: Tool, output_format: Format) -> bool:
    return tool.scope == "host" or (tool.first_host_in_xprof and output_format is Format.XPROF)


def _pair(text: str) -> tuple[str, str]:
    key, equals, given = text.partition("=")
    if not equals or not key.strip():
        msg = f"--param '{text[:60]}' is not understood; write key=value"
        raise RequestError(msg)
    return key.strip(), given


def _warn(message: str) -> None:
    sys.stderr.write(f"podscope: {message}\n")


def analyze_hosts(run: ProfileRun, tool: str | None = None) -> AnalyzedRun:
    """Analyze every host; one that cannot be read costs only itself.

    Args:
        run: Whose hosts.
        tool: The only one that is asked, if only one is.

    Raises:
        PodscopeError: none can be read; the error is the first host's.
    """
    partials: list[HostPartial] = []
    failures: list[tuple[str, PodscopeError]] = []
    # Of many hosts, none may stay in memory with all that was decoded of it.
    is_alone = len(run.files) == 1
    for file in sorted(run.files, key=lambda file: file.host):
        try:
            raw, host = file.read(), file.host
            partial = open_host(raw, host, tool=tool) if is_alone else analyze_host(raw, host)
            # Tools that work on parts answer for the first host alone.
            partials.append(partial.without_parts() if partials else partial)
        except (AnalyzerError, CollectorError) as error:
            failures.append((file.host, error))
    if not partials:
        for name, failure in failures[1:]:
            _warn(f"{name}: {failure}")
        raise _named(*failures[0])
    for name, failure in failures:
        _warn(f"left out {name}: {failure}")
    known = () if run.folder is None else run.folder.captured_hosts()
    files = {file.host for file in run.files}
    scope = Scope(
        hosts=[partial.host for partial in partials],
        session=run.session,
        missing_hosts=[
            *(MissingHost(name, failure.code) for name, failure in failures),
            *(
                MissingHost(one.host, one.reason)
                for one in known
                if one.reason is not None and one.host not in files
            ),
        ],
        clocks={
            one.host: HostClock(one.clock_offset_ns, one.clock_error_ns)
            for one in known
            if one.clock_offset_ns is not None and one.clock_error_ns is not None
        },
    )
    return AnalyzedRun(run.session, partials, scope, bool(failures))


class UnreadableProfileError(CollectorError):
    """None of the profiles can be analyzed."""

    code = "unreadable_profile"
    exit_code = ExitCode.INVALID_INPUT


def _named(host: str, error: PodscopeError) -> PodscopeError:
    if not isinstance(error, AnalyzerError):
        return error
    msg = f"{host}: {error}; it was damaged, cut off, or is another kind of file: capture again"
    return UnreadableProfileError(msg)
