"""``podscope db``: creating and upgrading the database."""

import sys

import typer

from podscope_collector.cli.options import DataDir, load_settings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@app.callback()
def db() -> None:
    """Create and upgrade the database.

    Example: podscope db upgrade
    """


@app.command()
def upgrade(data_dir: DataDir = None) -> None:
    """Bring the database to this version; a new one is created.

    The database is PODSCOPE_COLLECTOR_DATABASE_URL, or SQLite in the data folder.
    """
    from podscope_collector import schema
    from podscope_collector.datafolder import open_data_folder
    from podscope_collector.db import Database
    from podscope_collector.logs import configure_logging

    settings = load_settings(data_dir=data_dir)
    configure_logging(settings)
    if settings.database_url is None:
        open_data_folder(settings.data_dir)
    database = Database(settings.database)
    before, after = schema.upgrade(database)
    shown = database.shown_url
    database.dispose()
    if before == after:
        sys.stderr.write(f"{shown} is up to date ({after})\n")
    else:
        sys.stderr.write(f"{shown} upgraded from {before or 'nothing'} to {after}\n")
