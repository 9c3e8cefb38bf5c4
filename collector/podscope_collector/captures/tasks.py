"""The task that runs a capture: claim, fan out, write down what happens."""

import uuid

import structlog
from celery import current_app

from podscope_collector.captures import services
from podscope_collector.captures.fanout import FanoutLimits, run_capture
from podscope_collector.captures.loop import run_on_capture_loop
from podscope_collector.captures.recorder import Recorder
from podscope_collector.captures.request import parse_request
from podscope_collector.errors import CollectorError
from podscope_collector.runtime import Runtime
from podscope_collector.work import context
from podscope_collector.work.dispatch import dispatch_due
from podscope_collector.work.lease import Lease, held
from podscope_collector.work.models import WorkKind
from podscope_collector.work.queues import TASKS
from podscope_collector.work.services import finish
from podscope_collector.work.task import task

log = structlog.get_logger(__name__)


@task(TASKS[WorkKind.RUN_CAPTURE][0])
def run(work_id: str) -> None:
    """Run the capture that the work is about, once: its moment does not come back."""
    runtime = context.current()
    with held(runtime, uuid.UUID(work_id)) as lease:
        if lease is not None:
            capture_id = lease.claim.subject_id
            with structlog.contextvars.bound_contextvars(capture=str(capture_id)):
                _run(runtime, lease, capture_id)
    dispatch_due(runtime, current_app)


def _run(runtime: Runtime, lease: Lease, capture_id: uuid.UUID) -> None:
    with runtime.database.writing() as session:
        capture = services.start_capture(session, capture_id, runtime.clock())
        given, folder = capture.request, capture.session
        names = [host.host for host in capture.hosts]
    error: str | None = None
    recorder = Recorder(runtime, current_app, capture_id)
    try:
        request = parse_request(given)
        with recorder:
            run_on_capture_loop(
                run_capture(
                    request,
                    request.parsed_targets(),
                    runtime.storage,
                    folder,
                    recorder.on_update,
                    host_names=names,
                    limits=FanoutLimits(byte_budget=runtime.settings.capture_memory_bytes),
                )
            )
    except CollectorError as failure:
        # Of the whole capture, not of one host: those are values.
        log.warning("capture_failed", error=str(failure))
        error = str(failure)
    with runtime.database.writing() as session:
        if not finish(session, lease.claim):
            return
        services.finish_capture(session, capture_id, runtime.clock(), error=error)
    log.info("capture_ended")
