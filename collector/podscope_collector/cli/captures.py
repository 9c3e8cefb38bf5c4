"""``podscope captures``: the captures of a service."""

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from podscope_collector.cli.capture import show_ended
from podscope_collector.cli.capture_progress import Progress, alignment_text, clock_check_text
from podscope_collector.cli.capture_remote import follow
from podscope_collector.cli.options import AsJson, ClientTokenFile, Url, print_json
from podscope_collector.client import DEFAULT_URL, ServiceClient, as_of_podscope

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@app.callback()
def captures() -> None:
    """List, show, repeat and cancel the captures of a running service.

    Examples:
      podscope captures list --run llm-7b

      podscope captures show 0193f0a2-... --json

      podscope captures retry 0193f0a2-...
    """


@app.command("list")
def list_captures(
    url: Url = DEFAULT_URL,
    token_file: ClientTokenFile = None,
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="How many.")] = 20,
    run: Annotated[str, typer.Option("--run", help="Only those of this run.")] = "",
) -> None:
    """The newest captures."""
    query = {"limit": str(limit)} | ({"run": run} if run else {})
    page = ServiceClient(url, token_file).ask("GET", "/captures", query=query)
    if as_json:
        print_json(page)
        return
    table = Table(
        "id", "run", "created", "asked by", "state", "hosts", "skew ms", "step ms", "analysis",
        "labels", box=None,
    )  # fmt: skip
    with as_of_podscope(url):
        for item in page["items"]:
            table.add_row(
                item["id"],
                item["run"],
                item["created_at"][:19].replace("T", " "),
                _asked_by(item),
                item["state"],
                f"{item['hosts_done']} of {item['hosts_total']}",
                _skew_ms(item),
                _number((item["summary"] or {}).get("step_time_ms")),
                item["analysis"]["state"],
                _labels(item),
            )
    _print(table)


@app.command("show")
def show_capture(
    capture_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the capture.")],
    url: Url = DEFAULT_URL,
    token_file: ClientTokenFile = None,
    as_json: AsJson = False,
) -> None:
    """One capture with its hosts."""
    client = ServiceClient(url, token_file)
    capture = client.ask("GET", f"/captures/{capture_id}")
    found = client.ask("GET", f"/captures/{capture_id}/hosts")
    with as_of_podscope(url):
        hosts = found["items"]
    if as_json:
        print_json(capture | {"hosts": hosts})
        return
    with as_of_podscope(url):
        summary: dict[str, Any] = capture["summary"] or {}
        for name, text in (
            ("session", capture["session"]),
            ("run", capture["run"]),
            ("asked by", _asked_by(capture)),
            ("labels", _labels(capture) or "none"),
            ("options", _options(capture) or "none"),
            (
                "state",
                f"{capture['state']}, {capture['hosts_done']} of {capture['hosts_total']} hosts",
            ),
            ("started", alignment_text(capture["alignment"]).strip() or "unknown"),
            ("clocks", _clocks(capture["summary"])),
            ("analysis", capture["analysis"]["error"] or capture["analysis"]["state"]),
            ("step time", f"{_number(summary.get('step_time_ms'))} ms" if summary else "none"),
            ("slow host", summary.get("slow_host") or "none"),
        ):
            sys.stdout.write(f"{name:<10} {text}\n")
        table = Table(
            "target", "host", "state", "attempts", "bytes", "analysis", "message", box=None
        )
        for host in hosts:
            analysis = host["analysis"]
            table.add_row(
                host["target"],
                host["host"],
                host["state"] if host["reason"] is None else f"{host['state']} ({host['reason']})",
                str(host["attempts"]),
                f"{host['bytes']:,}",
                analysis["state"] or "none",
                analysis["error"] or host["message"] or "",
            )
    _print(table)


@app.command("cancel")
def cancel_capture(
    capture_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the capture.")],
    url: Url = DEFAULT_URL,
    token_file: ClientTokenFile = None,
    as_json: AsJson = False,
) -> None:
    """End a running capture now; what is stored stays, and its hosts are free at once."""
    found = ServiceClient(url, token_file).ask("POST", f"/captures/{capture_id}/cancel")
    if as_json:
        print_json(found)
        return
    sys.stdout.write(f"cancelled: {found.get('id', capture_id)}\n")


@app.command("retry")
def retry_capture(
    capture_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the capture.")],
    url: Url = DEFAULT_URL,
    token_file: ClientTokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Capture the hosts that failed again, into the same session, and wait for the end."""
    client = ServiceClient(url, token_file)
    capture = client.ask("POST", f"/captures/{capture_id}/retry")
    with as_of_podscope(url):
        window_ms = int(capture["duration_ms"])
    with Progress([], window_ms, quiet=as_json, steps=capture.get("steps")) as progress:
        remote = follow(capture_id, client, progress)
    raise typer.Exit(int(show_ended(remote, url, as_json=as_json)))


def _print(table: Table) -> None:
    # What is piped must not be cut to the width of a terminal that is not there.
    console = Console(width=None if sys.stdout.isatty() else 400, highlight=False, markup=False)
    console.print(table)


def _asked_by(capture: Mapping[str, Any]) -> str:
    """Who and why: ``api (ann)``."""
    why, who = str(capture.get("trigger") or "unknown"), capture.get("requested_by")
    return f"{why} ({who})" if who else why


def _clocks(summary: Mapping[str, Any] | None) -> str:
    """What the analysed profiles say of the hosts' clocks."""
    if summary is None:
        return "unknown until the profiles have been analysed"
    return clock_check_text(summary.get("clock_check")) or "no common ends"


def _labels(capture: Mapping[str, Any]) -> str:
    """The labels but the run, which has a place of its own."""
    labels = capture.get("labels") or {}
    return ", ".join(f"{key}={text}" for key, text in labels.items() if key != "run")


def _options(capture: Mapping[str, Any]) -> str:
    """What was asked for: levels, and whatever else was said."""
    asked = dict(capture.get("options") or {})
    tracers = dict(asked.pop("advanced_configuration", None) or {})
    return ", ".join(
        f"{key}={_json(found)}"
        for key, found in (asked | tracers).items()
        if found is not None and found is not False
    )


def _json(found: object) -> str:
    return found if isinstance(found, str) else json.dumps(found)


def _skew_ms(capture: Mapping[str, Any]) -> str:
    alignment = capture.get("alignment")
    return "none" if alignment is None else f"{alignment['skew_ns'] / 1e6:,.2f}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,.2f}"
