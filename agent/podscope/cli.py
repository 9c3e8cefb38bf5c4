"""The ``podscope`` command: one table of sub-commands, each loaded only when it is called.

The base distribution carries no server stack, so this module imports nothing but the standard
library; a command whose part is not installed says which extra brings it.
"""

import errno
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from podscope_protos.errors import ExitCode, PodscopeError


@dataclass(frozen=True)
class Command:
    """Where a sub-command lives.

    Attributes:
        target: ``module:attribute`` of a callable that takes ``(args, prog_name=...)``.
        extra: The extra of the distribution that brings it.
        help: One line for the overview.
        is_lasting: Whether it runs until it is stopped.
    """

    target: str
    extra: str
    help: str
    is_lasting: bool = False


COMMANDS: dict[str, Command] = {
    "up": Command(
        "podscope_collector.cli.up:app",
        "all",
        "run everything on this machine, supervised",
        is_lasting=True,
    ),
    "capture": Command(
        "podscope_collector.cli.capture:app", "collector", "profile many hosts at once"
    ),
    "doctor": Command(
        "podscope_collector.cli.doctor:app", "collector", "would a capture of these targets work?"
    ),
    "captures": Command(
        "podscope_collector.cli.captures:app", "collector", "list and show captures"
    ),
    "import": Command(
        "podscope_collector.cli.import_runs:app",
        "collector",
        "bring TensorBoard folders into the service",
    ),
    "schedules": Command("podscope_collector.cli.schedules:app", "collector", "periodic captures"),
    "analyze": Command(
        "podscope_collector.cli.analyze:app",
        "collector",
        "run a tool on profiles, no service needed",
    ),
    "diff": Command(
        "podscope_collector.cli.diff:app",
        "collector",
        "what changed between two captures, hosts or ranges of steps",
    ),
    "simulate": Command(
        "podscope_agent.cli.simulate:app",
        "agent",
        "serve or write realistic simulated profiles",
        is_lasting=True,
    ),
    "agent": Command(
        "podscope_agent.cli.agent:app", "agent", "the daemon of one host", is_lasting=True
    ),
    "collector": Command(
        "podscope_collector.cli.collector:app",
        "collector",
        "the API and web server",
        is_lasting=True,
    ),
    "worker": Command(
        "podscope_collector.cli.worker:app", "collector", "a Celery worker", is_lasting=True
    ),
    "beat": Command(
        "podscope_collector.cli.beat:app", "collector", "the scheduler", is_lasting=True
    ),
    "db": Command("podscope_collector.cli.db:app", "collector", "create and upgrade the database"),
}

_EPILOG = """\
examples:
  podscope up                                        everything on this machine
  podscope capture 'grpc://w0:9999,w1:9999' --logdir runs
  podscope analyze runs --tool overview_page
  podscope diff runs/yesterday runs/today --tool op_profile
  podscope simulate --hosts 16 --device tpu-v5e      a pod to try things on

'podscope COMMAND --help' tells more."""


def _overview() -> str:
    width = max(len(name) for name in [*COMMANDS, "version"])
    rows = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    rows.append(f"  {'version':<{width}}  print the version")
    lines = [
        "usage: podscope COMMAND ...",
        "",
        "Profile machine-learning jobs on all their hosts.",
        "",
        "commands:",
        *rows,
        "",
        _EPILOG,
    ]
    return "\n".join(lines)


def _fail(message: str, code: ExitCode) -> NoReturn:
    sys.stderr.write(f"podscope: {message}\n")
    sys.exit(int(code))


def _fail_for_missing_package(name: str, error: ModuleNotFoundError) -> NoReturn:
    if error.name is None or error.name.startswith("podscope"):
        raise error
    _fail(
        f"'{name}' needs the package '{error.name}'; "
        f"install it with: pip install 'podscope[{COMMANDS[name].extra}]'",
        ExitCode.USAGE,
    )


# New objects between two looks for garbage, instead of 700. What modules make as they load stays,
# and to go through it again and again takes a seventh of a short command. A lasting one keeps
# Python's number: what refers to itself would stay in its memory far longer.
_OBJECTS_PER_LOOK = 50_000


def _run(name: str, args: Sequence[str]) -> int:
    command = COMMANDS[name]
    if not command.is_lasting:
        gc.set_threshold(_OBJECTS_PER_LOOK)
    module_name, _, attribute = command.target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        _fail_for_missing_package(name, error)
    app = getattr(module, attribute)
    try:
        # Not standalone: it would swallow return codes and print errors in its own way.
        result = app(args=list(args), prog_name=f"podscope {name}", standalone_mode=False)
    except ModuleNotFoundError as error:
        # Commands import what is heavy when they run, not when their help is shown.
        _fail_for_missing_package(name, error)
        # Here and not at the end of the process, where a failure can no longer be told.
        sys.stdout.flush()
    except SystemExit as ending:
        # The parser's library ends the process on its own when our output's reader is gone.
        if isinstance(ending.__context__, BrokenPipeError):
            raise ending.__context__ from None
        raise
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        # The parser's own errors, known by this method: its package is not always installed.
        describe = getattr(error, "format_message", None)
        if describe is None:
            raise
        message = " ".join(describe().split()).rstrip(".")
        _fail(f"{message}; 'podscope {name} --help' tells more", ExitCode.USAGE)
    return int(result or 0)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one sub-command and end the process with its exit code.

    This is the only place where errors are printed and exit codes are chosen.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in {"-h", "--help", "help"}:
        sys.stdout.write(_overview() + "\n")
        sys.exit(int(ExitCode.DONE if args else ExitCode.USAGE))
    name, *rest = args
    if name in {"version", "--version", "-V"}:
        from podscope._version import __version__

        sys.stdout.write(f"podscope {__version__}\n")
        sys.exit(int(ExitCode.DONE))
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else "; 'podscope --help' lists them"
        _fail(f"no command '{name}'{hint}", ExitCode.USAGE)
    try:
        sys.exit(_run(name, rest))
    except PodscopeError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        sys.exit(int(ExitCode.INTERRUPTED))
    except BrokenPipeError:
        # The reader of our output left (`podscope ... | head`): that is its right.
        _discard_output()
        sys.exit(int(ExitCode.DONE))
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        _discard_output()
        where = f" for {error.filename}" if error.filename else " where the output goes"
        _fail(f"{error.strerror}{where}; free some space and try again", ExitCode.FAILED)


def _discard_output() -> None:
    """Let what is still buffered go nowhere, so that the end of the process cannot fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    main()
