"""The long-running processes of the service: API, worker, scheduler."""

import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import structlog
import uvicorn
from celery import signals
from celery.beat import Scheduler
from celery.beat import Service as BeatService
from celery.exceptions import SecurityWarning

from podscope_collector import schema
from podscope_collector.app import create_app
from podscope_collector.celery_app import create_celery
from podscope_collector.errors import PortInUseError
from podscope_collector.logs import configure_logging
from podscope_collector.runtime import Runtime
from podscope_collector.settings import CollectorSettings
from podscope_collector.work import context
from podscope_collector.work.queues import ANALYZE, CAPTURE, HEARTBEAT_TASK, INGEST

log = structlog.get_logger(__name__)


def check_port(host: str, port: int) -> None:
    """Refuse an address that cannot be listened on.

    Raises:
        PortInUseError: another process has it, or it is not this machine's.
    """
    import socket

    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"cannot listen on {host}:{port}: {reason}; choose another with --port or --host"
        raise PortInUseError(message) from error


def serve_api(settings: CollectorSettings) -> None:
    """Serve the API until SIGTERM or SIGINT."""
    configure_logging(settings)
    app = create_app(settings)
    check_port(settings.host, settings.port)
    schema.check(app.state.service.runtime.database)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        # Streams of live status never end by themselves.
        timeout_graceful_shutdown=3,
    )
    uvicorn.Server(config).run()


def run_worker(settings: CollectorSettings, queues: Sequence[str], concurrency: int) -> NoReturn:
    """Consume queues until SIGTERM; ends this process.

    Threads, not forked children: they only wait, for the network or for analysis processes.
    """
    configure_logging(settings)
    # A container's only user is root; messages are JSON, so the warning's reason (pickle) is none.
    warnings.simplefilter("ignore", SecurityWarning)
    runtime = Runtime.from_settings(settings)
    schema.check(runtime.database)
    context.install(runtime)
    app = create_celery(settings)

    def announce(**_: object) -> None:
        # The first proof of consumption, without waiting for the scheduler's.
        for queue in queues:
            app.send_task(HEARTBEAT_TASK, args=[queue], queue=queue, expires=60)
        log.info("worker_ready", queues=",".join(queues), concurrency=concurrency)

    signals.worker_ready.connect(announce, weak=False)
    if set(queues) & {CAPTURE, INGEST, ANALYZE}:
        # Beside its work: who has none of them kept on disk compiles them for a while.
        threading.Thread(target=load_kernels, name="kernels", daemon=True).start()
    worker = app.Worker(
        queues=list(queues),
        pool="threads",
        concurrency=concurrency,
        loglevel=settings.log_level.upper(),
        without_gossip=True,
        without_mingle=True,
        quiet=True,
    )
    worker.start()
    sys.exit(worker.exitcode or 0)


def load_kernels() -> None:
    """Load the analyzers' kernels or compile them, so that the first analysis does not wait."""
    from podscope_analyzers.xspace import open_xspace
    from podscope_protos.v1 import xplane_pb2

    began = time.monotonic()
    try:
        space = xplane_pb2.XSpace()
        plane = space.planes.add(name="Task Environment")
        plane.lines.add()
        plane.stat_metadata[1].name = "profile_start_time"
        # As much as is looked at in every profile that arrives.
        _ = open_xspace(space.SerializeToString()).planes[0].stats
    except Exception:
        # The first profile meets the same, and its host tells it.
        log.exception("kernels_not_ready")
        return
    log.info("kernels_ready", seconds=round(time.monotonic() - began, 3))


def run_beat(settings: CollectorSettings) -> None:
    """Send ticks and heartbeats until SIGTERM or SIGINT."""
    configure_logging(settings)
    runtime = Runtime.from_settings(settings)
    schema.check(runtime.database)
    service = BeatService(create_celery(settings), max_interval=1, scheduler_cls=Scheduler)

    def end(number: int, frame: FrameType | None) -> None:
        # Also out of a wait for a broker that is away, which looks at no flag.
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    log.info("scheduler_ready")
    service.start()
