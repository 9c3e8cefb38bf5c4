"""Writing a running capture's progress to the database, off the event loop and in batches."""

import queue
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog
from sqlalchemy.exc import SQLAlchemyError

from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.progress import apply_updates
from podscope_collector.captures.states import HostState
from podscope_collector.runtime import Runtime
from podscope_collector.work.dispatch import Sender, dispatch_due

log = structlog.get_logger(__name__)

_BATCH_SECONDS = 0.1
_MAX_BATCH_SECONDS = 1.0
_RETRY_SECONDS = 0.5
_MAX_TRIES = 40


class Recorder:
    """A thread that stores updates; a thousand hosts cost a few transactions a second.

    Args:
        is_ours: Whether the capture is still in this worker's hands; updates of one that was
            taken away are dropped, since somebody else writes its rows now.
    """

    def __init__(
        self,
        runtime: Runtime,
        sender: Sender,
        capture_id: uuid.UUID,
        is_ours: Callable[[], bool] = lambda: True,
    ) -> None:
        self._runtime = runtime
        self._sender = sender
        self._capture_id = capture_id
        self._is_ours = is_ours
        self._updates: queue.SimpleQueue[HostUpdate | None] = queue.SimpleQueue()
        self._pause_s = _BATCH_SECONDS
        self._thread = threading.Thread(target=self._write, name="recorder", daemon=True)

    def on_update(self, update: HostUpdate) -> None:
        """Take a host's new state; never blocks."""
        self._updates.put(update)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._updates.put(None)
        self._thread.join()

    def _write(self) -> None:
        is_over = False
        while not is_over:
            latest: dict[str, HostUpdate] = {}
            is_over = self._collect(latest)
            if latest and self._is_ours():
                began = time.monotonic()
                self._store(latest)
                # Where writing is slow, more of the states that hosts only pass are left out.
                spent = 2 * (time.monotonic() - began)
                self._pause_s = min(_MAX_BATCH_SECONDS, max(_BATCH_SECONDS, spent))

    def _collect(self, latest: dict[str, HostUpdate]) -> bool:
        """Take what has come, the first with patience; True when it was the last."""
        update = self._updates.get()
        if update is not None:
            time.sleep(self._pause_s)
        while True:
            if update is None:
                return True
            latest[update.host] = update
            try:
                update = self._updates.get_nowait()
            except queue.Empty:
                return False

    def _store(self, latest: dict[str, HostUpdate]) -> None:
        for attempt in range(1, _MAX_TRIES + 1):
            try:
                with self._runtime.database.writing() as session:
                    apply_updates(session, self._capture_id, latest, self._runtime.clock())
                break
            except SQLAlchemyError:
                # Profiles are in the storage already; losing their rows would lose them.
                log.warning("updates_not_stored", attempt=attempt, exc_info=True)
                if attempt == _MAX_TRIES:
                    raise
                time.sleep(_RETRY_SECONDS)
        if any(update.state is HostState.DONE for update in latest.values()):
            dispatch_due(self._runtime, self._sender)
