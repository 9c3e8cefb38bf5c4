"""One event loop, in one thread, for all captures of a process that works in threads.

gRPC's asyncio client shares one poller per process, which serves a single loop well and several
badly; so tasks in different threads run their captures on this one.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_owner = -1


def run_on_capture_loop(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that runs on the process's capture loop; blocks this thread.

    An exception in the waiting thread (an interrupt, a time limit) cancels the work.
    """
    future = asyncio.run_coroutine_threadsafe(work, _running_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop, _owner
    with _lock:
        # A forked child inherits the variable, but not the thread.
        if _loop is None or _owner != os.getpid():
            _loop = asyncio.new_event_loop()
            _owner = os.getpid()
            threading.Thread(target=_loop.run_forever, name="captures", daemon=True).start()
        return _loop
