"""``podscope worker``: consumes the queues."""

from typing import Annotated

import typer

from podscope_collector.cli.options import load_settings
from podscope_collector.errors import RequestError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_HELP = """\
Run captures and analyses: a Celery worker.

Without --queues it runs two workers, one for captures and one for analyses, so that a thousand
analyses never stand in front of a capture. Examples:

  podscope worker --concurrency 4

  podscope worker --queues ingest,analyze --concurrency 8
"""


@app.command(help=_HELP)
def worker(
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", min=1, max=256, help="Analyses at a time, a core each."),
    ] = None,
    queues: Annotated[
        str, typer.Option("--queues", help="Only these: capture, ingest, analyze, maintenance.")
    ] = "",
) -> None:
    """Consume until SIGTERM."""
    from podscope_collector.production import run_workers
    from podscope_collector.work.queues import QUEUES

    chosen = [name.strip() for name in queues.split(",") if name.strip()]
    for name in chosen:
        if name not in QUEUES:
            message = f"no queue '{name}'; there are {', '.join(QUEUES)}"
            raise RequestError(message)
    run_workers(load_settings(analysis_processes=concurrency), chosen)
