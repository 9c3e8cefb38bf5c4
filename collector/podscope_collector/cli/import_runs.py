"""``podscope import``: profiles that others captured become captures of the service."""

import functools
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podscope_collector.captures.durations import parse_duration_ms
from podscope_collector.cli.options import AsJson, DataDir, load_settings, print_json
from podscope_protos.errors import ExitCode

if TYPE_CHECKING:
    from podscope_collector.captures import importing

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_EPILOG = """\
examples:

  podscope import ~/logs --run llm-7b

  podscope import s3://team/logs --merge-window 30s

exit codes: 0 everything imported or there already, 1 nothing could be, 3 no profiles, 5 a part
"""


@app.command(epilog=_EPILOG)
def import_runs(
    logdir: Annotated[
        str,
        typer.Argument(
            metavar="LOGDIR", help="A log folder, a run folder, s3://bucket/… or gs://bucket/…"
        ),
    ],
    run: Annotated[
        str | None, typer.Option("--run", help="Name of the training run they belong to.")
    ] = None,
    merge_window: Annotated[
        str | None,
        typer.Option(
            "--merge-window",
            help="Join run folders whose names differ by at most this (30s): hosts that named "
            "them by their own clocks.",
        ),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Bring the profiles of TensorBoard and XProf folders into the service's storage and database.

    Run it where the service runs, with the same settings; a running service analyses what comes.
    Profiles that are damaged are kept aside and named; runs that are there already are left out.
    """
    from rich.console import Console
    from rich.progress import Progress

    from podscope_collector import schema
    from podscope_collector.captures import importing
    from podscope_collector.datafolder import open_data_folder
    from podscope_collector.logs import configure_logging
    from podscope_collector.runtime import Runtime

    window = None if merge_window is None else parse_duration_ms(merge_window, "--merge-window")
    runs = list(_found(logdir))
    if window is not None:
        runs = importing.merge_runs(runs, timedelta(milliseconds=window))
    settings = load_settings(data_dir=data_dir)
    configure_logging(settings)
    if settings.database_url is None:
        open_data_folder(settings.data_dir)
    runtime = Runtime.from_settings(settings)
    if settings.database_url is None:
        schema.upgrade(runtime.database)
    else:
        schema.check(runtime.database)
    total = sum(len(found.profiles) for found in runs)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("profiles", total=total)
        done = list(
            importing.import_runs(runtime, runs, run, functools.partial(progress.advance, bar))
        )
    runtime.database.dispose()
    _tell(done, as_json=as_json)


def _found(logdir: str) -> "Iterator[importing.FoundRun]":
    from podscope_collector.captures.importing import FoundProfile, FoundRun
    from podscope_collector.profile_folders import BUCKETS
    from podscope_collector.profiles import find_runs

    is_here = not logdir.startswith(BUCKETS)
    place = str(Path(logdir).expanduser()) if is_here else logdir
    for run in find_runs(place):
        profiles = []
        for file in run.files:
            problem = _leads_out(file.place, place) if is_here else None
            profiles.append(
                FoundProfile(file.host, _tidy(file.place), file.read, file.size, problem)
            )
        session = _tidy(run.session or "").replace("\\", "_")
        yield FoundRun(session, (session,), tuple(profiles))


def _leads_out(file: str, folder: str) -> str | None:
    """Why a file is not for import; what a link names was perhaps never meant to be read."""
    # Unlike pathlib's, this takes links that lead in circles.
    if Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        return None
    return f"{_tidy(file)} is a link out of {_tidy(folder)}; copy the profile there first"


def _tidy(name: str) -> str:
    """A name of a file with what cannot be printed, nor stored as text, replaced."""
    return "".join(letter if letter.isprintable() else "_" for letter in name)


def _tell(done: "list[importing.Imported]", *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "session": one.session,
                    "capture": None if one.capture_id is None else str(one.capture_id),
                    "hosts_done": one.hosts_done,
                    "hosts_total": one.hosts_total,
                    "problem": one.problem,
                }
                for one in done
            ]
        )
    for one in done:
        line = f"{one.session}: {one.hosts_done} of {one.hosts_total} hosts imported"
        if one.problem:
            sys.stderr.write(f"{one.session}: {one.problem}\n")
        if not as_json and one.capture_id is not None:
            sys.stdout.write(f"{line}, capture {one.capture_id}\n")
    lost = sum(one.hosts_total - one.hosts_done for one in done if not one.is_known)
    kept = sum(one.hosts_done for one in done) + sum(one.is_known for one in done)
    if lost:
        raise typer.Exit(int(ExitCode.PARTIAL if kept else ExitCode.FAILED))
