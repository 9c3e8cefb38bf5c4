"""Clocks and windows of hosts, and how well they started together."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_OF_HOSTS = ("clock_offset_ns", "clock_error_ns", "window_start_ns", "window_stop_ns")


def upgrade() -> None:
    """Add the columns; of captures of before nothing is known."""
    op.add_column("captures", sa.Column("alignment", _JSON, nullable=True))
    op.add_column("capture_hosts", sa.Column("transfer", sa.String(length=16), nullable=True))
    for name in _OF_HOSTS:
        op.add_column("capture_hosts", sa.Column(name, sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("capture_hosts") as table:
        for name in reversed(_OF_HOSTS):
            table.drop_column(name)
        table.drop_column("transfer")
    with op.batch_alter_table("captures") as table:
        table.drop_column("alignment")
