"""Rows of work: the outbox, the leases and the attempts in one table."""

import uuid
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from podscope_collector.db import Base, HasId, text_enum


class WorkKind(StrEnum):
    """What there is to do; the subject is the id of a capture, or of one of its hosts."""

    RUN_CAPTURE = "run_capture"
    ANALYZE_HOST = "analyze_host"
    REDUCE_CAPTURE = "reduce_capture"


class WorkState(StrEnum):
    """Where a piece of work is; finished work has no row any more."""

    PENDING = "pending"
    RUNNING = "running"
    PARKED = "parked"


class WorkItem(HasId, Base):
    """One thing to do.

    Attributes:
        subject_id: What it is about; one row for each kind and subject.
        available_at: When the next message about it is due.
        sends: Messages sent since it last became pending.
        lease_until: When the worker that has it counts as dead unless it renews.
    """

    __tablename__ = "work_items"
    __table_args__ = (
        Index("uq_work_items_kind_subject_id", "kind", "subject_id", unique=True),
        Index(None, "state", "available_at"),
    )

    kind: Mapped[WorkKind] = mapped_column(text_enum(WorkKind))
    subject_id: Mapped[uuid.UUID]
    queue: Mapped[str] = mapped_column(String(32))
    state: Mapped[WorkState] = mapped_column(text_enum(WorkState), default=WorkState.PENDING)
    attempts: Mapped[int] = mapped_column(default=0)
    sends: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    available_at: Mapped[datetime]
    lease_owner: Mapped[str | None] = mapped_column(String(64))
    lease_until: Mapped[datetime | None]
    error: Mapped[str | None] = mapped_column(Text)


class Heartbeat(Base):
    """The last time a heartbeat message came out of a queue: proof of consumption."""

    __tablename__ = "heartbeats"

    queue: Mapped[str] = mapped_column(String(32), primary_key=True)
    consumed_at: Mapped[datetime]
