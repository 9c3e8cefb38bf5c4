"""A pool of spawned processes for analyses, with a memory limit and a real kill.

A worker's threads hand their heavy work to these processes: a crash, a leak or an endless loop
on hostile input costs one attempt of one host and nothing else. Processes are spawned, never
forked (threads and gRPC channels do not survive a fork), kept warm, and replaced after a
number of tasks.
"""

import gc
import importlib
import multiprocessing
import os
import queue
import resource
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from podscope_collector.errors import AnalysisFailedError
from podscope_collector.memory import give_back_free_memory

_SPAWN = multiprocessing.get_context("spawn")
_GIB = 1 << 30
_NICENESS = 5
# New objects between two looks for garbage, instead of 700: what modules make as they load stays.
_OBJECTS_PER_LOOK = 50_000


class AnalysisProcesses:
    """At most ``size`` processes, started when they are first needed.

    Args:
        memory_bytes: Private memory that one process may have.
        tasks_per_process: Calls after which a process is replaced.
    """

    def __init__(self, size: int, *, memory_bytes: int, tasks_per_process: int) -> None:
        self._memory_bytes = memory_bytes
        self._tasks_per_process = tasks_per_process
        # None is a place whose process has to be started.
        self._idle: queue.LifoQueue[_Child | None] = queue.LifoQueue()
        self._lock = threading.Lock()
        self._all: set[_Child] = set()
        self._is_closed = False
        for _ in range(size):
            self._idle.put(None)

    def run(
        self, function: str, arguments: dict[str, Any], timeout: timedelta, stop: threading.Event
    ) -> Any:
        """Call ``module:function`` with keyword arguments in a process, and wait for it.

        When ``stop`` is set, the call is abandoned and its process killed.

        Raises:
            AnalysisFailedError: it raised, timed out, ran out of memory or was killed.
        """
        child = self._idle.get()
        try:
            if child is None or not child.process.is_alive():
                self._forget(child)
                child = self._start()
            result = child.call(function, arguments, timeout, stop, self._memory_bytes)
        except BaseException:
            if child is not None and not child.is_reusable:
                self._forget(child)
                child = None
            self._idle.put(child)
            raise
        if child.calls >= self._tasks_per_process:
            self._forget(child)
            child = None
        self._idle.put(child)
        return result

    def _start(self) -> "_Child":
        with self._lock:
            if self._is_closed:
                message = "the worker is stopping"
                raise AnalysisFailedError(message)
            child = _Child(self._memory_bytes)
            self._all.add(child)
            return child

    def _forget(self, child: "_Child | None") -> None:
        if child is not None:
            with self._lock:
                self._all.discard(child)
            child.kill()

    def close(self) -> None:
        """Kill every process; calls in progress raise."""
        with self._lock:
            self._is_closed = True
            children = list(self._all)
            self._all.clear()
        for child in children:
            child.kill()


class _Child:
    """One process and the pipe to it."""

    def __init__(self, memory_bytes: int) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self.calls = 0
        self.is_reusable = True
        self.process: SpawnProcess = _SPAWN.Process(
            target=_serve, args=(theirs, memory_bytes), name="podscope-analysis", daemon=True
        )
        self.process.start()
        theirs.close()

    def call(
        self,
        function: str,
        arguments: dict[str, Any],
        timeout: timedelta,
        stop: threading.Event,
        memory_bytes: int,
    ) -> Any:
        self.calls += 1
        self.is_reusable = False
        try:
            self._pipe.send((function, arguments))
            remaining = timeout.total_seconds()
            while not self._pipe.poll(min(0.5, remaining)):
                remaining -= 0.5
                if stop.is_set():
                    message = "the analysis was abandoned: its work was taken away"
                    raise AnalysisFailedError(message)
                if remaining <= 0:
                    message = (
                        f"the analysis took longer than {timeout.total_seconds():g} s; raise "
                        "PODSCOPE_COLLECTOR_ANALYSIS_TIMEOUT or capture for a shorter time"
                    )
                    raise AnalysisFailedError(message)
            kind, value = self._pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join(5)
            raise AnalysisFailedError(_death(self.process.exitcode)) from error
        if kind == "memory":
            message = (
                f"the analysis needs more than {memory_bytes / _GIB:.1f} GiB of memory; raise "
                "PODSCOPE_COLLECTOR_ANALYSIS_MEMORY_BYTES or capture for a shorter time"
            )
            raise AnalysisFailedError(message)
        self.is_reusable = True
        if kind == "result":
            return value
        is_corrupt = kind == "corrupt"
        raise AnalysisFailedError(
            value, is_final=is_corrupt or kind == "input", is_corrupt=is_corrupt
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self._pipe.close()


def _death(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        advice = "; the machine may be out of memory" if name == "SIGKILL" else ""
        return f"the analysis process was ended by {name}{advice}"
    return f"the analysis process ended by itself with exit code {exit_code}"


def _serve(pipe: Connection, memory_bytes: int) -> None:
    """Answer calls until the other end of the pipe is closed."""
    # Ctrl-C reaches the whole process group; the worker decides when we end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with_parent()
    if sys.platform == "linux":
        # Counts private memory; the address space (RLIMIT_AS) would count mapped files too.
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # On one machine with the fan-out: the other hosts of a capture are still being received.
    os.nice(_NICENESS)
    gc.set_threshold(_OBJECTS_PER_LOOK)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        answer = _answer(function, arguments)
        try:
            pipe.send(answer)
        except OSError:
            return
        # It may wait for long now, and others need the memory.
        del answer, arguments
        # Tools leave programs behind that refer to themselves.
        gc.collect()
        give_back_free_memory()


def _answer(function: str, arguments: dict[str, Any]) -> tuple[str, Any]:
    from podscope_analyzers.errors import XSpaceError
    from podscope_protos.errors import ExitCode, PodscopeError

    try:
        module, _, name = function.partition(":")
        target: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return "result", target(**arguments)
    except MemoryError:
        return "memory", ""
    except XSpaceError as error:
        return "corrupt", str(error)
    except PodscopeError as error:
        kind = "input" if error.exit_code is ExitCode.INVALID_INPUT else "error"
        return kind, str(error)
    except Exception as error:  # noqa: BLE001 - the edge of the process: it becomes an answer
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(where.filename)}:{where.lineno}"  # noqa: PTH119 - a name only
        return "error", f"{type(error).__name__}: {error} ({place})"


def _end_with_parent() -> None:
    """End this process when the worker dies, even in the middle of a call."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
