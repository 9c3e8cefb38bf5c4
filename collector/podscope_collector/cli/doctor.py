"""``podscope doctor``: whether a capture of these targets would work now, and what to mend."""

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from podscope_collector.cli.options import ClientTokenFile
from podscope_protos.errors import ExitCode

if TYPE_CHECKING:
    from podscope_collector.captures.request import CaptureRequest

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_EPILOG = """\
examples:

  podscope doctor 'worker-[0-63].jobs:9999'

  podscope doctor k8s:train/app=llm:9999 --probe

  podscope doctor localhost:9999 --url http://127.0.0.1:8080      as that service sees it

exit codes: 0 every target is ready, 1 one is not, 2 wrong usage, 6 service unreachable
"""


@app.command(epilog=_EPILOG)
def doctor(
    targets: Annotated[
        list[str], typer.Argument(help="As for 'podscope capture'.", metavar="TARGETS...")
    ],
    probe: Annotated[
        bool, typer.Option("--probe", help="Also capture for 100 ms; nothing is kept.")
    ] = False,
    duration: Annotated[
        str, typer.Option(help="Window of the capture that is planned: agents may forbid it.")
    ] = "2s",
    logdir: Annotated[
        str | None,
        typer.Option(help="Also see whether profiles can be stored here: folder, s3://…, gs://…"),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Let the service at this URL look, from where it runs.")
    ] = None,
    token_file: ClientTokenFile = None,
    is_tpu_name: Annotated[
        bool, typer.Option("--is-tpu-name", help="Bare targets are names of Cloud TPUs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check every step on the way to a capture: names, network, server, clock, disk.

    Nothing is captured without --probe. Each failure comes with what to do about it.
    """
    from podscope_collector.captures.durations import parse_window_ms
    from podscope_collector.captures.request import parse_request

    planned = {
        "targets": targets,
        "is_tpu_name": is_tpu_name,
        "duration_ms": parse_window_ms(duration, "--duration"),
    }
    request = parse_request(planned)
    if url is not None:
        from podscope_collector.client import ServiceClient

        found = ServiceClient(url, token_file, timeout_s=120).ask(
            "POST",
            "/doctor",
            body={**planned, "probe": probe},
        )
    else:
        found = _look(request, probe=probe, logdir=logdir, quiet=as_json)
    if as_json:
        sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")
    else:
        _print(found)
    is_well = found["storage"] is None or found["storage"]["state"] != "failed"
    is_ready = all(target["verdict"] == "ready" for target in found["targets"])
    raise typer.Exit(int(ExitCode.DONE if is_ready and is_well else ExitCode.FAILED))


def _look(
    request: "CaptureRequest", *, probe: bool, logdir: str | None, quiet: bool
) -> dict[str, Any]:
    from rich.console import Console
    from rich.progress import Progress

    from podscope_collector.captures.diagnosis import unresolved
    from podscope_collector.captures.examination import diagnose
    from podscope_collector.captures.resolving.resolver import Resolver
    from podscope_collector.settings import CollectorSettings

    settings = CollectorSettings()
    resolved = Resolver(settings).resolve(request.parsed_targets())
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("targets", total=len(resolved.targets))
        found = asyncio.run(
            diagnose(
                resolved.targets,
                probe=probe,
                duration_ms=request.duration_ms,
                agent_access=settings.agent_access(),
                on_done=lambda _: bar.advance(task),
            )
        )
    found += [unresolved(lookup.given, lookup.message) for lookup in resolved.unresolved]
    return {
        "targets": [one.to_json() for one in found],
        "left_out": [one.message for one in resolved.left_out],
        "storage": None if logdir is None else _storage(logdir),
    }


def _storage(root: str) -> dict[str, Any]:
    from podscope_collector.storage import Storage
    from podscope_collector.storage_check import check_storage

    return dict(check_storage(Storage(root)))


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("target", "verdict", "server", "round trip", "clock", "what to mend"):
        table.add_column(name, overflow="fold")
    styles = {"ready": "green", "busy": "yellow", "not_ready": "red"}
    for target in found["targets"]:
        clock = target["clock_offset_ms"]
        table.add_row(
            target["target"],
            f"[{styles[target['verdict']]}]{target['verdict'].replace('_', ' ')}[/]",
            target["kind"],
            "" if target["round_trip_ms"] is None else f"{target['round_trip_ms']:.1f} ms",
            "" if clock is None else f"{clock:+.2f} ± {target['clock_error_ms']:.2f} ms",
            _advice(target),
        )
    width = None if sys.stdout.isatty() else 400
    Console(width=width, highlight=False).print(table)
    for line in found["left_out"]:
        sys.stderr.write(f"left out: {line}\n")
    storage = found["storage"]
    if storage is not None:
        sys.stdout.write(f"storage {storage['root']}: {storage['detail']}\n")
    ready = sum(target["verdict"] == "ready" for target in found["targets"])
    sys.stdout.write(f"{ready} of {len(found['targets'])} targets ready\n")


def _advice(target: dict[str, Any]) -> str:
    from rich.markup import escape

    lines = [
        check["detail"] + (f"; {check['fix']}" if check["fix"] else "")
        for state in ("failed", "warning")
        for check in target["checks"]
        if check["state"] == state
    ]
    return escape("\n".join(lines))
