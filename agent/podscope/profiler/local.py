"""Captures from inside the process: ``start``, ``stop``, ``Profile``."""

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from podscope.profiler.errors import ProfilerAlreadyRunningError, ProfilerError
from podscope.profiler.failures import record_failure
from podscope.profiler.files import save_xspace, session_name
from podscope.profiler.options import ProfilerOptions
from podscope.profiler.session import Session

_running: "_Capture | None" = None


def start(logdir: str | Path, options: ProfilerOptions | None = None) -> None:
    """Begin to profile this process, at once or, with ``options.delay_ms``, that much later.

    Args:
        logdir: Log folder; the profile goes to ``<logdir>/plugins/profile/<session>/``.
        options: What to record.

    Raises:
        ProfilerAlreadyRunningError: another capture runs in this process, or waits to begin.
    """
    global _running
    if _running is not None:
        raise ProfilerAlreadyRunningError
    _running = _Capture(Path(logdir), options or ProfilerOptions())


def stop(save: bool = True) -> Path | None:
    """End the capture and write it down.

    Args:
        save: False throws the profile away.

    Returns:
        The file written; None without `save`.

    Raises:
        ProfilerError: no profiler runs, its delay is not over, another capture ran when it was,
            or the log folder cannot be written.
    """
    global _running
    if _running is None:
        msg = "no profiler is running; call start first"
        raise ProfilerError(msg)
    capture, _running = _running, None
    return capture.stop(save=save)


class _Capture:
    """A capture of the program's own, which runs or waits to begin."""

    def __init__(self, logdir: Path, options: ProfilerOptions) -> None:
        self._logdir = logdir
        self._options = options
        self._session: Session | None = None
        self._problem: Exception | None = None
        self._is_abandoned = threading.Event()
        self._waiting: threading.Thread | None = None
        if options.delay_ms:
            self._waiting = threading.Thread(
                target=self._begin_later, name="podscope-delay", daemon=True
            )
            self._waiting.start()
        else:
            self._session = Session(options)

    def stop(self, *, save: bool) -> Path | None:
        if self._waiting is not None:
            self._is_abandoned.set()
            self._waiting.join()
        if self._problem is not None:
            raise self._problem
        if self._session is not None:
            xspace = self._session.stop()
            return save_xspace(self._logdir, session_name(), "", xspace) if save else None
        if save:
            msg = (
                f"nothing was recorded: stopped before the delay of {self._options.delay_ms} ms"
                " was over"
            )
            raise ProfilerError(msg)
        return None

    def _begin_later(self) -> None:
        if self._is_abandoned.wait((self._options.delay_ms or 0) / 1000):
            return
        try:
            # As a remote one: what a framework keeps by thread is not this thread's affair.
            self._session = Session(self._options, is_remote=True)
        except Exception as error:  # noqa: BLE001 - told by stop, in the program's own thread
            self._problem = error


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
        try:
            record_failure(error)
        finally:
            stop()
