"""``podscope capture``: profile many hosts at once, with or without a service."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from podscope_collector.captures.advanced import from_text
from podscope_collector.captures.durations import parse_duration_ms
from podscope_collector.captures.outcome import CaptureOutcome, HostUpdate
from podscope_collector.captures.request import CaptureRequest, parse_request
from podscope_collector.captures.states import CaptureState
from podscope_collector.cli.capture_progress import Progress, summary
from podscope_collector.cli.capture_remote import RemoteCapture, capture_remotely
from podscope_collector.errors import RequestError
from podscope_collector.host_names import distinct_host_names
from podscope_protos.errors import ExitCode

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_EXIT = {
    CaptureState.COMPLETE: ExitCode.DONE,
    CaptureState.PARTIAL: ExitCode.PARTIAL,
    CaptureState.FAILED: ExitCode.FAILED,
    CaptureState.CANCELLED: ExitCode.INTERRUPTED,
}

_EPILOG = """\
examples:

  podscope capture grpc://w0:9999,w1:9999 --logdir runs

  podscope capture 'worker-[0-63].jobs:9999' --duration 500ms --quorum 90%

  podscope capture localhost:9999 --url http://127.0.0.1:8080 --label run=llm-7b --json

exit codes: 0 every host captured, 1 failed, 2 wrong usage, 5 partial, 6 service unreachable,
130 interrupted
"""


@app.command(epilog=_EPILOG)
def capture(
    targets: Annotated[
        list[str],
        typer.Argument(help="host:port, grpc://host:port, [::1]:port, worker-[0-63].svc:9999; …"),
    ],
    duration: Annotated[str, typer.Option(help="The window: 500ms, 2s, 1m.")] = "2s",
    attempts: Annotated[int, typer.Option(help="Tries per host.")] = 3,
    quorum: Annotated[
        str, typer.Option(help="Hosts that must be done: all, any, N or P%.")
    ] = "any",
    delay: Annotated[str, typer.Option(help="Start all windows together, this much later.")] = "0s",
    timeout: Annotated[
        str, typer.Option(help="What a host gets beyond the window, to collect and send.")
    ] = "60s",
    label: Annotated[list[str] | None, typer.Option(help="k=v; repeatable.")] = None,
    host_tracer_level: Annotated[int, typer.Option(help="0 to 3.")] = 2,
    device_tracer_level: Annotated[int, typer.Option(help="0 or 1.")] = 1,
    python_tracer_level: Annotated[int, typer.Option(help="0 or 1; 1 is costly.")] = 0,
    option: Annotated[
        list[str] | None, typer.Option(help="A device tracer's own option, key=value; repeatable.")
    ] = None,
    retry_empty: Annotated[
        bool, typer.Option("--retry-empty", help="Try hosts without events again, longer.")
    ] = False,
    logdir: Annotated[
        str | None,
        typer.Option(help="Capture without a service, into this folder, s3://… or gs://…"),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Capture through the service at this URL.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token of the service.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Profile many hosts at once.

    Without --url the profiles land in --logdir (default: podscope-runs), in the layout of
    TensorBoard and XProf.
    """
    if logdir is not None and url is not None:
        msg = "--logdir and --url exclude each other: with --url the service chooses the place"
        raise RequestError(msg)
    if logdir is not None and not logdir.strip():
        msg = "--logdir is empty; name a folder, s3://bucket/… or gs://bucket/…"
        raise RequestError(msg)
    request = parse_request(
        {
            "targets": targets,
            "duration_ms": parse_duration_ms(duration, "--duration"),
            "attempts": attempts,
            "quorum": quorum,
            "delay_ms": parse_duration_ms(delay, "--delay"),
            "timeout_ms": parse_duration_ms(timeout, "--timeout"),
            "retry_empty": retry_empty,
            "host_tracer_level": host_tracer_level,
            "device_tracer_level": device_tracer_level,
            "python_tracer_level": python_tracer_level,
            "advanced_configuration": _options(option or []),
            "labels": dict(_pair(text, "--label") for text in label or []),
        }
    )
    if url is not None:
        code = _through_service(request, url, token_file, as_json=as_json)
    else:
        code = _into_folder(request, logdir or "podscope-runs", as_json=as_json)
    raise typer.Exit(int(code))


def _pair(text: str, what: str) -> tuple[str, str]:
    key, equals, given = text.partition("=")
    if not equals or not key.strip():
        msg = f"{what} '{text[:60]}' is not understood; write key=value"
        raise RequestError(msg)
    return key.strip(), given.strip()


def _options(texts: list[str]) -> dict[str, bool | int | str]:
    options: dict[str, bool | int | str] = {}
    for text in texts:
        key, given = _pair(text, "--option")
        try:
            options[key] = from_text(key, given)
        except ValueError as error:
            raise RequestError(str(error)) from error
    return options


def _into_folder(request: CaptureRequest, logdir: str, *, as_json: bool) -> ExitCode:
    from podscope_collector.captures.fanout import run_capture
    from podscope_collector.storage import Storage

    storage = Storage(logdir)
    session = storage.new_session()
    targets = request.parsed_targets()
    names = distinct_host_names(target.address for target in targets)
    pending = [
        HostUpdate(target=target.address, host=name)
        for target, name in zip(targets, names, strict=True)
    ]
    with Progress(pending, request, quiet=as_json) as progress:

        async def work() -> CaptureOutcome:
            return await run_capture(
                request, targets, storage, session, progress.update, host_names=names
            )

        try:
            outcome = asyncio.run(work())
        except KeyboardInterrupt:
            progress.close()
            if as_json:
                _print_json(session, session, CaptureState.CANCELLED, progress.to_json())
            raise
    if as_json:
        _print_json(session, session, outcome.state, [host.to_json() for host in outcome.hosts])
        return _EXIT[outcome.state]
    sys.stdout.write(summary(str(outcome.state), outcome.hosts))
    if outcome.bytes:
        place = f"{logdir.rstrip('/')}/plugins/profile/{session}"
        sys.stdout.write(f"profiles: {place}\nanalyze:  podscope analyze {_quoted(logdir)}\n")
    return _EXIT[outcome.state]


def _through_service(
    request: CaptureRequest, url: str, token_file: Path | None, *, as_json: bool
) -> ExitCode:
    targets = request.parsed_targets()
    names = distinct_host_names(target.address for target in targets)
    pending = [
        HostUpdate(target=target.address, host=name)
        for target, name in zip(targets, names, strict=True)
    ]
    with Progress(pending, request, quiet=as_json) as progress:
        remote: RemoteCapture = capture_remotely(request, url, token_file, progress.update)
    if as_json:
        _print_json(remote.id, remote.session, remote.state, remote.host_objects)
    else:
        sys.stdout.write(summary(str(remote.state), remote.hosts))
        sys.stdout.write(
            f"capture:  {remote.id}\npage:     {url.rstrip('/')}/captures/{remote.id}\n"
        )
    return _EXIT[remote.state]


def _print_json(
    capture_id: str, session: str, state: CaptureState, hosts: list[dict[str, Any]]
) -> None:
    found = {"id": capture_id, "session": session, "state": str(state), "hosts": hosts}
    sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
