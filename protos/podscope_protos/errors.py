"""The root of every podscope error, and the exit code that each kind of failure gives."""

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of the ``podscope`` command; scripts rely on them, so none is ever reused."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    INVALID_INPUT = 4
    PARTIAL = 5
    UNREACHABLE_SERVICE = 6
    DENIED = 7
    INTERRUPTED = 130


class PodscopeError(Exception):
    """A failure that a user can act on: its message names the next step.

    Attributes:
        code: A stable, machine-readable name; it crosses the wire and never changes.
        exit_code: What the command line ends with when this error reaches it.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
