"""The first tables: captures, analyses, schedules and work."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)
_JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "captures",
        sa.Column("session", sa.String(length=128), nullable=False),
        sa.Column("run", sa.String(length=256), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("trigger", sa.String(32), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("started_at", _MOMENT, nullable=True),
        sa.Column("finished_at", _MOMENT, nullable=True),
        sa.Column("duration_ms", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("quorum", sa.String(length=16), nullable=False),
        sa.Column("labels", _JSON, nullable=False),
        sa.Column("request", _JSON, nullable=False),
        sa.Column("hosts_total", sa.Integer(), nullable=False),
        sa.Column("hosts_done", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("capture_seconds", sa.Double(), nullable=True),
        sa.Column("schedule_id", sa.Uuid(), nullable=True),
        sa.Column("analysis_state", sa.String(32), nullable=False),
        sa.Column("analysis_error", sa.Text(), nullable=True),
        sa.Column("analysis_finished_at", _MOMENT, nullable=True),
        sa.Column("analysis_seconds", sa.Double(), nullable=True),
        sa.Column("reduce_claimed_at", _MOMENT, nullable=True),
        sa.Column("summary", _JSON, nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_captures")),
        sa.UniqueConstraint("session", name=op.f("uq_captures_session")),
    )
    op.create_index(op.f("ix_captures_run_id"), "captures", ["run", "id"], unique=False)
    op.create_index(op.f("ix_captures_schedule_id"), "captures", ["schedule_id"], unique=False)
    op.create_index(op.f("ix_captures_state"), "captures", ["state"], unique=False)
    op.create_table(
        "heartbeats",
        sa.Column("queue", sa.String(length=32), nullable=False),
        sa.Column("consumed_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("queue", name=op.f("pk_heartbeats")),
    )
    op.create_table(
        "schedules",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("request", _JSON, nullable=False),
        sa.Column("every_seconds", sa.Integer(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("next_run_at", _MOMENT, nullable=False),
        sa.Column("last_run_at", _MOMENT, nullable=True),
        sa.Column("last_capture_id", sa.Uuid(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("name", name=op.f("uq_schedules_name")),
    )
    op.create_index(
        op.f("ix_schedules_enabled_next_run_at"),
        "schedules",
        ["enabled", "next_run_at"],
        unique=False,
    )
    op.create_table(
        "work_items",
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("queue", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("sends", sa.Integer(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("available_at", _MOMENT, nullable=False),
        sa.Column("lease_owner", sa.String(length=64), nullable=True),
        sa.Column("lease_until", _MOMENT, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_work_items")),
    )
    op.create_index(
        op.f("ix_work_items_state_available_at"),
        "work_items",
        ["state", "available_at"],
        unique=False,
    )
    op.create_index(
        "uq_work_items_kind_subject_id", "work_items", ["kind", "subject_id"], unique=True
    )
    op.create_table(
        "capture_hosts",
        sa.Column("capture_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("target", sa.String(length=512), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("reason", sa.String(32), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("grpc_code", sa.String(length=32), nullable=True),
        sa.Column("started_at", _MOMENT, nullable=True),
        sa.Column("finished_at", _MOMENT, nullable=True),
        sa.Column("timings_ms", _JSON, nullable=False),
        sa.Column("warnings", _JSON, nullable=False),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("analysis_state", sa.String(32), nullable=True),
        sa.Column("analysis_error", sa.Text(), nullable=True),
        sa.Column("analysis_seconds", sa.Double(), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["capture_id"],
            ["captures.id"],
            name=op.f("fk_capture_hosts_capture_id_captures"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_capture_hosts")),
        sa.UniqueConstraint("capture_id", "host", name=op.f("uq_capture_hosts_capture_id_host")),
        sa.UniqueConstraint(
            "capture_id", "position", name=op.f("uq_capture_hosts_capture_id_position")
        ),
    )
    op.create_index(
        op.f("ix_capture_hosts_capture_id_analysis_state"),
        "capture_hosts",
        ["capture_id", "analysis_state"],
        unique=False,
    )
    op.create_table(
        "pod_viewer_rows",
        sa.Column("capture_id", sa.Uuid(), nullable=False),
        sa.Column("step_num", sa.BigInteger(), nullable=False),
        sa.Column("core_id", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("begin_us", sa.Double(), nullable=False),
        sa.Column("total_duration_us", sa.Double(), nullable=False),
        sa.Column("own_work_us", sa.Double(), nullable=False),
        sa.Column("breakdown_us", _JSON, nullable=False),
        sa.Column("bottleneck", sa.String(length=64), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["capture_id"],
            ["captures.id"],
            name=op.f("fk_pod_viewer_rows_capture_id_captures"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pod_viewer_rows")),
    )
    op.create_index(
        op.f("ix_pod_viewer_rows_capture_id_host"),
        "pod_viewer_rows",
        ["capture_id", "host"],
        unique=False,
    )
    op.create_index(
        op.f("ix_pod_viewer_rows_capture_id_step_num_core_id"),
        "pod_viewer_rows",
        ["capture_id", "step_num", "core_id"],
        unique=False,
    )
    op.create_table(
        "tool_results",
        sa.Column("capture_id", sa.Uuid(), nullable=False),
        sa.Column("tool", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("body", _JSON, nullable=True),
        sa.Column("tables", _JSON, nullable=True),
        sa.Column("file", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["capture_id"],
            ["captures.id"],
            name=op.f("fk_tool_results_capture_id_captures"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_results")),
        sa.UniqueConstraint(
            "capture_id", "tool", "host", name=op.f("uq_tool_results_capture_id_tool_host")
        ),
    )
    op.create_table(
        "host_summaries",
        sa.Column("capture_host_id", sa.Uuid(), nullable=False),
        sa.Column("capture_id", sa.Uuid(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("device_type", sa.String(length=64), nullable=True),
        sa.Column("step_count", sa.Integer(), nullable=True),
        sa.Column("step_time_ms", sa.Double(), nullable=True),
        sa.Column("duty_cycle_ratio", sa.Double(), nullable=True),
        sa.Column("flops_per_second", sa.Double(), nullable=True),
        sa.Column("peak_flops_per_second", sa.Double(), nullable=True),
        sa.Column("breakdown", _JSON, nullable=False),
        sa.Column("partial_file", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["capture_host_id"],
            ["capture_hosts.id"],
            name=op.f("fk_host_summaries_capture_host_id_capture_hosts"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["capture_id"],
            ["captures.id"],
            name=op.f("fk_host_summaries_capture_id_captures"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("capture_host_id", name=op.f("pk_host_summaries")),
    )
    op.create_index(
        op.f("ix_host_summaries_capture_id"), "host_summaries", ["capture_id"], unique=False
    )


def downgrade() -> None:
    """Drop every table."""
    op.drop_index(op.f("ix_host_summaries_capture_id"), table_name="host_summaries")
    op.drop_table("host_summaries")
    op.drop_table("tool_results")
    op.drop_index(
        op.f("ix_pod_viewer_rows_capture_id_step_num_core_id"), table_name="pod_viewer_rows"
    )
    op.drop_index(op.f("ix_pod_viewer_rows_capture_id_host"), table_name="pod_viewer_rows")
    op.drop_table("pod_viewer_rows")
    op.drop_index(op.f("ix_capture_hosts_capture_id_analysis_state"), table_name="capture_hosts")
    op.drop_table("capture_hosts")
    op.drop_index("uq_work_items_kind_subject_id", table_name="work_items")
    op.drop_index(op.f("ix_work_items_state_available_at"), table_name="work_items")
    op.drop_table("work_items")
    op.drop_index(op.f("ix_schedules_enabled_next_run_at"), table_name="schedules")
    op.drop_table("schedules")
    op.drop_table("heartbeats")
    op.drop_index(op.f("ix_captures_state"), table_name="captures")
    op.drop_index(op.f("ix_captures_schedule_id"), table_name="captures")
    op.drop_index(op.f("ix_captures_run_id"), table_name="captures")
    op.drop_table("captures")
