"""The tasks that analyse one host, and all hosts of a capture together."""

import threading
import time
import uuid
from functools import cache
from typing import Any

import structlog
from celery import current_app

from podscope_collector.analyses import services
from podscope_collector.analyses.agent_figures import THROUGH_AGENT, report_figures
from podscope_collector.analyses.pod_states import StoredPartial
from podscope_collector.analyses.processes import AnalysisProcesses
from podscope_collector.captures.models import Capture
from podscope_collector.captures.rejecting import reject_host
from podscope_collector.errors import AnalysisFailedError, InputNotFoundError
from podscope_collector.runtime import Runtime
from podscope_collector.storage import StorageError
from podscope_collector.work import context
from podscope_collector.work.dispatch import dispatch_due
from podscope_collector.work.lease import Lease, held
from podscope_collector.work.models import WorkKind
from podscope_collector.work.queues import TASKS
from podscope_collector.work.services import LostWork, fail, finish, renew
from podscope_collector.work.task import task

log = structlog.get_logger(__name__)

_JOBS = "podscope_collector.analyses.jobs"
_pool_lock = threading.Lock()


@cache
def _new_pool(size: int, memory_bytes: int, tasks_per_process: int) -> AnalysisProcesses:
    return AnalysisProcesses(size, memory_bytes=memory_bytes, tasks_per_process=tasks_per_process)


def analysis_processes(runtime: Runtime) -> AnalysisProcesses:
    """The pool of this process, made on first use."""
    settings = runtime.settings
    with _pool_lock:
        return _new_pool(
            settings.analysis_processes,
            settings.analysis_memory_bytes,
            settings.analysis_tasks_per_process,
        )


@task(TASKS[WorkKind.ANALYZE_HOST][0])
def analyze_host(work_id: str) -> None:
    """Analyse the host that the work is about; the last one starts the reduce."""
    runtime = context.current()
    with (
        structlog.contextvars.bound_contextvars(work_id=work_id),
        held(runtime, uuid.UUID(work_id)) as lease,
    ):
        if lease is not None:
            capture_id = _analyze_host(runtime, lease)
            if capture_id is not None:
                with runtime.database.writing() as session:
                    services.claim_reduce(session, capture_id, runtime.clock())
    dispatch_due(runtime, current_app)


def _analyze_host(runtime: Runtime, lease: Lease) -> uuid.UUID | None:
    host_id = lease.claim.subject_id
    started = time.monotonic()
    try:
        with runtime.database.writing() as session:
            host, capture = services.begin_host(session, host_id)
            name, folder, capture_id = host.host, capture.session, capture.id
            agent = host.target if host.transfer in THROUGH_AGENT else None
            began = host.window_start_ns or int(capture.created_at.timestamp() * 1e9)
        found = analysis_processes(runtime).run(
            f"{_JOBS}:analyze_stored_host",
            {
                "storage_root": runtime.settings.storage,
                "session": folder,
                "host": name,
                "capture_id": str(capture_id),
                "max_inline_bytes": runtime.settings.max_inline_result_bytes,
            },
            runtime.settings.analysis_timeout,
            lease.lost,
        )
    except (AnalysisFailedError, InputNotFoundError) as error:
        log.warning("host_analysis_failed", host=str(host_id), error=str(error))
        lost = _give_back(runtime, lease, error)
        if lost is None:
            return None
        if getattr(error, "is_corrupt", False):
            return _reject(runtime, host_id, folder, name, lost.error)
        with runtime.database.writing() as session:
            return services.fail_host(session, host_id, lost.error, runtime.clock())
    seconds = time.monotonic() - started
    with runtime.database.writing() as session:
        if not finish(session, lease.claim):
            return None
        services.store_host(session, host_id, found, runtime.clock(), seconds)
    if agent is not None:
        report_figures(agent, found["summary"], began, runtime.settings.agent_access())
    log.info("host_analyzed", capture=str(capture_id), host=name, seconds=round(seconds, 3))
    return capture_id


def _reject(
    runtime: Runtime, host_id: uuid.UUID, folder: str, host: str, problem: str
) -> uuid.UUID | None:
    storage = runtime.storage
    with runtime.database.writing() as session:
        capture_id = reject_host(
            session, host_id, problem, storage.rejected_path(folder, host), runtime.clock()
        )
    if capture_id is None:
        # Repeated since: what is stored now may be another profile.
        return None
    try:
        # Last, so that a worker that dies between leaves a file and not a row without one.
        storage.set_aside(folder, host)
    except StorageError:
        log.warning("profile_not_set_aside", host=host, exc_info=True)
    return capture_id


@task(TASKS[WorkKind.REDUCE_CAPTURE][0])
def reduce_capture(work_id: str) -> None:
    """Make the results of all hosts of a capture together."""
    runtime = context.current()
    with (
        structlog.contextvars.bound_contextvars(work_id=work_id),
        held(runtime, uuid.UUID(work_id)) as lease,
    ):
        if lease is not None:
            _reduce_capture(runtime, lease)


def _reduce_capture(runtime: Runtime, lease: Lease) -> None:
    capture_id = lease.claim.subject_id
    with runtime.database.reading() as session:
        capture = session.get(Capture, capture_id)
        folder = capture.session if capture is not None else ""
        partials = services.partials_of(session, capture_id)
        missing = services.missing_hosts(session, capture_id)
        clocks = services.clocks_of(session, capture_id)
        state = services.find_state(session, capture_id)
        known, files = (state.generation, state.files) if state is not None else (0, [])
    try:
        _check_any(partials)
        # Where all is, and how long it may take.
        where = {"storage_root": runtime.settings.storage, "session": folder}
        limits = (runtime.settings.analysis_timeout, lease.lost)
        processes = analysis_processes(runtime)
        while True:
            merged = processes.run(
                f"{_JOBS}:merge_stored_hosts",
                {**where, "partials": partials, "files": files},
                *limits,
            )
            lasting = merged.get("lasting", {})
            if lasting:
                missing = _fail_hosts(runtime, lease, lasting)
                partials = [partial for partial in partials if partial.host not in lasting]
            if merged.get("outdated"):
                _analyze_again(runtime, lease, merged["outdated"])
                return
            if not lasting:
                break
            _check_any(partials)
        # From here on whoever asks gets results of all these hosts.
        generation = _publish(runtime, lease, known, files, merged)
        found = processes.run(
            f"{_JOBS}:reduce_stored_capture",
            {
                **where,
                "capture_id": str(capture_id),
                "hosts": [partial.host for partial in partials],
                "missing": missing,
                "clocks": clocks,
                "files": merged["files"],
                "max_inline_bytes": runtime.settings.max_inline_result_bytes,
            },
            *limits,
        )
    except AnalysisFailedError as error:
        log.warning("capture_analysis_failed", capture=str(capture_id), error=str(error))
        lost = _give_back(runtime, lease, error)
        if lost is not None:
            with runtime.database.writing() as session:
                services.fail_capture(session, capture_id, lost.error, runtime.clock())
        return
    replaced: list[str] = []
    with runtime.database.writing() as session:
        if finish(session, lease.claim):
            now = runtime.clock()
            replaced = services.store_capture(session, capture_id, found, generation, now)
    runtime.storage.delete(replaced)
    for sentence in found["failed"]:
        log.error("tool_failed", capture=str(capture_id), error=sentence)
    if merged["why_anew"]:
        log.info("hosts_combined_anew", capture=str(capture_id), reason=merged["why_anew"])
    log.info(
        "capture_analyzed",
        capture=str(capture_id),
        hosts=len(partials),
        merged=merged["merged"],
    )


def _check_any(partials: list[StoredPartial]) -> None:
    if not partials:
        message = "no host could be analysed; see the hosts for the reasons"
        raise AnalysisFailedError(message, is_final=True)


def _fail_hosts(runtime: Runtime, lease: Lease, reasons: dict[str, str]) -> list[tuple[str, str]]:
    """Give up hosts that another analysis would not help; return all that are missing now.

    Raises:
        AnalysisFailedError: another worker has the work now.
    """
    capture_id, now = lease.claim.subject_id, runtime.clock()
    with runtime.database.writing() as session:
        if not renew(session, lease.claim, now, runtime.settings.work_lease):
            message = "another worker has taken over the analysis of the capture"
            raise AnalysisFailedError(message)
        services.fail_hosts(session, capture_id, reasons)
        missing = services.missing_hosts(session, capture_id)
    for host, reason in reasons.items():
        log.warning("partial_not_readable", capture=str(capture_id), host=host, reason=reason)
    return missing


def _analyze_again(runtime: Runtime, lease: Lease, hosts: list[str]) -> None:
    """Analyse hosts of an older podscope first; the last of them starts the reduce again."""
    replaced: list[str] = []
    capture_id, now = lease.claim.subject_id, runtime.clock()
    with runtime.database.writing() as session:
        if finish(session, lease.claim):
            replaced = services.analyze_again(session, capture_id, hosts, now)
    runtime.storage.delete(replaced)
    log.info("hosts_analyzed_again", capture=str(capture_id), hosts=len(hosts))


def _publish(
    runtime: Runtime, lease: Lease, known: int, before: list[str], merged: dict[str, Any]
) -> int:
    """Make the merged state the capture's; return its generation.

    Raises:
        AnalysisFailedError: another worker was faster, or has the work now.
    """
    files = merged["files"]
    if files == before:
        return known
    capture_id, now = lease.claim.subject_id, runtime.clock()
    with runtime.database.writing() as session:
        is_held = renew(session, lease.claim, now, runtime.settings.work_lease)
        generation = (
            services.publish_state(session, capture_id, known, files, now) if is_held else None
        )
    if generation is None:
        runtime.storage.delete([path for path in files if path not in before])
        message = "another worker changed the combined state of the hosts at the same time"
        raise AnalysisFailedError(message)
    # Who reads them at this moment makes do with the partials.
    runtime.storage.delete([path for path in before if path not in files])
    return generation


def _give_back(runtime: Runtime, lease: Lease, error: Exception) -> LostWork | None:
    is_final = isinstance(error, InputNotFoundError) or getattr(error, "is_final", False)
    attempts = 1 if is_final else runtime.settings.work_attempts
    with runtime.database.writing() as session:
        return fail(session, lease.claim, str(error), runtime.clock(), max_attempts=attempts)
