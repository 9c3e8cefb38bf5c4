"""Writing a running capture's progress to the database, off the event loop and in batches."""

import queue
import threading
import uuid
from types import TracebackType
from typing import Self

import structlog
from sqlalchemy.exc import SQLAlchemyError

from podscope_collector.captures.services import HostChange, apply_changes
from podscope_collector.captures.states import HostState
from podscope_collector.fanout import HostUpdate
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
