"""Writing a running capture's progress to the database, off the event loop and in batches."""

import queue
import threading
import time
import uuid
from types import TracebackType
from typing import Self

import structlog
from sqlalchemy.exc import SQLAlchemyError

from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.services import apply_updates
from podscope_collector.captures.states import HostState
from podscope_collector.runtime import Runtime
from podscope_collector.work.dispatch import Sender, dispatch_due

log = structlog.get_logger(__name__)

_BATCH_SECONDS = 0.05
_RETRY_SECONDS = 0.5
_MAX_TRIES = 40


class Recorder:
    """A thread that stores updates; a thousand hosts cost a few transactions a second."""

    def __init__(self, runtime: Runtime, sender: Sender, capture_id: uuid.UUID) -> None:
        self._runtime = runtime
        self._sender = sender
        self._capture_id = capture_id
        self._updates: queue.SimpleQueue[HostUpdate | None] = queue.SimpleQueue()
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
            if latest:
                self._store(latest)

    def _collect(self, latest: dict[str, HostUpdate]) -> bool:
        """Take what has come, the first with patience; True when it was the last."""
        update = self._updates.get()
        time.sleep(_BATCH_SECONDS)
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
