"""Creating captures, following their hosts, and deciding how they ended."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from podscope_collector.captures.models import Capture, CaptureHost, Trigger
from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.quorum import decide
from podscope_collector.captures.request import CaptureRequest
from podscope_collector.captures.states import AnalysisState, CaptureState, HostState, ReasonCode
from podscope_collector.errors import InputNotFoundError
from podscope_collector.host_names import distinct_host_names
from podscope_collector.work.models import WorkKind
from podscope_collector.work.services import changed_rows, enqueue

DEFAULT_RUN = "default"
INTERRUPTED = "the collector's worker was lost during the capture; capture again"


def create_capture(
    session: Session,
    request: CaptureRequest,
    trigger: Trigger,
    now: datetime,
    *,
    name: str,
    schedule_id: uuid.UUID | None = None,
) -> Capture:
    """Store a capture with its hosts and the work to run it, all in one transaction.

    ``name`` is its session, as ``Storage.new_session`` gave it.
    """
    targets = request.parsed_targets()
    hosts = distinct_host_names(target.address for target in targets)
    capture = Capture(
        session=name,
        run=request.labels.get("run") or DEFAULT_RUN,
        trigger=trigger,
        created_at=now,
        duration_ms=request.duration_ms,
        attempts=request.attempts,
        quorum=request.quorum,
        labels=dict(request.labels),
        request=request.model_dump(mode="json"),
        hosts_total=len(targets),
        schedule_id=schedule_id,
    )
    capture.hosts = [
        CaptureHost(position=position, target=target.address, host=host)
        for position, (target, host) in enumerate(zip(targets, hosts, strict=True))
    ]
    session.add(capture)
    session.flush()
    enqueue(session, WorkKind.RUN_CAPTURE, [capture.id], now)
    return capture


def find_capture(session: Session, capture_id: uuid.UUID) -> Capture:
    """The capture with this id.

    Raises:
        InputNotFoundError: there is none.
    """
    capture = session.get(Capture, capture_id)
    if capture is None:
        message = f"no capture {capture_id}; 'podscope captures list' shows those there are"
        raise InputNotFoundError(message)
    return capture


def list_captures(
    session: Session,
    *,
    limit: int,
    before: uuid.UUID | None = None,
    run: str | None = None,
    state: CaptureState | None = None,
) -> tuple[Sequence[Capture], uuid.UUID | None]:
    """The newest captures, and the id to continue before (None at the end)."""
    query = select(Capture).order_by(Capture.id.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(Capture.id < before)
    if run is not None:
        query = query.where(Capture.run == run)
    if state is not None:
        query = query.where(Capture.state == state)
    found = session.scalars(query).all()
    page = found[:limit]
    return page, page[-1].id if len(found) > limit else None


def find_host(session: Session, capture_id: uuid.UUID, host: str) -> CaptureHost:
    """The host of a capture by the name its profile is stored under.

    Raises:
        InputNotFoundError: the capture has no such host.
    """
    found = session.scalar(
        select(CaptureHost).where(CaptureHost.capture_id == capture_id, CaptureHost.host == host)
    )
    if found is None:
        find_capture(session, capture_id)
        message = f"capture {capture_id} has no host '{host[:80]}'"
        raise InputNotFoundError(message)
    return found


def analyzed_hosts(session: Session, capture_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, int]:
    """How many hosts of each capture have been analysed."""
    rows = session.execute(
        select(CaptureHost.capture_id, func.count())
        .where(
            CaptureHost.capture_id.in_(list(capture_ids)),
            CaptureHost.analysis_state == AnalysisState.DONE,
        )
        .group_by(CaptureHost.capture_id)
    )
    return {row[0]: row[1] for row in rows}


def start_capture(session: Session, capture_id: uuid.UUID, now: datetime) -> Capture:
    """Mark the capture as begun."""
    capture = find_capture(session, capture_id)
    if capture.state is CaptureState.PENDING:
        capture.state = CaptureState.CAPTURING
        capture.started_at = now
        capture.revision += 1
    return capture


def apply_updates(
    session: Session, capture_id: uuid.UUID, updates: Mapping[str, HostUpdate], now: datetime
) -> None:
    """Store what happened to hosts; a host whose profile is stored becomes work to analyse.

    A host that is in a final state stays as it is, so that a late report changes nothing.
    ``updates`` has the latest update of each host, by its name.
    """
    revision = next_revision(session, capture_id)
    hosts = session.scalars(
        select(CaptureHost).where(
            CaptureHost.capture_id == capture_id, CaptureHost.host.in_(updates)
        )
    )
    stored = []
    for host in hosts:
        if host.state.is_final:
            continue
        _take_over(host, updates[host.host])
        host.revision = revision
        if host.state is HostState.DONE:
            host.analysis_state = AnalysisState.PENDING
            stored.append(host)
    if not stored:
        return
    enqueue(session, WorkKind.ANALYZE_HOST, [host.id for host in stored], now)
    session.execute(
        update(Capture)
        .where(Capture.id == capture_id)
        .values(
            hosts_done=Capture.hosts_done + len(stored),
            bytes=Capture.bytes + sum(host.bytes for host in stored),
        )
        .execution_options(synchronize_session=False)
    )


def _take_over(host: CaptureHost, update: HostUpdate) -> None:
    host.state = update.state
    host.attempts = update.attempts
    host.reason = update.reason
    host.message = update.message
    host.grpc_code = update.grpc_code
    host.bytes = update.bytes
    host.sha256 = update.sha256
    host.file = update.file
    host.warnings = list(update.warnings)
    host.timings_ms = dict(update.timings_ms)
    host.started_at = update.started_at
    host.finished_at = update.finished_at


def finish_capture(
    session: Session, capture_id: uuid.UUID, now: datetime, *, error: str | None = None
) -> None:
    """Decide how the capture ended; hosts that never ended count as interrupted."""
    capture = find_capture(session, capture_id)
    session.refresh(capture)
    if capture.finished_at is not None:
        return
    revision = next_revision(session, capture_id)
    for host in capture.hosts:
        if not host.state.is_final:
            host.state = HostState.FAILED
            host.reason = ReasonCode.INTERRUPTED
            host.message = error or INTERRUPTED
            host.finished_at = now
            host.revision = revision
    capture.state = decide(capture.quorum, [host.state for host in capture.hosts])
    capture.error = error
    capture.started_at = capture.started_at or now
    capture.finished_at = now
    capture.capture_seconds = (now - capture.started_at).total_seconds()
    if capture.hosts_done == 0:
        capture.analysis_state = AnalysisState.FAILED
        capture.analysis_error = "no host was captured, so there is nothing to analyse"
        capture.analysis_finished_at = now


def interrupt_capture(session: Session, capture_id: uuid.UUID, now: datetime) -> None:
    """End a capture whose worker was lost; what was stored until then stays."""
    finish_capture(session, capture_id, now, error=INTERRUPTED)


def next_revision(session: Session, capture_id: uuid.UUID) -> int:
    """Raise the capture's revision by one and return it; also serialises its writers."""
    changed_rows(
        session,
        update(Capture).where(Capture.id == capture_id).values(revision=Capture.revision + 1),
    )
    return session.scalars(select(Capture.revision).where(Capture.id == capture_id)).one()
