"""``podscope capture``: profile many hosts at once, with or without a service."""

import asyncio
import getpass
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from podscope_collector.captures.advanced import from_text
from podscope_collector.captures.durations import parse_duration_ms, parse_window_ms
from podscope_collector.captures.outcome import CaptureOutcome, HostUpdate
from podscope_collector.captures.quorum import decide
from podscope_collector.captures.request import CaptureRequest, parse_request
from podscope_collector.captures.resolving.found import Resolution
from podscope_collector.captures.states import CaptureState, HostState, ReasonCode
from podscope_collector.cli.capture_progress import Progress, alignment_text, summary
from podscope_collector.cli.capture_remote import RemoteCapture, capture_remotely
from podscope_collector.client import ServiceClient
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

  podscope capture k8s:train/app=llm-7b:9999 tpu:v5e-pod --url http://podscope.example

  podscope capture agent://w0 agent://w1 --steps 10

  podscope capture localhost:9999 --url http://127.0.0.1:8080 --label run=llm-7b --json

exit codes: 0 every host captured, 1 failed, 2 wrong usage, 5 partial, 6 service unreachable,
130 interrupted
"""


@app.command(epilog=_EPILOG)
def capture(
    targets: Annotated[
        list[str],
        typer.Argument(
            help="host:port, grpc://host:port, [::1]:port, worker-[0-63].svc:9999, agent://host, "
            "dns:///name:port, k8s:namespace/label=value:port, jobset:name:port, tpu:name; …"
        ),
    ],
    duration: Annotated[
        str | None,
        typer.Option(
            help="The window: 500ms, 2s, 1m (2s); with --steps the longest it may be (60s)."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="The window holds so many whole steps; of agents that know steps."),
    ] = None,
    attempts: Annotated[int, typer.Option(help="Tries per host.")] = 3,
    quorum: Annotated[
        str, typer.Option(help="Hosts that must be done: all, any, N or P%.")
    ] = "any",
    delay: Annotated[str, typer.Option(help="Start all windows together, this much later.")] = "0s",
    timeout: Annotated[
        str, typer.Option(help="What a host gets beyond the window, to collect and send.")
    ] = "60s",
    trigger: Annotated[
        str, typer.Option(help="Why: manual, alert, or api for other programs.")
    ] = "manual",
    requested_by: Annotated[
        str | None, typer.Option(help="Who asks; the user of this machine unless given.")
    ] = None,
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
    synchronized: Annotated[
        bool,
        typer.Option("--synchronized", help="All hosts start together, or the capture is refused."),
    ] = False,
    expected_host_bytes: Annotated[
        int | None, typer.Option(help="Size of one host's profile, for the byte budget.")
    ] = None,
    is_tpu_name: Annotated[
        bool, typer.Option("--is-tpu-name", help="Bare targets are names of Cloud TPUs.")
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
    agent_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token of the agents, where they ask for one.",
            envvar="PODSCOPE_COLLECTOR_AGENT_TOKEN_FILE",
        ),
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
            "is_tpu_name": is_tpu_name,
            "steps": steps,
            **_window(duration),
            "attempts": attempts,
            "quorum": quorum,
            "delay_ms": parse_duration_ms(delay, "--delay"),
            "timeout_ms": parse_duration_ms(timeout, "--timeout"),
            "retry_empty": retry_empty,
            "synchronized": synchronized,
            "expected_host_bytes": expected_host_bytes,
            "requested_by": _who() if requested_by is None else requested_by,
            "trigger": trigger,
            "host_tracer_level": host_tracer_level,
            "device_tracer_level": device_tracer_level,
            "python_tracer_level": python_tracer_level,
            "advanced_configuration": _options(option or []),
            "labels": _labels(label or []),
        }
    )
    if url is not None:
        code = _through_service(request, url, token_file, as_json=as_json)
    else:
        code = _into_folder(
            request,
            logdir or "podscope-runs",
            agent_token_file,
            as_json=as_json,
        )
    raise typer.Exit(int(code))


def _window(duration: str | None) -> dict[str, int]:
    """The field of the request, where an option gives it."""
    return {} if duration is None else {"duration_ms": parse_window_ms(duration, "--duration")}


def _pair(text: str, what: str) -> tuple[str, str]:
    key, equals, given = text.partition("=")
    if not equals or not key.strip():
        msg = f"{what} '{text[:60]}' is not understood; write key=value"
        raise RequestError(msg)
    return key.strip(), given.strip()


def _labels(texts: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in texts:
        key, given = _pair(text, "--label")
        if key in labels:
            msg = f"--label {key[:60]} is given twice ('{labels[key][:40]}' and '{given[:40]}')"
            raise RequestError(msg)
        labels[key] = given
    return labels


def _who() -> str | None:
    """The user's name on this machine; nobody where there is none."""
    try:
        return getpass.getuser() or None
    except (OSError, KeyError):
        return None


def _options(texts: list[str]) -> dict[str, bool | int | str]:
    options: dict[str, bool | int | str] = {}
    for text in texts:
        key, given = _pair(text, "--option")
        try:
            options[key] = from_text(key, given)
        except ValueError as error:
            raise RequestError(str(error)) from error
    return options


def _into_folder(
    request: CaptureRequest, logdir: str, agent_token_file: Path | None, *, as_json: bool
) -> ExitCode:
    from podscope_collector.captures.fanout import run_capture
    from podscope_collector.captures.limits import FanoutLimits
    from podscope_collector.settings import CollectorSettings
    from podscope_collector.storage import Storage

    settings = CollectorSettings(agent_token_file=agent_token_file)
    access = settings.agent_access()
    storage = Storage(logdir)
    session = storage.new_session()
    found = _resolved(request)
    targets = found.targets
    names = distinct_host_names(
        [
            *(t.shown_name for t in targets),
            *(lookup.given for lookup in found.unresolved),
            *(one.name for one in found.left_out),
        ]
    )
    pending = [
        HostUpdate(target=target.address, host=name)
        for target, name in zip(targets, names, strict=False)
    ]
    lost = _not_captured(found, names[len(targets) :])
    with Progress(pending, _window_ms(request), quiet=as_json, steps=request.steps) as progress:

        async def work() -> CaptureOutcome:
            return await run_capture(
                request,
                targets,
                storage,
                session,
                progress.update,
                host_names=names[: len(targets)],
                agent_access=access,
                limits=FanoutLimits.of(settings),
            )

        for update in lost:
            progress.update(update)
        try:
            outcome = asyncio.run(work())
        except KeyboardInterrupt:
            progress.close()
            if as_json:
                _print_json(session, session, CaptureState.CANCELLED, progress.to_json())
            raise
    if lost:
        hosts = (*outcome.hosts, *lost)
        state = decide(request.quorum, [host.state for host in hosts])
        outcome = replace(outcome, hosts=hosts, state=state)
    if as_json:
        _print_json(session, session, outcome.state, [host.to_json() for host in outcome.hosts])
        return _EXIT[outcome.state]
    sys.stdout.write(summary(str(outcome.state), outcome.hosts))
    alignment = outcome.alignment
    sys.stdout.write(alignment_text(None if alignment is None else alignment.to_json()))
    if outcome.bytes:
        place = f"{logdir.rstrip('/')}/plugins/profile/{session}"
        sys.stdout.write(f"profiles: {place}\nanalyze:  podscope analyze {_quoted(logdir)}\n")
    return _EXIT[outcome.state]


def _resolved(request: CaptureRequest) -> Resolution:
    """The servers that the request's targets stand for now."""
    wanted = request.parsed_targets()
    if not wanted.lookups:
        return Resolution(wanted.targets, (), ())
    # Brings the HTTP client: only who looks up pays for it.
    from podscope_collector.captures.resolving.resolver import Resolver
    from podscope_collector.settings import CollectorSettings

    return Resolver(CollectorSettings()).resolve(wanted)


def _not_captured(found: Resolution, names: Sequence[str]) -> tuple[HostUpdate, ...]:
    """The lookups that failed, and what others found and cannot be captured."""
    failed = [
        HostUpdate(
            target=one.given,
            host=name,
            state=HostState.FAILED,
            reason=ReasonCode.UNRESOLVED,
            message=one.message,
        )
        for one, name in zip(found.unresolved, names, strict=False)
    ]
    skipped = [
        HostUpdate(
            target=one.name,
            host=name,
            state=HostState.SKIPPED,
            reason=ReasonCode.NOT_RUNNING,
            message=one.message,
        )
        for one, name in zip(found.left_out, names[len(failed) :], strict=True)
    ]
    return (*failed, *skipped)


def _through_service(
    request: CaptureRequest, url: str, token_file: Path | None, *, as_json: bool
) -> ExitCode:
    wanted = request.parsed_targets()
    items = [
        *(target.address for target in wanted.targets),
        *(lookup.given for lookup in wanted.lookups),
    ]
    pending = [
        HostUpdate(target=item, host=name)
        for item, name in zip(items, distinct_host_names(items), strict=True)
    ]
    with Progress(pending, _window_ms(request), quiet=as_json, steps=request.steps) as progress:
        remote = capture_remotely(request, ServiceClient(url, token_file), progress)
    return show_ended(remote, url, as_json=as_json)


def show_ended(remote: RemoteCapture, url: str, *, as_json: bool) -> ExitCode:
    """Print how a service's capture ended, and return the exit code that says so."""
    if as_json:
        _print_json(remote.id, remote.session, remote.state, remote.host_objects)
        return _EXIT[remote.state]
    sys.stdout.write(summary(str(remote.state), remote.hosts))
    sys.stdout.write(alignment_text(remote.alignment))
    sys.stdout.write(f"capture:  {remote.id}\npage:     {url.rstrip('/')}/captures/{remote.id}\n")
    return _EXIT[remote.state]


def _window_ms(request: CaptureRequest) -> int:
    return request.delay_ms + request.duration_ms


def _print_json(
    capture_id: str, session: str, state: CaptureState, hosts: list[dict[str, Any]]
) -> None:
    found = {"id": capture_id, "session": session, "state": str(state), "hosts": hosts}
    sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
