"""``podscope agent``: the daemon of one host."""

import asyncio
import gc
import json
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
from prometheus_client import disable_created_metrics

from podscope_agent.authentication import read_token
from podscope_agent.delivery import Delivery
from podscope_agent.describing import describe, described_target
from podscope_agent.errors import RuntimeDirError
from podscope_agent.guard import Budget, OverheadGuard
from podscope_agent.host_captures import HostCaptures
from podscope_agent.inventory import TargetInventory
from podscope_agent.listening import bracketed
from podscope_agent.live.chips import tpu_chips
from podscope_agent.live.exporter import AgentMetrics, LiveFigures
from podscope_agent.live.model import DeviceBackend
from podscope_agent.live.nvml import NvmlBackend
from podscope_agent.live.reported import ReportedFigures
from podscope_agent.live.tpu import TpuBackend
from podscope_agent.own_service import OwnService
from podscope_agent.pods import PodWatcher
from podscope_agent.registrations import RegistrationServer
from podscope_agent.repository import Repository
from podscope_agent.results import ResultSpool
from podscope_agent.server import AgentServer, AgentService, OwnRpcs
from podscope_agent.session import HostSession
from podscope_agent.settings import DEFAULT_PORT, AgentSettings, load_settings, parse_labels
from podscope_agent.status import StatusPages
from podscope_agent.targets import parse_targets
from podscope_agent.tls import channel_credentials, server_tls
from podscope_agent.worker_lists import WorkerLists
from podscope_protos.tokens import is_loopback

_ANSWER_S = 5.0

_EPILOG = """\
Examples:

  podscope agent                                   captures what registers here

  podscope agent --target localhost:9999

  podscope agent --host 0.0.0.0 --target localhost:9999,localhost:10000

Then capture this host through its one stable port:

  podscope capture HOST:8466 --logdir runs
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True, epilog=_EPILOG)
def agent(
    context: typer.Context,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Profiler servers on this host, host:port; repeat or separate by commas."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to serve on.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the profiler service.", min=0, max=65535)
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port of /metrics.", min=0, max=65535)
    ] = None,
    runtime_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of the socket on which processes of this host register."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token that calls must carry.")
    ] = None,
    tls_cert_file: Annotated[
        Path | None, typer.Option(help="Certificate of the profiler service, PEM: serve TLS.")
    ] = None,
    tls_key_file: Annotated[
        Path | None, typer.Option(help="Private key of the certificate.")
    ] = None,
    tls_client_ca_file: Annotated[
        Path | None, typer.Option(help="Authorities that must have signed clients' certificates.")
    ] = None,
    kubernetes: Annotated[
        bool | None,
        typer.Option("--kubernetes", help="Capture the pods of this node that name a port."),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="key=value that describes this host; repeatable.")
    ] = None,
    allow_root: Annotated[
        list[str] | None,
        typer.Option(help="Folder, s3://… or gs://… to write profiles to if asked; repeatable."),
    ] = None,
    allow_worker: Annotated[
        list[str] | None,
        typer.Option(help="Other agents that worker lists may name, host:port with *; repeatable."),
    ] = None,
    spool_dir: Annotated[
        Path | None, typer.Option(help="Folder where profiles wait to be fetched.")
    ] = None,
    spool_bytes: Annotated[
        int | None, typer.Option(help="Size of all profiles that wait.", min=1 << 20)
    ] = None,
    max_duration: Annotated[
        float | None, typer.Option(help="Longest window of a capture, in seconds.")
    ] = None,
    min_interval: Annotated[
        float | None, typer.Option(help="Seconds between two captures, at least.", min=0)
    ] = None,
    max_time_ratio: Annotated[
        float | None,
        typer.Option(help="Share of an hour that may be captured, 0-1.", min=0, max=1),
    ] = None,
) -> None:
    """Serve one profiler endpoint for everything that runs on this host, and live metrics.

    Targets are those that --target names, the processes that register by
    themselves (podscope.profiler.server.start and .register), and with
    --kubernetes the pods of the node whose annotation podscope.dev/port names
    a port. 'podscope agent targets' lists them.

    A capture through the agent reaches all targets together; their traces come
    back as one. The service speaks the profilers' own protocol: TensorFlow,
    JAX and XProf clients work as they are. It has no authentication unless
    --token-file or --tls-client-ca-file is given, which stock clients cannot
    satisfy, so it binds to loopback unless --host says otherwise.
    """
    given = {
        "targets": ",".join(target) if target else None,
        "host": host,
        "port": port,
        "metrics_port": metrics_port,
        "runtime_dir": runtime_dir,
        "token_file": token_file,
        "tls_cert_file": tls_cert_file,
        "tls_key_file": tls_key_file,
        "tls_client_ca_file": tls_client_ca_file,
        "kubernetes": kubernetes,
        "labels": ",".join(label) if label else None,
        "allow_root": ",".join(allow_root) if allow_root else None,
        "allow_workers": ",".join(allow_worker) if allow_worker else None,
        "spool_dir": spool_dir,
        "spool_bytes": spool_bytes,
        "max_duration_s": max_duration,
        "min_interval_s": min_interval,
        "max_time_ratio": max_time_ratio,
    }
    if context.invoked_subcommand is not None:
        return
    # What is not given on the command line comes from the environment.
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings = load_settings(**chosen)
    _log_to_stderr()
    asyncio.run(_serve(settings))


def _log_to_stderr() -> None:
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


async def _serve(settings: AgentSettings) -> None:
    # Times of creation would be a series more for each, under names of no meaning.
    disable_created_metrics()  # type: ignore[no-untyped-call] # only in its stubs
    inventory = TargetInventory(parse_targets([settings.targets]))
    labels = parse_labels(settings.labels)
    token = None if settings.token_file is None else read_token(settings.token_file)
    tls = server_tls(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)
    if token is None and settings.tls_client_ca_file is None and not is_loopback(settings.host):
        structlog.get_logger().warning(
            "open_to_the_network",
            host=settings.host,
            advice="whoever reaches the port can capture; --token-file or --tls-client-ca-file "
            "lets in those that you know",
        )
    backends: list[DeviceBackend] = [TpuBackend(_items(settings.tpu_metrics), tpu_chips())]
    if nvml := NvmlBackend.load():
        backends.append(nvml)
    reported = ReportedFigures()
    backends.append(reported)
    live = LiveFigures(settings.node_name, backends)
    metrics = AgentMetrics(live)
    metrics.count_targets(inventory.count_states)
    spool = ResultSpool(settings.spool_dir, settings.spool_bytes, settings.keep_s)
    repository = Repository(_items(settings.allow_root))
    guard = _guard(settings, spool)
    metrics.count_spending(
        lambda: guard.budget_s, lambda: guard.spent_s, lambda: reported.overhead_ratio
    )
    session = HostSession(inventory, guard=guard, record=metrics.record)
    captures = HostCaptures(session, spool, repository, settings.max_message_bytes)
    own = OwnService(
        settings.node_name, labels, session, captures, live, spool, repository, reported
    )
    delivery = Delivery(repository, spool, settings.max_message_bytes)
    workers = WorkerLists(
        session, delivery, repository, _items(settings.allow_workers), lambda: server.port
    )
    server = AgentServer(
        AgentService(session, live, delivery, workers),
        OwnRpcs(own),
        settings.host,
        settings.port,
        token,
        None if tls is None else tls.credentials(),
    )
    registrations = RegistrationServer(settings.runtime_dir, inventory)
    async with AsyncExitStack() as stack:
        stack.callback(spool.close)
        await server.start()
        stack.push_async_callback(server.stop, 0)
        metrics_host = settings.metrics_host or settings.host
        pages = StatusPages(metrics_host, settings.metrics_port, metrics.registry, own.targets)
        await pages.start()
        stack.push_async_callback(pages.stop)
        await _listen_for_processes(registrations, settings)
        stack.push_async_callback(registrations.stop)
        background = [asyncio.create_task(spool.keep_expiring())]
        if settings.kubernetes:
            background.append(_watch_pods(settings, inventory))
        others = "those that register"
        if settings.kubernetes:
            others += f", and the pods of {settings.kubernetes_node or settings.node_name}"
        sys.stdout.write(
            f"podscope agent: profiler service on {bracketed(settings.host, server.port)}, "
            f"metrics on http://{bracketed(metrics_host, pages.port)}/metrics, "
            f"targets {', '.join(inventory.addresses) or others}\n"
        )
        sys.stdout.flush()
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        # What is loaded stays: the collections between large answers need not walk it.
        gc.collect()
        gc.freeze()
        await stopped.wait()
        for task in background:
            task.cancel()
        # Clients of what is cut short get their answers in the time that is added.
        draining = asyncio.create_task(server.stop(settings.grace_s + _ANSWER_S))
        await session.finish(settings.grace_s)
        await draining
        await captures.close()
        await session.close()


async def _listen_for_processes(registrations: RegistrationServer, settings: AgentSettings) -> None:
    try:
        await registrations.start()
    except RuntimeDirError as error:
        # A folder that nobody chose is no reason to refuse the rest.
        if "runtime_dir" in settings.model_fields_set:
            raise
        structlog.get_logger().warning("registration_off", problem=str(error))


def _guard(settings: AgentSettings, spool: ResultSpool) -> OverheadGuard:
    budget = Budget(
        max_duration_s=settings.max_duration_s,
        min_interval_s=settings.min_interval_s,
        max_time_ratio=settings.max_time_ratio,
        min_free_memory_bytes=settings.min_free_memory_bytes,
        min_free_disk_bytes=settings.min_free_disk_bytes,
    )
    return OverheadGuard(budget, spool.free_bytes)


def _watch_pods(settings: AgentSettings, inventory: TargetInventory) -> asyncio.Task[None]:
    watcher = PodWatcher(
        settings.kubernetes_url,
        settings.kubernetes_node or settings.node_name,
        settings.kubernetes_selector,
        settings.kubernetes_token_file,
        settings.kubernetes_ca_file,
        inventory,
    )
    return asyncio.create_task(watcher.run(settings.kubernetes_every_s))


@app.command("targets")
def list_targets(
    address: Annotated[
        str, typer.Option("--agent", help="The agent's host:port.")
    ] = f"localhost:{DEFAULT_PORT}",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token that the agent wants.")
    ] = None,
    token_in_plain_text: Annotated[
        bool,
        typer.Option("--token-in-plain-text", help="Send it without TLS to other machines too."),
    ] = False,
    ca_file: Annotated[
        Path | None, typer.Option(help="Authorities of the agent's certificate: speak TLS.")
    ] = None,
    cert_file: Annotated[
        Path | None, typer.Option(help="Certificate to show to the agent, if it asks for one.")
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="Private key of that.")] = None,
) -> None:
    """List what a running agent can capture, each with its state.

    Example: podscope agent targets --agent worker-3:8466
    """
    token = None if token_file is None else read_token(token_file)
    described = describe(
        address,
        token,
        channel_credentials(ca_file, cert_file, key_file),
        token_in_plain_text=token_in_plain_text,
    )
    targets = [described_target(target) for target in described.targets]
    if as_json:
        sys.stdout.write(json.dumps(targets, indent=2) + "\n")
        return
    rows = [("target", "state", "source", "pid", "framework", "labels", "detail")]
    for target in targets:
        labels = " ".join(f"{name}={text}" for name, text in sorted(target["labels"].items()))
        rows.append(
            (
                target["address"],
                target["state"] or "unknown",
                target["source"],
                str(target["pid"] or "-"),
                target["framework"] or "-",
                labels or "-",
                target["detail"],
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write("  ".join([*cells, row[6]]).rstrip() + "\n")
    if not targets:
        sys.stderr.write("the agent knows no target; name one with --target, or register it\n")
