"""The database: engine, sessions, column types and the base of all models."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import JSON, DateTime, Dialect, Engine, Enum, MetaData, Uuid, create_engine, event
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.types import TypeDecorator

from podscope_collector.errors import DatabaseError
from podscope_collector.identifiers import uuid7

JsonObject = dict[str, Any]
JsonList = list[Any]
_WRITES = "podscope_writes"


class UtcDateTime(TypeDecorator[datetime]):
    """A moment; always aware and in UTC, on SQLite too."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a moment without a zone, convert the rest to UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            message = f"{value} has no time zone"
            raise ValueError(message)
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Put back the zone that SQLite drops."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Base of all models; constraint names are fixed so that migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcDateTime,
        uuid.UUID: Uuid(),
        JsonObject: JSON().with_variant(JSONB(), "postgresql"),
        JsonList: JSON().with_variant(JSONB(), "postgresql"),
    }


class HasId:
    """A UUIDv7 primary key: rows sort by the time of their creation."""

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid7)


def text_enum(members: type[StrEnum]) -> Enum:
    """A column type that stores the values of ``members`` as text, so that the list may grow."""
    return Enum(
        members, native_enum=False, length=32, values_callable=lambda e: [m.value for m in e]
    )


class Database:
    """Sessions on one database.

    Attributes:
        engine: The SQLAlchemy engine.
        shown_url: The URL without its password, for messages.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
            backend = parsed.get_backend_name()
            if backend == "postgresql" and parsed.drivername == "postgresql":
                parsed = parsed.set(drivername="postgresql+psycopg")
            if backend == "sqlite":
                self.engine = create_engine(parsed, connect_args={"timeout": 30})
            else:
                self.engine = create_engine(
                    parsed, pool_pre_ping=True, pool_size=10, max_overflow=30
                )
        except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
            message = (
                "the database URL is not one that podscope can use; "
                "give sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME"
            )
            raise DatabaseError(message) from error
        self.shown_url = parsed.render_as_string(hide_password=True)
        if backend == "sqlite":
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        self._writing: Engine = self.engine.execution_options(**{_WRITES: True})

    @property
    def is_sqlite(self) -> bool:
        """Whether this is an SQLite file."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for reading; what it changes is rolled back."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that commits at the end of the block, and rolls back when it raises."""
        with Session(self._writing, expire_on_commit=False) as session, session.begin():
            yield session

    def dispose(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _prepare_sqlite(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
    # The driver's own transaction handling begins late and deferred; _begin_sqlite does it.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that reads first and writes later fails at once with "database is
    # locked" when another process wrote in between; an immediate one waits for its turn.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
