"""Holding a piece of work for as long as it takes."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from sqlalchemy.exc import SQLAlchemyError

from podscope_collector.runtime import Runtime
from podscope_collector.work import context, services
from podscope_collector.work.services import Claim

log = structlog.get_logger(__name__)


class Lease:
    """A claim that a thread keeps renewing.

    Attributes:
        claim: What is held.
        lost: Set when the work was taken away; what is done for it must be dropped.
    """

    def __init__(self, runtime: Runtime, claim: Claim) -> None:
        self.claim = claim
        self.lost = threading.Event()
        self._runtime = runtime
        self._over = threading.Event()
        self._until = time.monotonic() + runtime.settings.work_lease.total_seconds()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing; the claim stays until it is finished, failed, or runs out."""
        self._over.set()
        self._thread.join()

    def _keep(self) -> None:
        lease = self._runtime.settings.work_lease
        while not self._over.wait(lease.total_seconds() / 3):
            began = time.monotonic()
            try:
                with self._runtime.database.writing() as session:
                    is_held = services.renew(session, self.claim, self._runtime.clock(), lease)
            except SQLAlchemyError:
                # The database is away for a moment: the lease still has two thirds to run.
                log.warning("lease_not_renewed", work_id=str(self.claim.work_id), exc_info=True)
                if time.monotonic() < self._until:
                    continue
                is_held = False
            if not is_held and not self._over.is_set():
                log.warning("lease_lost", work_id=str(self.claim.work_id))
                self.lost.set()
                return
            self._until = began + lease.total_seconds()


@contextmanager
def held(runtime: Runtime, work_id: uuid.UUID) -> Iterator[Lease | None]:
    """Claim the work and keep its lease for the block; None when it is not to be had."""
    with runtime.database.writing() as session:
        claim = services.claim(
            session, work_id, context.new_owner(), runtime.clock(), runtime.settings.work_lease
        )
    if claim is None:
        yield None
        return
    lease = Lease(runtime, claim)
    lease.start()
    try:
        yield lease
    finally:
        lease.stop()
