"""Alembic's entry: runs the migrations on the connection that ``schema.py`` hands over."""

from alembic import context

from podscope_collector.models import metadata


def run() -> None:
    """Run what was asked for in one transaction."""
    connection = context.config.attributes["connection"]
    context.configure(
        connection=connection,
        target_metadata=metadata,
        # SQLite cannot alter tables in place: copy and move.
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
