"""Asking the database for captures, their hosts and their attempts."""

import uuid
from collections.abc import Iterable, Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from podscope_collector.captures.models import Capture, CaptureAttempt, CaptureHost
from podscope_collector.captures.states import AnalysisState, CaptureState
from podscope_collector.errors import InputNotFoundError


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


def list_attempts(
    session: Session, capture_id: uuid.UUID, host: str | None = None
) -> list[tuple[str, CaptureAttempt]]:
    """Every attempt that has ended, with its host's name, by host and number."""
    query = (
        select(CaptureHost.host, CaptureAttempt)
        .join(CaptureHost, CaptureHost.id == CaptureAttempt.capture_host_id)
        .where(CaptureHost.capture_id == capture_id)
        .order_by(CaptureHost.position, CaptureAttempt.number)
    )
    if host is not None:
        query = query.where(CaptureHost.host == host)
    return [(name, attempt) for name, attempt in session.execute(query)]


def is_cancelled(session: Session, capture_id: uuid.UUID) -> bool:
    """Whether somebody asked for the end of the capture."""
    return session.scalar(select(Capture.cancelled_at).where(Capture.id == capture_id)) is not None
