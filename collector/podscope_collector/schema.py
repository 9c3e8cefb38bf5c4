"""Creating, upgrading and checking the schema of the database."""

from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from podscope_collector.db import Database
from podscope_collector.errors import DatabaseError, DatabaseVersionError

_MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK_KEY = 0x706F_6473_636F_7065  # "podscope"

log = structlog.get_logger(__name__)


def _config(connection: Connection) -> Config:
    config = Config()
    # Alembic reads this through configparser, where a per cent sign is special.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def head_revision() -> str:
    """The revision that this version of podscope works with."""
    head = ScriptDirectory(str(_MIGRATIONS)).get_current_head()
    if head is None:
        message = "the installation has no migrations; install podscope again"
        raise DatabaseError(message)
    return head


def _current(connection: Connection, shown_url: str) -> str | None:
    current = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()}
    if current is not None and current not in known:
        message = (
            f"the database {shown_url} was written by a newer podscope (revision {current}); "
            "upgrade podscope, or use another database"
        )
        raise DatabaseVersionError(message)
    return current


def _unreachable(database: Database, error: SQLAlchemyError) -> DatabaseError:
    reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
    message = f"cannot use the database {database.shown_url}: {reason}"
    return DatabaseError(message)


def upgrade(database: Database) -> tuple[str | None, str]:
    """Bring the database to the schema of this version.

    Returns:
        The revisions before and after; the first is None for an empty database.

    Raises:
        DatabaseVersionError: a newer podscope wrote the database; nothing is changed.
        DatabaseError: the database cannot be reached or written.
    """
    head = head_revision()
    try:
        with database.writing() as session:
            connection = session.connection()
            if not database.is_sqlite:
                # Two upgrades at once (a job and its retry): the second waits and finds nothing.
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            before = _current(connection, database.shown_url)
            if before != head:
                command.upgrade(_config(connection), "head")
    except SQLAlchemyError as error:
        raise _unreachable(database, error) from error
    if before != head:
        log.info("database_upgraded", database=database.shown_url, before=before, after=head)
    return before, head


def downgrade(database: Database, revision: str) -> None:
    """Take the database back to ``revision`` (``base`` for none); for tests and emergencies."""
    with database.writing() as session:
        command.downgrade(_config(session.connection()), revision)


def check(database: Database) -> None:
    """Refuse a database whose schema is not that of this version.

    Raises:
        DatabaseVersionError: it is older (says how to upgrade) or newer.
        DatabaseError: it cannot be reached.
    """
    try:
        with database.reading() as session:
            current = _current(session.connection(), database.shown_url)
    except SQLAlchemyError as error:
        raise _unreachable(database, error) from error
    if current != head_revision():
        message = (
            f"the database {database.shown_url} has not been upgraded; run 'podscope db upgrade'"
        )
        raise DatabaseVersionError(message)
