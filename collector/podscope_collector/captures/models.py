"""Captures and their hosts."""

import uuid
from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from podscope_collector.captures.states import AnalysisState, CaptureState, HostState, ReasonCode
from podscope_collector.db import Base, HasId, JsonList, JsonObject, text_enum


class Trigger(StrEnum):
    """Who asked for a capture."""

    MANUAL = "manual"
    SCHEDULE = "schedule"
    API = "api"
    ALERT = "alert"
    IMPORT = "import"


class Capture(HasId, Base):
    """One capture of many hosts at once.

    Attributes:
        session: Name of its folder in the storage; unique.
        request: The request as it was accepted, to be carried out by a worker.
        cancelled_at: When somebody asked for its end.
        revision: Grows with every change of the capture or of a host, for live status.
        left_out: What the lookups of its targets found and cannot be captured, for people.
        hosts_total: A target that is still to be looked up counts as one, one that is skipped as
            none.
        hosts_done: Hosts whose profile is stored.
        reduce_claimed_at: When the last host's analysis claimed the reduce, once.
        alignment: How well the hosts started together, see ``clocks.Alignment``.
        summary: Figures of the whole capture, for lists.
    """

    __tablename__ = "captures"
    __table_args__ = (Index(None, "run", "id"), Index(None, "state"))

    session: Mapped[str] = mapped_column(String(128), unique=True)
    run: Mapped[str] = mapped_column(String(256))
    state: Mapped[CaptureState] = mapped_column(
        text_enum(CaptureState), default=CaptureState.PENDING
    )
    trigger: Mapped[Trigger] = mapped_column(text_enum(Trigger))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    cancelled_at: Mapped[datetime | None]
    duration_ms: Mapped[int] = mapped_column(BigInteger)
    attempts: Mapped[int]
    quorum: Mapped[str] = mapped_column(String(16))
    labels: Mapped[JsonObject]
    request: Mapped[JsonObject]
    left_out: Mapped[JsonList] = mapped_column(default=list)
    hosts_total: Mapped[int]
    hosts_done: Mapped[int] = mapped_column(default=0)
    bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    error: Mapped[str | None] = mapped_column(Text)
    revision: Mapped[int] = mapped_column(default=0)
    capture_seconds: Mapped[float | None]
    schedule_id: Mapped[uuid.UUID | None] = mapped_column(index=True)
    analysis_state: Mapped[AnalysisState] = mapped_column(
        text_enum(AnalysisState), default=AnalysisState.PENDING
    )
    analysis_error: Mapped[str | None] = mapped_column(Text)
    analysis_finished_at: Mapped[datetime | None]
    analysis_seconds: Mapped[float | None]
    reduce_claimed_at: Mapped[datetime | None]
    summary: Mapped[JsonObject | None]
    alignment: Mapped[JsonObject | None]

    hosts: Mapped[list["CaptureHost"]] = relationship(
        back_populates="capture", order_by="CaptureHost.position", cascade="all, delete-orphan"
    )


class CaptureHost(HasId, Base):
    """One target of a capture, with its latest attempt.

    Attributes:
        given: The item of the request that it comes from.
        target: Its ``host:port``; the item itself where that could not be looked up.
        is_lookup: It stands for hosts that are found when the capture begins.
        host: Name that its profile is stored under.
        transfer: How the profile came: ``unary``, ``stream`` or ``direct``.
        clock_offset_ns: Its clock minus the collector's; right to within ``clock_error_ns``. Both
            None when nobody could ask it.
        window_start_ns: Start of its profiler's session, Unix time by its own clock.
        window_stop_ns: And its end.
        revision: The capture's revision at which the row changed last.
        analysis_state: None while there is no profile to analyse.
    """

    __tablename__ = "capture_hosts"
    __table_args__ = (
        UniqueConstraint("capture_id", "position"),
        UniqueConstraint("capture_id", "host"),
        Index(None, "capture_id", "analysis_state"),
    )

    capture_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("captures.id", ondelete="CASCADE"))
    position: Mapped[int]
    given: Mapped[str | None] = mapped_column(Text)
    target: Mapped[str] = mapped_column(String(512))
    is_lookup: Mapped[bool] = mapped_column(default=False)
    host: Mapped[str] = mapped_column(String(255))
    state: Mapped[HostState] = mapped_column(text_enum(HostState), default=HostState.PENDING)
    reason: Mapped[ReasonCode | None] = mapped_column(text_enum(ReasonCode))
    message: Mapped[str | None] = mapped_column(Text)
    attempts: Mapped[int] = mapped_column(default=0)
    bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    sha256: Mapped[str | None] = mapped_column(String(64))
    grpc_code: Mapped[str | None] = mapped_column(String(32))
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    timings_ms: Mapped[JsonObject] = mapped_column(default=dict)
    warnings: Mapped[JsonList] = mapped_column(default=list)
    transfer: Mapped[str | None] = mapped_column(String(16))
    clock_offset_ns: Mapped[int | None] = mapped_column(BigInteger)
    clock_error_ns: Mapped[int | None] = mapped_column(BigInteger)
    window_start_ns: Mapped[int | None] = mapped_column(BigInteger)
    window_stop_ns: Mapped[int | None] = mapped_column(BigInteger)
    file: Mapped[str | None] = mapped_column(Text)
    revision: Mapped[int] = mapped_column(default=0)
    analysis_state: Mapped[AnalysisState | None] = mapped_column(text_enum(AnalysisState))
    analysis_error: Mapped[str | None] = mapped_column(Text)
    analysis_seconds: Mapped[float | None]

    capture: Mapped[Capture] = relationship(back_populates="hosts")


class CaptureAttempt(HasId, Base):
    """One try of one host, ended; the host's row has the latest.

    Attributes:
        number: From 1; a repeated capture counts on.
    """

    __tablename__ = "capture_attempts"
    __table_args__ = (UniqueConstraint("capture_host_id", "number"),)

    capture_host_id: Mapped[uuid.UUID] = mapped_column(
        ForeignKey("capture_hosts.id", ondelete="CASCADE")
    )
    number: Mapped[int]
    state: Mapped[HostState] = mapped_column(text_enum(HostState))
    reason: Mapped[ReasonCode | None] = mapped_column(text_enum(ReasonCode))
    message: Mapped[str | None] = mapped_column(Text)
    grpc_code: Mapped[str | None] = mapped_column(String(32))
    bytes: Mapped[int] = mapped_column(BigInteger)
    timings_ms: Mapped[JsonObject]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime]
