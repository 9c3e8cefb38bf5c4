"""``podscope up``: everything on this machine, supervised."""

import typer

from podscope_collector.cli.options import DataDir, Host, Insecure, Port, TokenFile, load_settings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_HELP = """\
Run everything on this machine: broker, database, workers, scheduler, API and web pages.

Nothing has to be installed or configured; Ctrl-C ends it all. Examples:

  podscope up

  podscope up --data-dir /var/lib/podscope --port 9000

  podscope up --host 0.0.0.0 --token-file token
"""


@app.command(help=_HELP)
def up(
    data_dir: DataDir = None,
    host: Host = None,
    port: Port = None,
    token_file: TokenFile = None,
    insecure: Insecure = False,
) -> None:
    """Run until Ctrl-C or SIGTERM."""
    from podscope_collector.production import run_everything

    run_everything(
        load_settings(
            data_dir=data_dir,
            host=host,
            port=port,
            token_file=token_file,
            insecure=insecure or None,
        )
    )
