"""``podscope diff``: what changed between two captures, two hosts, or two ranges of steps."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from podscope_analyzers.diff.compare import Side, compare, parameters_for
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import hosts_of, run_tool
from podscope_analyzers.registry import check_parameters, find_tool
from podscope_analyzers.result import Scope, Table
from podscope_collector.cli.analyze import AnalyzedRun, analyze_hosts
from podscope_collector.cli.analyze_documents import print_csv, print_json
from podscope_collector.cli.diff_arguments import DiffArguments, DiffSide, parse_arguments
from podscope_collector.errors import RequestError
from podscope_collector.profiles import find_run
from podscope_protos.errors import ExitCode


def app(args: Sequence[str], prog_name: str, *, standalone_mode: bool = False) -> int:
    """Compare, and print the changes.

    Args:
        args: Of the command line.
        prog_name: What the command is called.
        standalone_mode: Errors are raised whether set or not; only the dispatcher prints them.

    Returns:
        The exit code.
    """
    del standalone_mode
    given = parse_arguments(args, prog_name)
    tool = find_tool(given.tool)
    parameters = dict(_pair(text) for text in given.parameters)
    check_parameters(tool, parameters)
    if given.url is not None:
        document, is_partial = _of_service(given, parameters), False
    else:
        document, is_partial = _of_files(given, parameters)
    if given.as_json:
        print_json(document)
    elif given.as_csv and document["status"] == "ok":
        print_csv(_Tables(document), given.table)
    elif given.as_csv:
        for reason in document["reasons"]:
            sys.stderr.write(f"podscope: {reason['message']}: {reason['advice']}\n")
    else:
        # What draws tables takes long to load.
        from podscope_collector.cli.diff_output import print_comparison

        print_comparison(document, given.table)
    if document["status"] != "ok":
        return int(ExitCode.FAILED)
    return int(ExitCode.PARTIAL if is_partial else ExitCode.DONE)


class _Tables:
    """The tables of a comparison that was described as JSON."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.tool: str = document["tool"]
        self.tables: Mapping[str, Table] = {
            name: Table.from_json(table) for name, table in document["tables"].items()
        }


def _of_service(given: DiffArguments, parameters: Mapping[str, str]) -> dict[str, Any]:
    from podscope_collector.client import ServiceClient

    if given.base.run or given.other.run:
        message = "--run is of folders; a service's captures have ids"
        raise RequestError(message)
    asked = {
        "base": given.base.capture,
        "host": given.other.host,
        "base_host": given.base.host,
        "steps": _range(given.other),
        "base_steps": _range(given.base),
    }
    query = {name: text for name, text in asked.items() if text is not None} | dict(parameters)
    path = f"/captures/{given.other.capture}/tools/{given.tool}/diff"
    client = ServiceClient(given.url or "", given.token_file, timeout_s=300)
    return client.ask("GET", path, query=query)


def _range(side: DiffSide) -> str | None:
    return None if side.steps is None else f"{side.steps[0]}-{side.steps[1]}"


def _of_files(given: DiffArguments, parameters: Mapping[str, str]) -> tuple[dict[str, Any], bool]:
    base, first = _side(given.base, given.tool, parameters, None)
    # Of one capture in two ranges of steps nothing is read twice.
    is_same = (given.base.capture, given.base.run, given.base.host) == (
        given.other.capture,
        given.other.run,
        given.other.host,
    )
    other, second = _side(given.other, given.tool, parameters, first if is_same else None)
    is_partial = any(run.is_partial for run in (first, second))
    return compare(base, other).to_json(), is_partial


def _side(
    side: DiffSide, tool: str, parameters: Mapping[str, str], analyzed: AnalyzedRun | None
) -> tuple[Side, AnalyzedRun]:
    if analyzed is None:
        found = find_run(side.capture, side.run)
        if found.others and side.run is None:
            sys.stderr.write(
                f"podscope: {len(found.others) + 1} runs in {side.capture}; this is the newest, "
                f"{found.session}\n"
            )
        analyzed = analyze_hosts(found if side.host is None else found.only(side.host))
    asked = {**parameters, **parameters_for(tool, side.steps)}
    result = run_tool(tool, analyzed.partials, analyzed.scope, asked)
    overview = run_tool("overview_page", *_same_hosts(tool, analyzed))
    return Side(result, overview, side.steps), analyzed


def _same_hosts(tool: str, analyzed: AnalyzedRun) -> tuple[Sequence[HostPartial], Scope]:
    """The hosts that the tool answers for."""
    partials = hosts_of(find_tool(tool), analyzed.partials)
    return partials, Scope([partial.host for partial in partials], analyzed.session)


def _pair(text: str) -> tuple[str, str]:
    key, equals, given = text.partition("=")
    if not equals or not key.strip():
        message = f"--param '{text[:60]}' is not understood; write key=value"
        raise RequestError(message)
    return key.strip(), given
