"""The combined state of a capture's hosts, and which results were made of which."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Add the table and the columns; captures of before get a state when it is needed."""
    op.add_column("host_summaries", sa.Column("partial_digest", sa.String(64), nullable=True))
    op.add_column("tool_results", sa.Column("generation", sa.Integer(), nullable=True))
    op.create_table(
        "pod_states",
        sa.Column("capture_id", sa.Uuid(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("files", _JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["capture_id"],
            ["captures.id"],
            name=op.f("fk_pod_states_capture_id_captures"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("capture_id", name=op.f("pk_pod_states")),
    )


def downgrade() -> None:
    """Drop them; the files of the states stay where they are."""
    op.drop_table("pod_states")
    with op.batch_alter_table("tool_results") as table:
        table.drop_column("generation")
    with op.batch_alter_table("host_summaries") as table:
        table.drop_column("partial_digest")
