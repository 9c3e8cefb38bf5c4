from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from podscope_collector import schema
from podscope_collector.db import Database
from podscope_collector.errors import DatabaseError, DatabaseVersionError
from podscope_collector.models import metadata


def tables(database: Database) -> set[str]:
    with database.engine.connect() as connection:
        return set(inspect(connection).get_table_names()) - {"alembic_version"}


def revisions() -> list[str]:
    scripts = ScriptDirectory(str(schema._MIGRATIONS)).walk_revisions()
    return [script.revision for script in scripts][::-1]


def test_the_migrated_schema_is_that_of_the_models(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    assert tables(database) == set(metadata.tables)


def test_every_migration_runs_both_ways(empty_database: Database) -> None:
    before, after = schema.upgrade(empty_database)
    assert (before, after) == (None, schema.head_revision())
    for revision in [*revisions()[:-1][::-1], "base"]:
        schema.downgrade(empty_database, revision)
    assert tables(empty_database) == set()
    schema.upgrade(empty_database)
    assert tables(empty_database) == set(metadata.tables)


def test_a_second_upgrade_changes_nothing(database: Database) -> None:
    head = schema.head_revision()
    assert schema.upgrade(database) == (head, head)


def test_a_database_of_a_newer_version_is_refused_and_left_alone(database: Database) -> None:
    with database.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for action in (schema.upgrade, schema.check):
        with pytest.raises(DatabaseVersionError, match=r"newer podscope .*upgrade podscope"):
            action(database)
    assert tables(database) == set(metadata.tables)


def test_an_empty_database_says_how_to_upgrade_it(empty_database: Database) -> None:
    with pytest.raises(DatabaseVersionError, match="run 'podscope db upgrade'"):
        schema.check(empty_database)


def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "podscope.db"
    path.write_bytes(b"not a database" * 100)
    database = Database(f"sqlite:///{path}")
    with pytest.raises(DatabaseError, match="file is not a database") as caught:
        schema.upgrade(database)
    assert "\n" not in str(caught.value)
    database.dispose()


def test_an_unreachable_server_is_told_without_its_password() -> None:
    database = Database("postgresql://user:hunter2@127.0.0.1:1/x")
    with pytest.raises(DatabaseError, match="cannot use the database") as caught:
        schema.check(database)
    assert "hunter2" not in str(caught.value)
    database.dispose()


def test_an_unknown_kind_of_url_is_refused() -> None:
    with pytest.raises(DatabaseError, match="sqlite:///FILE or postgresql://"):
        Database("oracle://x")
