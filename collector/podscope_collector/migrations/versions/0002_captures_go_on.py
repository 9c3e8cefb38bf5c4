"""Targets that are looked up, a row for every attempt, and captures that are cancelled."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)
_JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Add the columns and the table; captures of before left nothing out."""
    op.add_column("captures", sa.Column("left_out", _JSON, nullable=False, server_default="[]"))
    op.add_column("captures", sa.Column("cancelled_at", _MOMENT, nullable=True))
    op.add_column("capture_hosts", sa.Column("given", sa.Text(), nullable=True))
    op.add_column(
        "capture_hosts",
        sa.Column("is_lookup", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "capture_attempts",
        sa.Column("capture_host_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("reason", sa.String(32), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("grpc_code", sa.String(length=32), nullable=True),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("timings_ms", _JSON, nullable=False),
        sa.Column("started_at", _MOMENT, nullable=False),
        sa.Column("finished_at", _MOMENT, nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["capture_host_id"],
            ["capture_hosts.id"],
            name=op.f("fk_capture_attempts_capture_host_id_capture_hosts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_capture_attempts")),
        sa.UniqueConstraint(
            "capture_host_id", "number", name=op.f("uq_capture_attempts_capture_host_id_number")
        ),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("capture_attempts")
    with op.batch_alter_table("capture_hosts") as table:
        table.drop_column("is_lookup")
        table.drop_column("given")
    with op.batch_alter_table("captures") as table:
        table.drop_column("cancelled_at")
        table.drop_column("left_out")
