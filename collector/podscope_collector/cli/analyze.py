"""``podscope analyze``: run a tool on profiles, with no service and no database."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from podscope_analyzers.errors import AnalyzerError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.registry import TOOLS, check_parameters, find_tool
from podscope_analyzers.result import MissingHost, Scope
from podscope_collector.cli import analyze_output as output
from podscope_collector.errors import CollectorError, RequestError
from podscope_collector.profiles import ProfileRun, find_run
from podscope_protos.errors import ExitCode, PodscopeError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    XPROF = "xprof"


_EPILOG = f"""\
examples:

  podscope analyze runs                               what the newest run says, and its tools

  podscope analyze runs --tool pod_viewer             who is late

  podscope analyze w0.xplane.pb --tool framework_op_stats --format csv --table with_idle

  podscope analyze runs --run 2026_11_21_09_00_00 --tool overview_page --format xprof

tools: {", ".join(TOOLS)}

exit codes: 0 done, 2 wrong usage, 3 nothing there, 4 corrupt or foreign, 5 some hosts could
not be read
"""


@dataclass(frozen=True)
class _Analyzed:
    """What could be read of a run."""

    session: str | None
    partials: Sequence[HostPartial]
    scope: Scope


@app.command(epilog=_EPILOG)
def analyze(
    path: Annotated[Path, typer.Argument(help="A profile, a run folder, or a log folder.")],
    tool: Annotated[
        str | None, typer.Option(help="Name of the tool; without it, a summary.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="One host of the run.")] = None,
    run: Annotated[
        str | None, typer.Option(help="Which run of a log folder; the newest without it.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="A parameter of the tool, key=value; repeatable.")
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--format", help="json is our result, xprof is XProf's.")
    ] = Format.TABLE,
    table: Annotated[
        str | None, typer.Option(help="Which table of the result, for csv and table.")
    ] = None,
) -> None:
    """Run a tool on profiles; no service, no database."""
    parameters = dict(_pair(text) for text in param or [])
    if tool is not None:
        check_parameters(find_tool(tool), parameters)
    elif parameters:
        msg = "--param belongs to a tool: name it with --tool"
        raise RequestError(msg)
    elif output_format in {Format.CSV, Format.XPROF}:
        msg = f"--format {output_format} is of one tool: name it with --tool"
        raise RequestError(msg)
    found = find_run(path, run)
    if found.others and run is None:
        _warn(f"{len(found.others) + 1} runs in {path}; this is the newest, {found.session}")
    if host is not None:
        found = found.only(host)
    elif tool is not None and find_tool(tool).scope == "host":
        first = min(file.host for file in found.files)
        if len(found.files) > 1:
            _warn(f"{tool} answers for one host; this is {first}, choose with --host")
        found = found.only(first)
    analyzed = _analyze_hosts(found)
    if tool is None:
        output.print_summary(
            analyzed.partials, analyzed.scope, as_json=output_format is Format.JSON
        )
    elif output_format is Format.XPROF:
        output.print_json(run_tool_xprof(tool, analyzed.partials, parameters))
    else:
        result = run_tool(tool, analyzed.partials, analyzed.scope, parameters)
        if output_format is Format.JSON:
            output.print_json(result.to_json())
        elif output_format is Format.CSV:
            output.print_csv(result, table)
        else:
            output.print_result(result, table)
    if analyzed.scope.missing_hosts:
        raise typer.Exit(int(ExitCode.PARTIAL))


def _pair(text: str) -> tuple[str, str]:
    key, equals, given = text.partition("=")
    if not equals or not key.strip():
        msg = f"--param '{text[:60]}' is not understood; write key=value"
        raise RequestError(msg)
    return key.strip(), given


def _warn(message: str) -> None:
    sys.stderr.write(f"podscope: {message}\n")


def _analyze_hosts(run: ProfileRun) -> _Analyzed:
    """Analyze every host; one that cannot be read costs only itself.

    Raises:
        PodscopeError: none can be read; the error is the first host's.
    """
    partials: list[HostPartial] = []
    failures: list[tuple[str, PodscopeError]] = []
    for file in sorted(run.files, key=lambda file: file.host):
        try:
            partial = analyze_host(file.read(), file.host)
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
    scope = Scope(
        hosts=[partial.host for partial in partials],
        session=run.session,
        missing_hosts=[MissingHost(name, failure.code) for name, failure in failures],
    )
    return _Analyzed(run.session, partials, scope)


class UnreadableProfileError(CollectorError):
    """None of the profiles can be analyzed."""

    code = "unreadable_profile"
    exit_code = ExitCode.INVALID_INPUT


def _named(host: str, error: PodscopeError) -> PodscopeError:
    if not isinstance(error, AnalyzerError):
        return error
    msg = f"{host}: {error}; it was damaged, cut off, or is another kind of file: capture again"
    return UnreadableProfileError(msg)
