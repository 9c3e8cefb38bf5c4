"""Enqueueing, claiming, finishing and parking work; every step is one guarded statement.

A piece of work is a row from the moment it is decided until it is done. Messages only point at
rows: one that is lost is sent again, one that comes twice finds the row claimed or gone.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, CursorResult, delete, select, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import Delete, Update

from podscope_collector.work.models import Heartbeat, WorkItem, WorkKind, WorkState
from podscope_collector.work.queues import TASKS

# A message that nobody takes is sent again after `resend`, then twice as late each time: a
# long queue must not fill up with copies.
_MAX_RESEND_DOUBLINGS = 5


@dataclass(frozen=True)
class Message:
    """A message to send: which task, on which queue, about which row."""

    task: str
    queue: str
    work_id: uuid.UUID


@dataclass(frozen=True)
class Claim:
    """A piece of work that this worker holds until its lease runs out.

    Attributes:
        attempt: 1 for the first.
    """

    work_id: uuid.UUID
    kind: WorkKind
    subject_id: uuid.UUID
    owner: str
    attempt: int


@dataclass(frozen=True)
class LostWork:
    """Work that will not be tried again, with the last error."""

    kind: WorkKind
    subject_id: uuid.UUID
    error: str


def changed_rows(session: Session, statement: Update | Delete) -> int:
    """Run the statement and return how many rows it changed."""
    result = session.execute(statement.execution_options(synchronize_session=False))
    return result.rowcount if isinstance(result, CursorResult) else 0


def enqueue(
    session: Session, kind: WorkKind, subject_ids: Iterable[uuid.UUID], now: datetime
) -> None:
    """Add rows of work, in the transaction that makes them necessary."""
    _, queue = TASKS[kind]
    session.add_all(
        WorkItem(kind=kind, subject_id=subject_id, queue=queue, created_at=now, available_at=now)
        for subject_id in subject_ids
    )


def take_due_messages(
    session: Session, now: datetime, resend: timedelta, limit: int = 1000
) -> list[Message]:
    """Messages whose time has come; their rows are marked as sent.

    Marking first and sending after the commit loses nothing: what is not sent is due again.
    """
    query = (
        select(WorkItem)
        .where(WorkItem.state == WorkState.PENDING, WorkItem.available_at <= now)
        .order_by(WorkItem.available_at, WorkItem.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    messages = []
    for item in session.scalars(query):
        item.available_at = now + resend * 2 ** min(item.sends, _MAX_RESEND_DOUBLINGS)
        item.sends += 1
        task, _ = TASKS[item.kind]
        messages.append(Message(task, item.queue, item.id))
    return messages


def make_due(session: Session, work_ids: Sequence[uuid.UUID], now: datetime) -> None:
    """Take back the marks of messages that could not be sent."""
    for item in session.scalars(
        select(WorkItem).where(WorkItem.id.in_(work_ids), WorkItem.state == WorkState.PENDING)
    ):
        item.available_at = now
        item.sends = max(0, item.sends - 1)


def claim(
    session: Session, work_id: uuid.UUID, owner: str, now: datetime, lease: timedelta
) -> Claim | None:
    """Take a pending piece of work; None when it is done, parked, or in other hands."""
    taken = changed_rows(
        session,
        update(WorkItem)
        .where(WorkItem.id == work_id, WorkItem.state == WorkState.PENDING)
        .values(
            state=WorkState.RUNNING,
            attempts=WorkItem.attempts + 1,
            lease_owner=owner,
            lease_until=now + lease,
        ),
    )
    if not taken:
        return None
    item = session.get_one(WorkItem, work_id)
    return Claim(item.id, item.kind, item.subject_id, owner, item.attempts)


def renew(session: Session, held: Claim, now: datetime, lease: timedelta) -> bool:
    """Prolong the lease; False when the work was taken away in the meantime."""
    return bool(
        changed_rows(
            session,
            update(WorkItem).where(*_held(held)).values(lease_until=now + lease),
        )
    )


def finish(session: Session, held: Claim) -> bool:
    """Remove the row; False (and the caller must drop what it did) when it is not ours any more."""
    return bool(changed_rows(session, delete(WorkItem).where(*_held(held))))


def fail(
    session: Session, held: Claim, error: str, now: datetime, *, max_attempts: int
) -> LostWork | None:
    """Give the work back for another attempt, or park it.

    Returns:
        The work when it is parked now; None when it will be tried again or is not ours.
    """
    is_last = held.attempt >= max_attempts
    changed = changed_rows(
        session,
        update(WorkItem)
        .where(*_held(held))
        .values(
            state=WorkState.PARKED if is_last else WorkState.PENDING,
            error=error,
            available_at=now + timedelta(seconds=2 ** (held.attempt - 1)),
            sends=0,
            lease_owner=None,
            lease_until=None,
        ),
    )
    return LostWork(held.kind, held.subject_id, error) if changed and is_last else None


def take_back_expired(session: Session, now: datetime, *, max_attempts: int) -> list[LostWork]:
    """Take work from workers that fell silent: to be tried again, or parked."""
    query = (
        select(WorkItem)
        .where(WorkItem.state == WorkState.RUNNING, WorkItem.lease_until < now)
        .with_for_update(skip_locked=True)
    )
    lost = []
    for item in session.scalars(query):
        item.error = f"the worker {item.lease_owner} was lost during attempt {item.attempts}"
        item.lease_owner = None
        item.lease_until = None
        item.sends = 0
        item.available_at = now
        if item.attempts >= max_attempts:
            item.state = WorkState.PARKED
            lost.append(LostWork(item.kind, item.subject_id, item.error))
        else:
            item.state = WorkState.PENDING
    return lost


def forget(session: Session, kind: WorkKind, subject_id: uuid.UUID) -> None:
    """Drop work about a subject, in whatever state; whoever holds it finds it gone."""
    changed_rows(
        session, delete(WorkItem).where(WorkItem.kind == kind, WorkItem.subject_id == subject_id)
    )


def record_heartbeat(session: Session, queue: str, now: datetime) -> None:
    """Note that a heartbeat came out of ``queue``."""
    session.merge(Heartbeat(queue=queue, consumed_at=now))


def silent_queues(
    session: Session, queues: Sequence[str], now: datetime, window: timedelta
) -> list[str]:
    """Those of ``queues`` from which nothing was consumed within ``window``."""
    alive = set(
        session.scalars(select(Heartbeat.queue).where(Heartbeat.consumed_at > now - window))
    )
    return [queue for queue in queues if queue not in alive]


def _held(held: Claim) -> tuple[ColumnElement[bool], ...]:
    return (
        WorkItem.id == held.work_id,
        WorkItem.state == WorkState.RUNNING,
        WorkItem.lease_owner == held.owner,
        WorkItem.attempts == held.attempt,
    )
