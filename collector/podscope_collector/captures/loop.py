"""One event loop, in one thread, for all captures of a process that works in threads.

gRPC's asyncio client shares one poller per process, which serves a single loop well and several
badly; so tasks in different threads run their captures on this one.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_owner = -1


class LoopRun(Generic[T]):
    """A coroutine on the process's capture loop, seen from another thread."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._ended: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._task: asyncio.Task[T] | None = None
        self._loop = _running_loop()
        self._loop.call_soon_threadsafe(self._begin, work)

    def cancel(self) -> None:
        """Ask the work to stop; ``result`` still waits until it has cleaned up."""
        self._loop.call_soon_threadsafe(self._cancel)

    def result(self) -> T:
        """Wait for the end.

        An exception in the waiting thread (an interrupt, a time limit) cancels the work.

        Raises:
            asyncio.CancelledError: The work was cancelled, and has ended.
        """
        try:
            return self._ended.result()
        except concurrent.futures.CancelledError as error:
            raise asyncio.CancelledError from error
        except BaseException:
            self.cancel()
            raise

    def _begin(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._over)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _over(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._ended.cancel()
            return
        error = task.exception()
        if error is not None:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(task.result())


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop, _owner
    with _lock:
        # A forked child inherits the variable, but not the thread.
        if _loop is None or _owner != os.getpid():
            _loop = asyncio.new_event_loop()
            _owner = os.getpid()
            threading.Thread(target=_loop.run_forever, name="captures", daemon=True).start()
        return _loop
