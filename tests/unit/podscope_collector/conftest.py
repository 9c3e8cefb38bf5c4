"""A database for each test: SQLite always, PostgreSQL where there is a server."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from podscope_collector import schema
from podscope_collector.db import Database
from podscope_collector.identifiers import uuid7

POSTGRES = "postgresql://postgres@127.0.0.1:5432"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without tables."""
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'a b.db'}")
        yield database
        database.dispose()
        return
    try:
        admin = psycopg.connect(f"{POSTGRES}/postgres", autocommit=True, connect_timeout=3)
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL server on this machine: {error}")
    name = f"podscope_test_{uuid7().hex}"
    with admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        database = Database(f"{POSTGRES}/{name}")
        try:
            yield database
        finally:
            database.dispose()
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def database(empty_database: Database) -> Database:
    """A database with the tables of this version."""
    schema.upgrade(empty_database)
    return empty_database
