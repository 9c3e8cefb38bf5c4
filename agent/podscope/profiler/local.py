"""Captures from inside the process: ``start``, ``stop``, ``Profile``."""

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from podscope.profiler.errors import ProfilerAlreadyRunningError, ProfilerError
from podscope.profiler.files import save_xspace, session_name
from podscope.profiler.options import ProfilerOptions
from podscope.profiler.session import Session

_running: tuple[Session, Path] | None = None


def start(logdir: str | Path, options: ProfilerOptions | None = None) -> None:
    """Begin to profile this process.

    Args:
        logdir: Log folder; the profile goes to ``<logdir>/plugins/profile/<session>/``.
        options: What to record.

    Raises:
        ProfilerAlreadyRunningError: another capture runs in this process.
    """
    global _running
    if _running is not None:
        raise ProfilerAlreadyRunningError
    chosen = options or ProfilerOptions()
    if chosen.delay_ms:
        time.sleep(chosen.delay_ms / 1000)
    _running = (Session(chosen), Path(logdir))


def stop(save: bool = True) -> Path | None:
    """End the capture and write it down.

    Args:
        save: False throws the profile away.

    Returns:
        The file written; None without `save`.

    Raises:
        ProfilerError: no profiler runs, or the log folder cannot be written.
    """
    global _running
    if _running is None:
        msg = "no profiler is running; call start first"
        raise ProfilerError(msg)
    (session, logdir), _running = _running, None
    xspace = session.stop()
    return save_xspace(logdir, session_name(), "", xspace) if save else None


def _forget_parent() -> None:
    global _running
    _running = None


if hasattr(os, "register_at_fork"):
    # The capture is the parent's: only there does its sampler run.
    os.register_at_fork(after_in_child=_forget_parent)


class Profile:
    """A context manager around `start` and `stop`."""

    def __init__(self, logdir: str | Path, options: ProfilerOptions | None = None) -> None:
        """Profile into `logdir`."""
        self._logdir = logdir
        self._options = options

    def __enter__(self) -> Self:
        start(self._logdir, self._options)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stop()
