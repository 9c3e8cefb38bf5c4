"""``podscope collector``: the API and web server of a production installation."""

import typer

from podscope_collector.cli.options import Host, Insecure, Port, TokenFile, load_settings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_HELP = """\
Serve the REST API and the web pages.

Needs a database that was upgraded ('podscope db upgrade'), a broker, and 'podscope worker' and
'podscope beat' beside it. Examples:

  podscope collector --port 8080

  podscope collector --host 0.0.0.0 --token-file /etc/podscope/token
"""


@app.command(help=_HELP)
def collector(
    host: Host = None,
    port: Port = None,
    token_file: TokenFile = None,
    insecure: Insecure = False,
) -> None:
    """Serve until SIGTERM."""
    from podscope_collector.processes import serve_api

    serve_api(load_settings(host=host, port=port, token_file=token_file, insecure=insecure or None))
