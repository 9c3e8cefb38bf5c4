"""Storing what analyses found, and deciding when the whole capture is to be reduced."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, insert, or_, select, update
from sqlalchemy.orm import Session

from podscope_collector.analyses.models import (
    HostSummary,
    PodViewerRow,
    StoredPodState,
    StoredToolResult,
)
from podscope_collector.analyses.pod_states import StoredPartial
from podscope_collector.captures.clocks import ClockOffset, align, check_clocks
from podscope_collector.captures.models import Capture, CaptureHost
from podscope_collector.captures.progress import next_revision
from podscope_collector.captures.services import recorded_windows
from podscope_collector.captures.states import AnalysisState
from podscope_collector.db import JsonObject
from podscope_collector.errors import InputNotFoundError
from podscope_collector.work.models import WorkKind
from podscope_collector.work.services import changed_rows, enqueue, forget

_OPEN = (AnalysisState.PENDING, AnalysisState.RUNNING)


def begin_host(session: Session, host_id: uuid.UUID) -> tuple[CaptureHost, Capture]:
    """Mark a host's analysis as running.

    Raises:
        InputNotFoundError: the host is gone.
    """
    host = session.get(CaptureHost, host_id)
    if host is None:
        message = f"no host {host_id}: its capture was removed"
        raise InputNotFoundError(message)
    revision = next_revision(session, host.capture_id)
    host.analysis_state = AnalysisState.RUNNING
    host.revision = revision
    capture = session.get_one(Capture, host.capture_id)
    if capture.analysis_state is AnalysisState.PENDING:
        capture.analysis_state = AnalysisState.RUNNING
    return host, capture


def store_host(
    session: Session, host_id: uuid.UUID, found: JsonObject, now: datetime, seconds: float
) -> uuid.UUID:
    """Store what ``jobs.analyze_stored_host`` found; storing it twice leaves one of each.

    Returns:
        The capture's id.
    """
    host = session.get_one(CaptureHost, host_id)
    host.revision = next_revision(session, host.capture_id)
    host.analysis_state = AnalysisState.DONE
    host.analysis_error = None
    host.analysis_seconds = seconds
    if host.window_start_ns is None:
        # No byte was read until now: an agent stored it, or the kernels were still compiled.
        host.window_start_ns, host.window_stop_ns = found["window_ns"]
        host.warnings = found["warnings"]
    session.merge(
        HostSummary(
            capture_host_id=host.id,
            capture_id=host.capture_id,
            host=host.host,
            partial_file=found["partial_file"],
            partial_digest=found["partial_digest"],
            created_at=now,
            **found["summary"],
        )
    )
    _store_results(session, host.capture_id, host.host, found["results"], now)
    return host.capture_id


def fail_host(session: Session, host_id: uuid.UUID, error: str, now: datetime) -> uuid.UUID | None:
    """Note that a host cannot be analysed; return the capture's id."""
    host = session.get(CaptureHost, host_id)
    if host is None:
        return None
    host.revision = next_revision(session, host.capture_id)
    host.analysis_state = AnalysisState.FAILED
    host.analysis_error = error
    return host.capture_id


def fail_hosts(session: Session, capture_id: uuid.UUID, reasons: Mapping[str, str]) -> None:
    """Note that analysed hosts of a capture have no partials that can be read."""
    revision = next_revision(session, capture_id)
    for host in session.scalars(
        select(CaptureHost).where(
            CaptureHost.capture_id == capture_id,
            CaptureHost.host.in_(reasons),
            CaptureHost.analysis_state == AnalysisState.DONE,
        )
    ):
        host.analysis_state, host.revision = AnalysisState.FAILED, revision
        host.analysis_error = reasons[host.host]


def has_hosts_under_way(session: Session, capture_id: uuid.UUID) -> bool:
    """Whether hosts of a capture are being analysed, or wait for it."""
    under_way = select(CaptureHost.id).where(
        CaptureHost.capture_id == capture_id, CaptureHost.analysis_state.in_(_OPEN)
    )
    return session.scalars(under_way.limit(1)).first() is not None


def claim_reduce(session: Session, capture_id: uuid.UUID, now: datetime) -> bool:
    """Enqueue the reduce if this is the last host to end; exactly one caller gets True.

    Call it in a transaction of its own, after the host's has been committed: of two hosts that
    end at the same time, neither would see the other otherwise.
    """
    is_claimed = changed_rows(
        session,
        update(Capture)
        .where(Capture.id == capture_id, *_is_reducible())
        .values(reduce_claimed_at=now, analysis_state=AnalysisState.RUNNING),
    )
    if not is_claimed:
        return False
    enqueue(session, WorkKind.REDUCE_CAPTURE, [capture_id], now)
    return True


def claim_missed_reduces(session: Session, now: datetime) -> None:
    """Claim the reduces whose last host's worker died before it could."""
    for capture_id in session.scalars(select(Capture.id).where(*_is_reducible())).all():
        claim_reduce(session, capture_id, now)


def _is_reducible() -> tuple[ColumnElement[bool], ...]:
    waiting = exists().where(
        CaptureHost.capture_id == Capture.id, CaptureHost.analysis_state.in_(_OPEN)
    )
    return (
        Capture.finished_at.is_not(None),
        Capture.hosts_done > 0,
        Capture.reduce_claimed_at.is_(None),
        Capture.analysis_state.in_(_OPEN),
        ~waiting,
    )


def analyze_again(
    session: Session, capture_id: uuid.UUID, hosts: Sequence[str], now: datetime
) -> list[str]:
    """Make work of hosts that were analysed before, and forget what all hosts together gave.

    A host whose analysis is under way, or failed, is left alone: asking twice makes one.

    Returns:
        Files that no row points at any more, to be deleted after the commit.
    """
    revision = next_revision(session, capture_id)
    rows = session.scalars(
        select(CaptureHost).where(
            CaptureHost.capture_id == capture_id,
            CaptureHost.host.in_(hosts),
            CaptureHost.analysis_state == AnalysisState.DONE,
        )
    ).all()
    if not rows:
        return []
    for host in rows:
        host.analysis_state, host.revision = AnalysisState.PENDING, revision
        forget(session, WorkKind.ANALYZE_HOST, host.id)
    capture = session.get_one(Capture, capture_id)
    session.refresh(capture)
    capture.analysis_state = AnalysisState.PENDING
    capture.analysis_error = capture.analysis_finished_at = None
    capture.reduce_claimed_at = None
    forget(session, WorkKind.REDUCE_CAPTURE, capture_id)
    enqueue(session, WorkKind.ANALYZE_HOST, [host.id for host in rows], now)
    return _forget_state(session, capture_id)


def _forget_state(session: Session, capture_id: uuid.UUID) -> list[str]:
    """Drop the combined state of the hosts, and the results that were made of it."""
    state = find_state(session, capture_id)
    files = [] if state is None else list(state.files)
    if state is not None:
        session.delete(state)
    of_all = (StoredToolResult.capture_id == capture_id, StoredToolResult.host == "")
    files += [
        file for file in session.scalars(select(StoredToolResult.file).where(*of_all)) if file
    ]
    session.execute(delete(StoredToolResult).where(*of_all))
    return files


def replace_result(
    session: Session, older: StoredToolResult, result: JsonObject, now: datetime
) -> str | None:
    """Store what a tool of a newer version made in the place of an older result.

    Returns:
        The file that no row points at any more, to be deleted after the commit.
    """
    row = session.get(StoredToolResult, older.id)
    made: str | None = result["file"]
    if row is None or row.version != older.version or row.generation != older.generation:
        # Analysed again since.
        return made
    replaced = row.file if row.file != made else None
    for name, value in result.items():
        setattr(row, name, value)
    row.created_at = now
    return replaced


def publish_state(
    session: Session, capture_id: uuid.UUID, known: int, files: Sequence[str], now: datetime
) -> int | None:
    """Make some files the combined state of the capture's hosts, unless another did meanwhile.

    Args:
        session: The transaction.
        capture_id: Of which capture.
        known: The generation that the files were made from; 0 for none.
        files: The state.
        now: The time.

    Returns:
        The generation that they are; None when the one of before was not ``known``.
    """
    # Locks the capture's row: nobody else reads and writes the state in between.
    next_revision(session, capture_id)
    state = find_state(session, capture_id)
    if (state.generation if state is not None else 0) != known:
        return None
    if state is None:
        state = StoredPodState(capture_id=capture_id)
        session.add(state)
    state.generation, state.files, state.created_at = known + 1, list(files), now
    return known + 1


def find_state(session: Session, capture_id: uuid.UUID) -> StoredPodState | None:
    """The combined state of the capture's hosts, as it is now."""
    return session.get(StoredPodState, capture_id, populate_existing=True)


def store_capture(
    session: Session, capture_id: uuid.UUID, found: JsonObject, generation: int, now: datetime
) -> list[str]:
    """Store the results of all hosts together, as ``jobs.reduce_stored_capture`` found them.

    Results of a state that has been replaced are dropped: who replaced it makes newer ones.

    Returns:
        Files of results that no row points at any more, to be deleted after the commit.
    """
    revision = next_revision(session, capture_id)
    state = find_state(session, capture_id)
    if state is None or state.generation != generation:
        return []
    capture = session.get_one(Capture, capture_id)
    session.refresh(capture)
    session.execute(delete(PodViewerRow).where(PodViewerRow.capture_id == capture_id))
    rows = [{"capture_id": capture_id, **row} for row in found["pod_viewer_rows"]]
    if rows:
        session.execute(insert(PodViewerRow), rows)
    before = session.scalars(
        select(StoredToolResult.file).where(
            StoredToolResult.capture_id == capture_id, StoredToolResult.host == ""
        )
    ).all()
    results = [{**result, "generation": generation} for result in found["results"]]
    replaced = {file for file in before if file} - {result["file"] for result in results}
    _store_results(session, capture_id, "", results, now)
    windows = recorded_windows(capture.hosts)
    # Of profiles that agents stored by themselves nobody knew it before the analysis.
    alignment = align(windows)
    capture.alignment = None if alignment is None else alignment.to_json()
    measured = {host: ClockOffset(*clock) for host, *clock in clocks_of(session, capture_id)}
    check = check_clocks(found["common_ends"], windows, measured)
    capture.summary = {
        **found["summary"],
        "clock_check": None if check is None else check.to_json(),
    }
    capture.revision = revision
    if capture.reduce_claimed_at is None:
        # Repeated since: hosts come that are not in these results; the next reduce has them.
        return sorted(replaced)
    capture.analysis_state = AnalysisState.DONE
    capture.analysis_error = _partial_error(session, capture)
    _end_analysis(capture, now)
    return sorted(replaced)


def fail_capture(session: Session, capture_id: uuid.UUID, error: str, now: datetime) -> None:
    """Note that the capture as a whole cannot be analysed; results of its hosts stay."""
    capture = session.get(Capture, capture_id)
    if capture is None:
        return
    next_revision(session, capture_id)
    session.refresh(capture)
    capture.analysis_state = AnalysisState.FAILED
    capture.analysis_error = error
    _end_analysis(capture, now)


def _end_analysis(capture: Capture, now: datetime) -> None:
    capture.analysis_finished_at = now
    if capture.finished_at is not None:
        capture.analysis_seconds = (now - capture.finished_at).total_seconds()


def _partial_error(session: Session, capture: Capture) -> str | None:
    failed = session.scalars(
        select(CaptureHost.host)
        .where(
            CaptureHost.capture_id == capture.id,
            CaptureHost.analysis_state == AnalysisState.FAILED,
        )
        .order_by(CaptureHost.position)
    ).all()
    if not failed:
        return None
    more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
    return f"not analysed: {', '.join(failed[:3])}{more}; see the hosts for the reasons"


def _store_results(
    session: Session,
    capture_id: uuid.UUID,
    host: str,
    results: Sequence[dict[str, Any]],
    now: datetime,
) -> None:
    session.execute(
        delete(StoredToolResult).where(
            StoredToolResult.capture_id == capture_id, StoredToolResult.host == host
        )
    )
    session.add_all(
        StoredToolResult(capture_id=capture_id, host=host, created_at=now, **result)
        for result in results
    )


def find_result(
    session: Session, capture_id: uuid.UUID, tool: str, host: str
) -> StoredToolResult | None:
    """The stored result of a tool on a host, or on all hosts (empty name).

    None also for a result of all hosts that is older than their combined state.
    """
    state = StoredPodState
    is_current = or_(
        StoredToolResult.host != "",
        state.generation.is_(None),
        state.generation == StoredToolResult.generation,
    )
    return session.scalar(
        select(StoredToolResult)
        .outerjoin(state, state.capture_id == StoredToolResult.capture_id)
        .where(
            StoredToolResult.capture_id == capture_id,
            StoredToolResult.tool == tool,
            StoredToolResult.host == host,
            is_current,
        )
    )


def partials_of(
    session: Session, capture_id: uuid.UUID, host: str | None = None
) -> list[StoredPartial]:
    """The stored partial of each analysed host, in the order of the request.

    Not of a host that is being analysed again: its partial is an older podscope's.
    """
    query = (
        select(HostSummary.host, HostSummary.partial_file, HostSummary.partial_digest)
        .join(CaptureHost, CaptureHost.id == HostSummary.capture_host_id)
        .where(
            HostSummary.capture_id == capture_id,
            CaptureHost.analysis_state == AnalysisState.DONE,
        )
        .order_by(CaptureHost.position)
    )
    if host is not None:
        query = query.where(HostSummary.host == host)
    return [StoredPartial(*row) for row in session.execute(query)]


def clocks_of(session: Session, capture_id: uuid.UUID) -> list[tuple[str, int, int]]:
    """Of every host whose clock was measured its name, the offset and its error, nanoseconds."""
    rows = session.execute(
        select(CaptureHost.host, CaptureHost.clock_offset_ns, CaptureHost.clock_error_ns)
        .where(CaptureHost.capture_id == capture_id, CaptureHost.clock_offset_ns.is_not(None))
        .order_by(CaptureHost.position)
    )
    return [
        (host, offset, error)
        for host, offset, error in rows
        if offset is not None and error is not None
    ]


def missing_hosts(session: Session, capture_id: uuid.UUID) -> list[tuple[str, str]]:
    """Hosts that were asked for and are in no result, with the reason's code."""
    state = CaptureHost.analysis_state
    rows = session.execute(
        select(CaptureHost.host, CaptureHost.reason)
        .where(
            CaptureHost.capture_id == capture_id,
            or_(state.is_(None), state != AnalysisState.DONE),
        )
        .order_by(CaptureHost.position)
    )
    return [
        (host, reason.value if reason is not None else "analysis_failed") for host, reason in rows
    ]
