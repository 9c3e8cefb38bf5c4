"""Writing down what happens to the hosts of a capture; what is stored becomes work to analyse."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from podscope_collector.captures.models import Capture, CaptureAttempt, CaptureHost
from podscope_collector.captures.outcome import Attempt, HostUpdate
from podscope_collector.captures.queries import find_capture
from podscope_collector.captures.states import AnalysisState, HostState, ReasonCode
from podscope_collector.work.models import WorkKind
from podscope_collector.work.services import changed_rows, enqueue


def next_revision(session: Session, capture_id: uuid.UUID) -> int:
    """Raise the capture's revision by one and return it; also serialises its writers."""
    changed_rows(
        session,
        update(Capture).where(Capture.id == capture_id).values(revision=Capture.revision + 1),
    )
    return session.scalars(select(Capture.revision).where(Capture.id == capture_id)).one()


def apply_updates(
    session: Session, capture_id: uuid.UUID, updates: Mapping[str, HostUpdate], now: datetime
) -> None:
    """Store what happened to hosts; a host whose profile is stored becomes work to analyse.

    A host that is in a final state stays as it is, so that a late report changes nothing.
    ``updates`` has the latest update of each host, by its name.
    """
    revision = next_revision(session, capture_id)
    parts = [update for update in updates.values() if update.part_of is not None]
    if parts:
        _add_parts(session, capture_id, parts)
    hosts = session.scalars(
        select(CaptureHost).where(
            CaptureHost.capture_id == capture_id, CaptureHost.host.in_(updates)
        )
    )
    stored = []
    open_ones = [host for host in hosts if not host.state.is_final]
    _add_attempts(session, {host.id: updates[host.host].history for host in open_ones})
    for host in open_ones:
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


def counted_hosts(capture: Capture) -> int:
    """How many hosts a capture has, without those that cannot be captured."""
    return sum(host.state is not HostState.SKIPPED for host in capture.hosts)


def _add_parts(session: Session, capture_id: uuid.UUID, parts: Sequence[HostUpdate]) -> None:
    """Rows for the processes of hosts whose profiles are too large for one file."""
    capture = find_capture(session, capture_id)
    session.refresh(capture)
    known = {host.host: host for host in capture.hosts}
    position = max((host.position for host in capture.hosts), default=-1)
    for part in parts:
        host = known.get(part.host)
        if host is None:
            position += 1
            given = known[part.part_of].given if part.part_of in known else None
            host = CaptureHost(position=position, target=part.target, host=part.host, given=given)
            capture.hosts.append(host)
    capture.hosts_total = counted_hosts(capture)
    session.flush()


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
    host.transfer = update.transfer
    host.clock_offset_ns = None if update.clock is None else update.clock.offset_ns
    host.clock_error_ns = None if update.clock is None else update.clock.error_ns
    host.window_start_ns, host.window_stop_ns = update.window_ns
    host.timings_ms = dict(update.timings_ms)
    host.started_at = update.started_at
    host.finished_at = update.finished_at


def note_lost_attempts(
    session: Session, hosts: Sequence[CaptureHost], message: str, now: datetime
) -> None:
    """Add what nobody told the end of to the history: tries that were lost with their worker."""
    known = _last_attempts(session, [host.id for host in hosts])
    session.add_all(
        CaptureAttempt(
            capture_host_id=host.id,
            number=host.attempts,
            state=HostState.FAILED,
            reason=ReasonCode.INTERRUPTED,
            message=message,
            bytes=0,
            timings_ms=dict(host.timings_ms),
            # Of a first try; when a later one began died with its worker.
            started_at=host.started_at or now,
            finished_at=now,
        )
        for host in hosts
        if host.attempts > known.get(host.id, 0)
    )


def _last_attempts(session: Session, host_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, int]:
    """The number of the last attempt in the history, by the rows of the hosts."""
    rows = session.execute(
        select(CaptureAttempt.capture_host_id, func.max(CaptureAttempt.number))
        .where(CaptureAttempt.capture_host_id.in_(host_ids))
        .group_by(CaptureAttempt.capture_host_id)
    )
    return {row[0]: row[1] for row in rows}


def _add_attempts(session: Session, histories: Mapping[uuid.UUID, Sequence[Attempt]]) -> None:
    """Store the attempts of hosts, by their rows' ids, that are not stored yet."""
    tried = {host_id: history for host_id, history in histories.items() if history}
    if not tried:
        return
    stored = _last_attempts(session, list(tried))
    session.add_all(
        CaptureAttempt(
            capture_host_id=host_id,
            number=attempt.number,
            state=attempt.state,
            reason=attempt.reason,
            message=attempt.message,
            grpc_code=attempt.grpc_code,
            bytes=attempt.bytes,
            timings_ms=dict(attempt.timings_ms),
            started_at=attempt.started_at,
            finished_at=attempt.finished_at,
        )
        for host_id, history in tried.items()
        for attempt in history
        if attempt.number > stored.get(host_id, 0)
    )
