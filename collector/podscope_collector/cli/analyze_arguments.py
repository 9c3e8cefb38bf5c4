"""The arguments of ``podscope analyze``.

The standard library parses them: what the other commands use takes longer to import than a small
profile takes to analyze.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NoReturn


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    XPROF = "xprof"


@dataclass(frozen=True)
class Arguments:
    """What to analyze and how to print it.

    Attributes:
        path: A profile, a run folder, or a log folder, here or in a bucket.
        tool: None for a summary.
        parameters: As given, ``key=value``.
        table: Which table of the result.
    """

    path: str
    tool: str | None
    host: str | None
    run: str | None
    parameters: tuple[str, ...]
    output_format: Format
    table: str | None


class UsageError(Exception):
    """The arguments are not understood."""

    def format_message(self) -> str:
        """What is wrong, as the command line's dispatcher asks parsers for it."""
        return str(self)


class ArgumentParser(argparse.ArgumentParser):
    """A parser that raises what is wrong, for the dispatcher to print."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong."""
        raise UsageError(message[:1].upper() + message[1:])


_EPILOG: Final = """\
examples:
  podscope analyze runs                               what the newest run says, and its tools
  podscope analyze runs --tool pod_viewer             who is late
  podscope analyze w0.xplane.pb --tool framework_op_stats --format csv --table with_idle
  podscope analyze gs://team/logs --host w0           a bucket's newest run
  podscope analyze runs --run 2026_11_21_09_00_00 --tool overview_page --format xprof

tools:
{tools}

exit codes: 0 done, 2 wrong usage, 3 nothing there, 4 corrupt or foreign, 5 some hosts could
not be read
"""


def parse_arguments(given: Sequence[str], prog_name: str) -> Arguments:
    """The arguments of one call; ``--help`` prints and ends the process.

    Raises:
        UsageError: they are not understood.
    """
    asks_help = not {"-h", "--help"}.isdisjoint(given)
    parser = ArgumentParser(
        prog=prog_name,
        description="Run a tool on profiles; no service, no database.",
        epilog=_EPILOG.format(tools=_tools()) if asks_help else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "path", help="A profile, a run folder, or a log folder; s3://… and gs://… likewise."
    )
    parser.add_argument("--tool", help="Name of the tool; without it, a summary.")
    parser.add_argument("--host", help="One host of the run.")
    parser.add_argument("--run", help="Which run of a log folder; the newest without it.")
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="A parameter of the tool; repeatable.",
    )
    parser.add_argument(
        "--format",
        choices=[str(one) for one in Format],
        default=str(Format.TABLE),
        help="json is our result, xprof is XProf's (default: table).",
    )
    parser.add_argument("--table", help="Which table of the result, for csv and table.")
    found = parser.parse_args(given)
    return Arguments(
        path=found.path,
        tool=found.tool,
        host=found.host,
        run=found.run,
        parameters=tuple(found.param),
        output_format=Format(found.format),
        table=found.table,
    )


def _tools() -> str:
    from podscope_analyzers.registry import TOOLS

    return "\n".join(f"  {name:<30}{tool.title}" for name, tool in TOOLS.items())
