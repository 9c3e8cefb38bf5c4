"""The runtime that the tasks of this process work with."""

import os
import socket
import uuid

from podscope_collector.errors import CollectorError
from podscope_collector.runtime import Runtime

_installed: list[Runtime] = []


def install(runtime: Runtime) -> None:
    """Make ``runtime`` that of every task in this process."""
    _installed[:] = [runtime]


def current() -> Runtime:
    """The installed runtime.

    Raises:
        CollectorError: a task ran in a process that is not a podscope worker.
    """
    if not _installed:
        message = "tasks run only in 'podscope worker'"
        raise CollectorError(message)
    return _installed[0]


def new_owner() -> str:
    """A name for the holder of one lease: where it runs, and unique."""
    return f"{socket.gethostname()[:24]}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
