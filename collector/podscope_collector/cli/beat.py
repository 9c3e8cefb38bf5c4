"""``podscope beat``: the scheduler."""

import typer

from podscope_collector.cli.options import load_settings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_HELP = """\
Send the ticks that fire schedules, recover lost work and prove that workers consume.

A second one is harmless: every firing is claimed in the database. Example:

  podscope beat
"""


@app.command(help=_HELP)
def beat() -> None:
    """Tick until SIGTERM."""
    from podscope_collector.processes import run_beat

    run_beat(load_settings())
