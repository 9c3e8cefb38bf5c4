"""What keeps the service going: the tick and the heartbeats."""

import structlog
from celery import current_app

from podscope_collector.analyses import services as analyses
from podscope_collector.captures import services as captures
from podscope_collector.runtime import Runtime
from podscope_collector.schedules import services as schedules
from podscope_collector.work import context, services
from podscope_collector.work.dispatch import dispatch_due
from podscope_collector.work.models import WorkKind
from podscope_collector.work.queues import HEARTBEAT_TASK, TICK_TASK
from podscope_collector.work.services import LostWork
from podscope_collector.work.task import task

log = structlog.get_logger(__name__)


def sweep(runtime: Runtime) -> list[LostWork]:
    """Take work back from dead workers, and settle what will not be tried again."""
    now = runtime.clock()
    with runtime.database.writing() as session:
        lost = services.take_back_expired(session, now, max_attempts=runtime.settings.work_attempts)
        for work in lost:
            log.warning("work_lost", kind=work.kind.value, subject=str(work.subject_id))
            match work.kind:
                case WorkKind.RUN_CAPTURE:
                    captures.interrupt_capture(session, work.subject_id, now)
                case WorkKind.ANALYZE_HOST:
                    analyses.fail_host(session, work.subject_id, work.error, now)
                case WorkKind.REDUCE_CAPTURE:
                    analyses.fail_capture(session, work.subject_id, work.error, now)
    with runtime.database.writing() as session:
        analyses.claim_missed_reduces(session, now)
    return lost


def fire_schedules(runtime: Runtime) -> int:
    """Make the captures of schedules that are due; return how many."""
    now = runtime.clock()
    with runtime.database.reading() as session:
        if not schedules.has_due(session, now):
            return 0
    with runtime.database.writing() as session:
        fired = schedules.fire_due(session, now, runtime.storage.new_session)
    for capture in fired:
        log.info("schedule_fired", schedule=str(capture.schedule_id), capture=str(capture.id))
    return len(fired)


@task(TICK_TASK)
def tick() -> None:
    """Settle lost work, fire schedules, send what is due."""
    runtime = context.current()
    sweep(runtime)
    fire_schedules(runtime)
    dispatch_due(runtime, current_app)


@task(HEARTBEAT_TASK)
def heartbeat(queue: str) -> None:
    """Prove that messages of ``queue`` are consumed."""
    runtime = context.current()
    with runtime.database.writing() as session:
        services.record_heartbeat(session, queue, runtime.clock())
