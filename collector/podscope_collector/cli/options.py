"""Options that several commands share."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from podscope_collector.errors import RequestError
from podscope_collector.settings import ENV_PREFIX, CollectorSettings

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="D", help="Folder of database, broker and profiles."),
]
Host = Annotated[str | None, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Port to listen on.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="File with the token that requests carry."),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Let everyone in on an address that is not loopback.")
]


def load_settings(**given: Any) -> CollectorSettings:
    """Settings from the environment, overridden by the options that were given.

    Raises:
        RequestError: a variable or an option has a value that it cannot have.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        return CollectorSettings(**chosen)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        variable = name if name.isupper() else f"{ENV_PREFIX}{name.upper()}"
        message = f"{variable}: {first['msg']}; see docs/reference/settings.md"
        raise RequestError(message) from error


Url = Annotated[
    str, typer.Option("--url", envvar="PODSCOPE_URL", help="Where the service is served.")
]
ClientTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="PODSCOPE_TOKEN_FILE",
        metavar="FILE",
        help="File with the service's token.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: object) -> None:
    """Print a value for programs."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
