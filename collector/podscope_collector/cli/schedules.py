"""``podscope schedules``: periodic captures of a service."""

import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from podscope_collector.captures.durations import parse_duration_ms
from podscope_collector.cli.options import AsJson, ClientTokenFile, Url, print_json
from podscope_collector.client import DEFAULT_URL, ServiceClient, as_of_podscope
from podscope_collector.errors import RequestError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@app.callback()
def schedules() -> None:
    """Capture again and again.

    Examples:
      podscope schedules add 'grpc://w0:9999,w1:9999' --every 30m --duration 2s --label run=llm-7b

      podscope schedules list

      podscope schedules rm 0193f0a2-...
    """


@app.command("add")
def add_schedule(
    targets: Annotated[str, typer.Argument(metavar="TARGETS", help="As of 'podscope capture'.")],
    every: Annotated[str, typer.Option("--every", help="Period: 90s, 30m, 6h.")],
    duration: Annotated[
        str | None,
        typer.Option("--duration", help="Length: 500ms, 2s (2s); with --steps at most (60s)."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="The window holds so many whole steps.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the schedule.")] = None,
    attempts: Annotated[int, typer.Option("--attempts", min=1, help="Tries of a host.")] = 3,
    quorum: Annotated[str, typer.Option("--quorum", help="all, any, N or P%.")] = "any",
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="Label; may be repeated.")
    ] = None,
    url: Url = DEFAULT_URL,
    token_file: ClientTokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a periodic capture; the first one is taken at once."""
    body: dict[str, Any] = {
        "targets": targets,
        "every_s": round(parse_duration_ms(every, "period") / 1000),
        "attempts": attempts,
        "quorum": quorum,
        "labels": dict(_label(text) for text in label or []),
    }
    if duration is not None:
        body["duration_ms"] = parse_duration_ms(duration)
    if steps is not None:
        body["steps"] = steps
    if name is not None:
        body["name"] = name
    schedule = ServiceClient(url, token_file).ask("POST", "/schedules", body=body)
    if as_json:
        print_json(schedule)
    else:
        with as_of_podscope(url):
            line = f"{schedule['id']}  {schedule['name']}, every {schedule['every_s']} s\n"
        sys.stdout.write(line)


@app.command("list")
def list_schedules(
    url: Url = DEFAULT_URL, token_file: ClientTokenFile = None, as_json: AsJson = False
) -> None:
    """Every schedule."""
    found = ServiceClient(url, token_file).ask("GET", "/schedules")
    if as_json:
        print_json(found)
        return
    table = Table("id", "name", "every", "targets", "next", "last error", box=None)
    with as_of_podscope(url):
        for item in found["items"]:
            shown = ", ".join(item["targets"])
            table.add_row(
                item["id"],
                item["name"],
                f"{item['every_s']} s",
                shown if len(shown) <= 60 else f"{shown[:59]}…",
                item["next_run_at"][:19].replace("T", " ") if item["enabled"] else "off",
                item["last_error"] or "",
            )
    Console(width=None if sys.stdout.isatty() else 400, highlight=False, markup=False).print(table)


@app.command("rm")
def remove_schedule(
    schedule_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the schedule.")],
    url: Url = DEFAULT_URL,
    token_file: ClientTokenFile = None,
) -> None:
    """Remove a schedule; its captures stay."""
    ServiceClient(url, token_file).ask("DELETE", f"/schedules/{schedule_id}")


def _label(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        message = f"--label '{text[:60]}' is no label; write key=value"
        raise RequestError(message)
    return key, value
