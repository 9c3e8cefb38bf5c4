"""The task that runs a capture: claim, look up, fan out, write down what happens."""

import asyncio
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache

import structlog
from celery import current_app
from sqlalchemy.exc import SQLAlchemyError

from podscope_collector.captures import progress, queries, services
from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.limits import FanoutLimits
from podscope_collector.captures.loop import LoopRun
from podscope_collector.captures.outcome import Attempt, CaptureOutcome, HostUpdate
from podscope_collector.captures.recorder import Recorder
from podscope_collector.captures.request import CaptureRequest, parse_stored_request
from podscope_collector.captures.resolving.resolver import Resolver
from podscope_collector.captures.services import OpenHost
from podscope_collector.captures.states import HostState
from podscope_collector.captures.targets import parse_targets
from podscope_collector.errors import CollectorError
from podscope_collector.host_names import is_part_of
from podscope_collector.runtime import Runtime
from podscope_collector.settings import CollectorSettings
from podscope_collector.work import context
from podscope_collector.work.dispatch import dispatch_due
from podscope_collector.work.lease import Lease, held
from podscope_collector.work.models import WorkKind
from podscope_collector.work.queues import TASKS
from podscope_collector.work.services import finish
from podscope_collector.work.task import task

log = structlog.get_logger(__name__)

_WATCH_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one worker has to do for a capture.

    Attributes:
        folder: The capture's session.
        hosts: Those still to be captured.
    """

    request: CaptureRequest
    folder: str
    hosts: Sequence[OpenHost]


@cache
def _resolver(settings: CollectorSettings) -> Resolver:
    """One for the process, so that it remembers."""
    return Resolver(settings)


@task(TASKS[WorkKind.RUN_CAPTURE][0])
def run(work_id: str) -> None:
    """Run the capture that the work is about, or go on with one whose worker was lost."""
    runtime = context.current()
    with held(runtime, uuid.UUID(work_id)) as lease:
        if lease is not None:
            capture_id = lease.claim.subject_id
            with structlog.contextvars.bound_contextvars(capture=str(capture_id)):
                _run(runtime, lease, capture_id)
    dispatch_due(runtime, current_app)


def _run(runtime: Runtime, lease: Lease, capture_id: uuid.UUID) -> None:
    error: str | None = None
    try:
        plan = _prepare(runtime, lease, capture_id)
        if plan.hosts:
            _capture(runtime, lease, capture_id, plan)
    except CollectorError as failure:
        # Of the whole capture, not of one host: those are values.
        log.warning("capture_failed", error=str(failure))
        error = str(failure)
    except asyncio.CancelledError:
        log.info("capture_stopped", lease_lost=lease.lost.is_set())
    with runtime.database.writing() as session:
        if not finish(session, lease.claim):
            return
        services.finish_capture(session, capture_id, runtime.clock(), error=error)
    log.info("capture_ended")


def _prepare(runtime: Runtime, lease: Lease, capture_id: uuid.UUID) -> _Plan:
    """Look up what has to be; sort out what a lost worker left in flight.

    Raises:
        CollectorError: The request is not one that this version can carry out.
    """
    now = runtime.clock()
    with runtime.database.writing() as session:
        capture = services.start_capture(session, capture_id, now)
        request = parse_stored_request(capture.request)
        folder = capture.session
        begin_before = services.begin_before(capture, request)
        if capture.finished_at is not None or capture.cancelled_at is not None:
            return _Plan(request, folder, ())
        lookups = services.open_lookups(session, capture_id)
    if lookups:
        found = _resolver(runtime.settings).resolve(
            parse_targets(lookups, is_tpu_name=request.is_tpu_name)
        )
        with runtime.database.writing() as session:
            services.settle_lookups(session, capture_id, found, runtime.clock())
    with runtime.database.reading() as session:
        hosts = services.open_hosts(session, capture_id)
    if lease.claim.attempt > 1:
        hosts = _recovered(runtime, capture_id, folder, hosts)
        with runtime.database.writing() as session:
            names = {host.name for host in hosts}
            services.note_takeover(session, capture_id, names, runtime.clock())
        if now > begin_before:
            hosts = []
        log.info("capture_taken_over", attempt=lease.claim.attempt, hosts=len(hosts))
    return _Plan(request, folder, hosts)


def _recovered(
    runtime: Runtime, capture_id: uuid.UUID, folder: str, hosts: Sequence[OpenHost]
) -> list[OpenHost]:
    """The hosts without those whose profile the lost worker had stored, and not yet noted."""
    stored: dict[str, HostUpdate] = {}
    names = set(runtime.storage.list_hosts(folder))
    for host in hosts:
        if host.name not in names:
            continue
        now = runtime.clock()
        for name in (host.name, *sorted(name for name in names if is_part_of(name, host.name))):
            file = runtime.storage.stat_xspace(folder, name)
            stored[name] = HostUpdate(
                target=host.target.address,
                host=name,
                state=HostState.DONE,
                attempts=max(1, host.attempts),
                bytes=file.size,
                sha256=file.sha256,
                file=file.path,
                history=_recovered_attempt(host, file.size, now) if name == host.name else (),
                started_at=now,
                finished_at=now,
                part_of=None if name == host.name else host.name,
            )
    if stored:
        with runtime.database.writing() as session:
            progress.apply_updates(session, capture_id, stored, runtime.clock())
    return [host for host in hosts if host.name not in stored]


def _recovered_attempt(host: OpenHost, size: int, now: datetime) -> tuple[Attempt, ...]:
    """The try that stored the profile; its end was lost with its worker, and so its times."""
    number = max(1, host.attempts)
    return (Attempt(number, HostState.DONE, None, None, None, size, {}, now, now),)


def _capture(runtime: Runtime, lease: Lease, capture_id: uuid.UUID, plan: _Plan) -> CaptureOutcome:
    """Fan out to the hosts and write down what happens to them.

    Raises:
        CollectorError: The capture as a whole cannot be carried out.
        asyncio.CancelledError: Somebody asked for its end, or another worker has it now.
    """
    with runtime.database.reading() as session:
        host_bytes = services.usual_host_bytes(session, plan.request)
    recorder = Recorder(runtime, current_app, capture_id, is_ours=lambda: not lease.lost.is_set())
    with recorder:
        work = LoopRun(
            run_capture(
                plan.request,
                [host.target for host in plan.hosts],
                runtime.storage,
                plan.folder,
                recorder.on_update,
                host_names=[host.name for host in plan.hosts],
                attempts_before={host.name: host.attempts for host in plan.hosts},
                agent_access=runtime.settings.agent_access(),
                limits=FanoutLimits.of(runtime.settings, host_bytes),
            )
        )
        with _watched(runtime, lease, capture_id, work):
            return work.result()


@contextmanager
def _watched(
    runtime: Runtime, lease: Lease, capture_id: uuid.UUID, work: LoopRun[CaptureOutcome]
) -> Iterator[None]:
    """Stop the work when its capture is cancelled or its lease is lost."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_WATCH_SECONDS):
            try:
                with runtime.database.reading() as session:
                    is_cancelled = queries.is_cancelled(session, capture_id)
            except SQLAlchemyError:
                log.warning("capture_not_watched", exc_info=True)
                is_cancelled = False
            if is_cancelled or lease.lost.is_set():
                work.cancel()
                return

    thread = threading.Thread(target=watch, name="capture-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
