"""Compositions of processes: the workers of one machine, and everything on one machine."""

import os
import shutil
import signal
import sys
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import structlog
from pydantic import SecretStr

from podscope_collector import broker, schema
from podscope_collector.celery_app import create_celery
from podscope_collector.datafolder import lock_data_folder, open_data_folder
from podscope_collector.db import Database
from podscope_collector.errors import BrokerError
from podscope_collector.logs import configure_logging
from podscope_collector.processes import check_port, run_worker
from podscope_collector.security import token_for
from podscope_collector.settings import CollectorSettings
from podscope_collector.supervisor import ChildSpec, Supervisor
from podscope_collector.work.queues import HEAVY_QUEUES, PROMPT_QUEUES

log = structlog.get_logger(__name__)

_READY_SECONDS = 60.0
_BROKER_SECONDS = 10.0


def _podscope(*args: str) -> list[str]:
    return [sys.executable, "-m", "podscope", *args]


def _environment(settings: CollectorSettings) -> dict[str, str]:
    # Children import what this process imports, wherever it has it from.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, **settings.environment(), "PYTHONPATH": path}


def _worker_specs(settings: CollectorSettings) -> list[ChildSpec]:
    env = _environment(settings)
    # SIGTERM lets running tasks finish, SIGQUIT drops them (their work goes to another worker).
    stop = (signal.SIGTERM, signal.SIGQUIT)
    return [
        ChildSpec(
            f"worker-{queues[0]}", _podscope("worker", "--queues", ",".join(queues)), env, stop
        )
        for queues in (PROMPT_QUEUES, HEAVY_QUEUES)
    ]


def run_workers(settings: CollectorSettings, queues: Sequence[str]) -> None:
    """Consume the given queues in this process, or all of them in two child processes."""
    if queues:
        is_prompt = any(name in PROMPT_QUEUES for name in queues)
        # A thread more than processes: the reduce of one capture waits while hosts run.
        concurrency = settings.capture_concurrency if is_prompt else settings.analysis_processes + 1
        run_worker(settings, queues, concurrency)
    create_celery(settings)
    configure_logging(settings)
    database = Database(settings.database)
    schema.check(database)
    database.dispose()
    supervisor = Supervisor(settings.shutdown_grace.total_seconds())
    supervisor.handle_signals()
    try:
        for spec in _worker_specs(settings):
            supervisor.start(spec)
        while not supervisor.stop_requested:
            supervisor.wait(3600)
    finally:
        supervisor.stop()


def run_everything(settings: CollectorSettings) -> None:
    """Broker, migration, workers, scheduler and API, until SIGINT or SIGTERM.

    Raises:
        CollectorError: something that only the user can put right, before anything is started.
    """
    configure_logging(settings)
    token_for(settings)
    check_port(settings.host, settings.port)
    open_data_folder(settings.data_dir)
    with lock_data_folder(settings.data_dir):
        database = Database(settings.database)
        schema.upgrade(database)
        database.dispose()
        supervisor = Supervisor(settings.shutdown_grace.total_seconds())
        supervisor.handle_signals()
        folder: Path | None = None
        try:
            if settings.broker_url is None:
                folder = broker.socket_folder(settings.data_dir)
                settings = _start_broker(settings, supervisor, folder)
            _start_service(settings, supervisor)
            while not supervisor.stop_requested:
                supervisor.wait(3600)
        finally:
            supervisor.stop()
            if folder is not None and folder.parent != settings.data_dir:
                shutil.rmtree(folder, ignore_errors=True)


def _start_broker(
    settings: CollectorSettings, supervisor: Supervisor, folder: Path
) -> CollectorSettings:
    path = folder / "broker.sock"
    command = broker.server_command(broker.find_server(), path)
    supervisor.start(
        ChildSpec(
            "broker",
            command,
            dict(os.environ),
            # A socket left by a server that was killed would be taken for a running one.
            before_start=lambda: path.unlink(missing_ok=True),
            ends_last=True,
        )
    )
    if not supervisor.wait(_BROKER_SECONDS, lambda: broker.answers(path)):
        if supervisor.stop_requested:
            return settings
        message = f"the private broker did not start: {' '.join(command[:1])}; see its output above"
        raise BrokerError(message)
    return settings.model_copy(update={"broker_url": SecretStr(broker.broker_url(path))})


def _start_service(settings: CollectorSettings, supervisor: Supervisor) -> None:
    if supervisor.stop_requested:
        return
    env = _environment(settings)
    supervisor.start(ChildSpec("api", _podscope("collector"), env))
    for spec in _worker_specs(settings):
        supervisor.start(spec)
    supervisor.start(ChildSpec("beat", _podscope("beat"), env))
    host = "127.0.0.1" if settings.host in {"0.0.0.0", "::", "localhost"} else settings.host  # noqa: S104 - compared, not bound
    url = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
    if supervisor.wait(_READY_SECONDS, lambda: _is_ready(url)):
        sys.stderr.write(f"podscope is ready: {url}\n")
        sys.stderr.flush()
    elif not supervisor.stop_requested:
        log.warning("not_ready_yet", url=f"{url}/readyz")


def _is_ready(url: str) -> bool:
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(f"{url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
