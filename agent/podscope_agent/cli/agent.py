"""``podscope agent``: the daemon of one host."""

import asyncio
import signal
import sys
from typing import Annotated, Any

import structlog
import typer
from prometheus_client import start_http_server

from podscope_agent.errors import ListenError, PortInUseError
from podscope_agent.listening import bracketed, check_bind
from podscope_agent.live.exporter import AgentMetrics, LiveFigures
from podscope_agent.live.model import DeviceBackend
from podscope_agent.live.nvml import NvmlBackend
from podscope_agent.live.tpu import TpuBackend
from podscope_agent.server import AgentServer, AgentService
from podscope_agent.session import HostSession
from podscope_agent.settings import AgentSettings, load_settings
from podscope_agent.targets import parse_targets

_EPILOG = """\
Examples:

  podscope agent --target localhost:9999

  podscope agent --host 0.0.0.0 --target localhost:9999,localhost:10000

Then capture this host through its one stable port:

  podscope capture HOST:8466 --logdir runs
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog=_EPILOG)
def agent(
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
) -> None:
    """Serve one profiler endpoint for everything that runs on this host, and live metrics.

    A capture through the agent reaches all targets together; their traces come back as one.
    The service speaks the profilers' own protocol: TensorFlow, JAX and XProf clients work as
    they are. It has no authentication, so it binds to loopback unless --host says otherwise.
    """
    given = {
        "targets": ",".join(target) if target else None,
        "host": host,
        "port": port,
        "metrics_port": metrics_port,
    }
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
    targets = parse_targets([settings.targets])
    backends: list[DeviceBackend] = [TpuBackend(_items(settings.tpu_metrics))]
    if nvml := NvmlBackend.load():
        backends.append(nvml)
    live = LiveFigures(settings.node_name, backends)
    metrics = AgentMetrics(live)
    session = HostSession(targets, record=metrics.record)
    server = AgentServer(AgentService(session, live), settings.host, settings.port)
    await server.start()
    try:
        # By hand first: with port 0 or a foreign address the reason is not a taken port.
        check_bind(settings.host, settings.metrics_port, "--metrics-port")
        exporter, exporter_thread = start_http_server(
            settings.metrics_port, settings.host, registry=metrics.registry
        )
    except (ListenError, PortInUseError):
        await server.stop(0)
        raise
    except OSError as error:
        await server.stop(0)
        raise PortInUseError(settings.metrics_port, "--metrics-port") from error
    sys.stdout.write(
        f"podscope agent: profiler service on {bracketed(settings.host, server.port)}, "
        f"metrics on http://{bracketed(settings.host, exporter.server_port)}/metrics, "
        f"targets {', '.join(targets)}\n"
    )
    sys.stdout.flush()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    await server.stop(settings.grace_s)
    await session.close()
    exporter.shutdown()
    exporter.server_close()
    exporter_thread.join()
