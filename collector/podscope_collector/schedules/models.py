"""Periodic captures."""

import uuid
from datetime import datetime

from sqlalchemy import Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from podscope_collector.db import Base, HasId, JsonObject


class Schedule(HasId, Base):
    """A capture that is taken again and again.

    Attributes:
        request: The capture request of every firing.
        next_run_at: When it fires next; whoever moves it on has claimed the firing.
        last_error: Why the last firing made no capture.
    """

    __tablename__ = "schedules"
    __table_args__ = (Index(None, "enabled", "next_run_at"),)

    name: Mapped[str] = mapped_column(String(128), unique=True)
    request: Mapped[JsonObject]
    every_seconds: Mapped[int]
    enabled: Mapped[bool] = mapped_column(default=True)
    created_at: Mapped[datetime]
    next_run_at: Mapped[datetime]
    last_run_at: Mapped[datetime | None]
    last_capture_id: Mapped[uuid.UUID | None]
    last_error: Mapped[str | None] = mapped_column(Text)
