"""The arguments of ``podscope diff``."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from podscope_collector.cli.analyze_arguments import ArgumentParser
from podscope_collector.errors import RequestError
from podscope_collector.step_ranges import parse_steps

_EPILOG: Final = """\
examples:
  podscope diff runs/before runs/after                          is the step slower, and where
  podscope diff runs/before runs/after --tool op_profile        which operations changed
  podscope diff runs --tool pod_viewer --host w0 --other-host w3
  podscope diff runs --tool pod_viewer --steps 3-7 --other-steps 12-16
  podscope diff 0193f0a2-... 0193f0b7-... --url http://podscope:8080 --tool hlo_stats --csv

tools:
{tools}

exit codes: 0 done, 1 they cannot be compared, 2 wrong usage, 3 nothing there, 4 corrupt or
foreign, 5 some hosts could not be read, 6 no service
"""


@dataclass(frozen=True)
class DiffSide:
    """One of the two.

    Attributes:
        capture: A path, or with a service an id.
        steps: First and last; None for all.
    """

    capture: str
    run: str | None
    host: str | None
    steps: tuple[int, int] | None


@dataclass(frozen=True)
class DiffArguments:
    """What to compare and how to print it."""

    base: DiffSide
    other: DiffSide
    tool: str
    parameters: tuple[str, ...]
    as_json: bool
    as_csv: bool
    table: str | None
    url: str | None
    token_file: Path | None


def parse_arguments(given: Sequence[str], prog_name: str) -> DiffArguments:
    """The arguments of one call; ``--help`` prints and ends the process.

    Raises:
        UsageError: they are not understood.
        RequestError: they say nothing that could be compared.
    """
    parser = _parser(prog_name, asks_help=not {"-h", "--help"}.isdisjoint(given))
    found = parser.parse_args(given)
    base = DiffSide(found.base, found.run, found.host, parse_steps(found.steps))
    other = DiffSide(
        found.base if found.other is None else found.other,
        found.run if found.other_run is None else found.other_run,
        found.host if found.other_host is None else found.other_host,
        parse_steps(found.steps if found.other_steps is None else found.other_steps),
    )
    if base == other:
        message = (
            "both sides are the same; give a second capture, --other-run, --other-host or "
            "--other-steps"
        )
        raise RequestError(message)
    return DiffArguments(
        base=base,
        other=other,
        tool=found.tool,
        parameters=tuple(found.param),
        as_json=found.json,
        as_csv=found.csv,
        table=found.table,
        url=found.url,
        token_file=found.token_file,
    )


def _parser(prog_name: str, *, asks_help: bool) -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog=prog_name,
        description="What changed from a base to another capture, host, or range of steps.",
        epilog=_EPILOG.format(tools=_tools()) if asks_help else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "base", help="A profile, a run folder, a log folder, s3://… or gs://…; with --url an id."
    )
    parser.add_argument("other", nargs="?", help="The same; without it, the base once more.")
    parser.add_argument("--tool", default="overview_page", help="default: overview_page")
    parser.add_argument("--host", help="One host of the base, and of the other.")
    parser.add_argument("--other-host", help="The other's, where it is another one.")
    parser.add_argument("--run", help="Which run of a log folder; the newest without it.")
    parser.add_argument("--other-run", help="The other's, where it is another one.")
    parser.add_argument("--steps", metavar="FIRST-LAST", help="Steps of the base, and the other.")
    parser.add_argument("--other-steps", metavar="FIRST-LAST", help="The other's.")
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="A parameter of the tool; repeatable.",
    )
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--json", action="store_true", help="One JSON document.")
    shapes.add_argument("--csv", action="store_true", help="CSV; of several tables a zip.")
    parser.add_argument("--table", help="Which table alone.")
    parser.add_argument("--url", help="Compare two captures of this service, by their ids.")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="With the service's token.")
    return parser


def _tools() -> str:
    from podscope_analyzers.diff.keys import COMPARED
    from podscope_analyzers.registry import TOOLS

    return "\n".join(f"  {name:<30}{TOOLS[name].title}" for name in COMPARED)
