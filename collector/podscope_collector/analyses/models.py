"""What the analyses found: summaries, step records of the pod, results of the tools."""

import uuid
from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from podscope_collector.db import Base, HasId, JsonList, JsonObject


class HostSummary(Base):
    """The figures of one host of a capture, one row per host.

    Attributes:
        step_time_ms: Mean over the steps of the capture.
        duty_cycle_ratio: Share of time that the devices were busy, 0-1.
        flops_per_second: Achieved by one device of the host on average.
        partial_file: Where the host's partial is stored.
        partial_digest: SHA-256 of it in hex; null for those of before digests were kept.
    """

    __tablename__ = "host_summaries"

    capture_host_id: Mapped[uuid.UUID] = mapped_column(
        ForeignKey("capture_hosts.id", ondelete="CASCADE"), primary_key=True
    )
    capture_id: Mapped[uuid.UUID] = mapped_column(
        ForeignKey("captures.id", ondelete="CASCADE"), index=True
    )
    host: Mapped[str] = mapped_column(String(255))
    device_type: Mapped[str | None] = mapped_column(String(64))
    step_count: Mapped[int | None]
    step_time_ms: Mapped[float | None]
    duty_cycle_ratio: Mapped[float | None]
    flops_per_second: Mapped[float | None]
    peak_flops_per_second: Mapped[float | None]
    breakdown: Mapped[JsonObject]
    partial_file: Mapped[str] = mapped_column(Text)
    partial_digest: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime]


class StoredPodState(Base):
    """The combined state of the hosts of a capture; see ``pod_states``.

    Attributes:
        generation: Counts up with every change; who changes it must know the one before.
        files: Keys of its files in the storage, the oldest first.
    """

    __tablename__ = "pod_states"

    capture_id: Mapped[uuid.UUID] = mapped_column(
        ForeignKey("captures.id", ondelete="CASCADE"), primary_key=True
    )
    generation: Mapped[int]
    files: Mapped[JsonList]
    created_at: Mapped[datetime]


class PodViewerRow(HasId, Base):
    """One step of one core: where its time went, in microseconds by category."""

    __tablename__ = "pod_viewer_rows"
    __table_args__ = (
        Index(None, "capture_id", "step_num", "core_id"),
        Index(None, "capture_id", "host"),
    )

    capture_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("captures.id", ondelete="CASCADE"))
    step_num: Mapped[int] = mapped_column(BigInteger)
    core_id: Mapped[int] = mapped_column(BigInteger)
    host: Mapped[str] = mapped_column(String(255))
    begin_us: Mapped[float]
    total_duration_us: Mapped[float]
    own_work_us: Mapped[float]
    breakdown_us: Mapped[JsonObject]
    bottleneck: Mapped[str | None] = mapped_column(String(64))


class StoredToolResult(HasId, Base):
    """The result of a tool on one host, or on all of them.

    Attributes:
        host: Empty for the result of all hosts.
        body: The result's JSON; null when it is large and ``file`` points at it.
        tables: Its tables, for CSV; null when ``file`` holds them.
        generation: Of the pod's state that it was made of; null for results of single hosts.
    """

    __tablename__ = "tool_results"
    __table_args__ = (UniqueConstraint("capture_id", "tool", "host"),)

    capture_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("captures.id", ondelete="CASCADE"))
    tool: Mapped[str] = mapped_column(String(64))
    host: Mapped[str] = mapped_column(String(255), default="")
    version: Mapped[int]
    status: Mapped[str] = mapped_column(String(16))
    body: Mapped[JsonObject | None]
    tables: Mapped[JsonObject | None]
    file: Mapped[str | None] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    generation: Mapped[int | None]
    created_at: Mapped[datetime]
