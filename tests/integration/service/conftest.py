"""A whole podscope with real workers, and a simulated pod to capture."""

import functools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
import redis
from psycopg import sql

from podscope_collector.identifiers import uuid7

ROOT = Path(__file__).resolve().parents[3]
POSTGRES = "postgresql://postgres@127.0.0.1:5432"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports(count: int) -> int:
    """The first of ``count`` free ports in a row."""
    for _ in range(100):
        first = free_port()
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
        return first
    pytest.fail(f"no {count} free ports in a row")


def wait_for(what: str, ask: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        found = ask()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds} s in vain: {what}")
        time.sleep(0.1)


def environment(**more: str) -> dict[str, str]:
    parts = ("agent", "analyzers", "collector", "protos")
    path = os.pathsep.join(str(ROOT / part) for part in parts)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PODSCOPE_")}
    return {**kept, "PYTHONPATH": path, **more}


@pytest.fixture
def closed_port() -> int:
    """A port on which nothing listens."""
    return free_port()


@dataclass
class Podscope:
    """A running ``podscope up``."""

    process: subprocess.Popen[str]
    url: str
    data_dir: Path
    log: Path
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.url, timeout=120, trust_env=False)

    def get(self, path: str, **query: str) -> Any:
        answer = self.http.get(f"/api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def capture(self, targets: list[str], **more: object) -> str:
        body = {"targets": targets, "duration_ms": 300, "attempts": 1} | more
        answer = self.http.post("/api/v1/captures", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def ended(self, capture_id: str, seconds: float = 90) -> Any:
        """The capture once its analysis is over."""

        def look() -> Any:
            capture = self.get(f"/captures/{capture_id}")
            over = capture["finished_at"] and capture["analysis"]["state"] in {"done", "failed"}
            return capture if over else None

        return wait_for(f"the end of {capture_id}; {self.log}", look, seconds)

    def child(self, *words: str) -> psutil.Process:
        """The child process whose command line has these words."""
        for process in psutil.Process(self.process.pid).children():
            if all(word in process.cmdline() for word in words):
                return process
        pytest.fail(f"no child {words}")

    def broker(self) -> psutil.Process:
        """The private broker; it writes its socket's path into its title."""
        for process in psutil.Process(self.process.pid).children():
            if any("broker.sock" in word for word in process.cmdline()):
                return process
        pytest.fail("no broker")

    def stop(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(120)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Podscope]]:
    """Starts ``podscope up`` with the given variables, in a path with a blank."""
    running: list[Podscope] = []

    def begin(**variables: str) -> Podscope:
        port = free_port()
        data_dir = tmp_path / "data folder"
        log = tmp_path / f"up-{len(running)}.log"
        command = [sys.executable, "-m", "podscope", "up"]
        with log.open("w") as output:
            process = subprocess.Popen(
                [*command, "--data-dir", str(data_dir), "--port", str(port)],
                env=environment(**variables),
                stdout=output,
                stderr=output,
                text=True,
            )
        podscope = Podscope(process, f"http://127.0.0.1:{port}", data_dir, log)
        running.append(podscope)
        wait_for("podscope up", podscope.is_ready, 90)
        return podscope

    yield begin
    for podscope in running:
        podscope.stop()


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Targets of a simulated pod of three TPU hosts."""
    with _simulated(tmp_path_factory.mktemp("pod") / "simulate.log") as targets:
        yield targets


@pytest.fixture
def hanging_pod(tmp_path: Path) -> Iterator[list[str]]:
    """The same, but the last host takes captures and never answers."""
    with _simulated(tmp_path / "hanging.log", "--fault", "2:hang") as targets:
        yield targets


@pytest.fixture
def host_on(tmp_path: Path) -> Callable[[int], AbstractContextManager[list[str]]]:
    """Starts one simulated host on a port."""
    return lambda port: _simulated(tmp_path / f"host-{port}.log", hosts=1, base=port)


@contextmanager
def _simulated(
    log: Path, *more: str, hosts: int = 3, base: int | None = None
) -> Iterator[list[str]]:
    base = free_ports(hosts) if base is None else base
    count = str(hosts)
    arguments = ["--hosts", count, "--device", "tpu-v5e", "--steps", "8", "--port-base", str(base)]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "podscope", "simulate", *arguments, *more],
            env=environment(),
            stdout=output,
            stderr=output,
        )
    ports = [base + index for index in range(hosts)]
    try:
        for port in ports:
            wait_for("the simulator", functools.partial(_answers, port, process, log), 60)
        yield [f"127.0.0.1:{port}" for port in ports]
    finally:
        process.terminate()
        process.wait(120)


def _answers(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A database of the test's own."""
    try:
        admin = psycopg.connect(f"{POSTGRES}/postgres", autocommit=True, connect_timeout=3)
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL server on this machine: {error}")
    name = f"podscope_test_{uuid7().hex}"
    with admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield f"{POSTGRES}/{name}"
        finally:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            admin.execute(drop.format(sql.Identifier(name)))


@pytest.fixture
def redis_url() -> Iterator[str]:
    """An empty database of the running Redis."""
    for number in range(15, 0, -1):
        server = redis.Redis(db=number, socket_connect_timeout=2)
        try:
            is_free = server.dbsize() == 0
        except redis.ConnectionError as error:
            server.close()
            pytest.skip(f"no Redis server on this machine: {error}")
        if is_free:
            yield f"redis://127.0.0.1:6379/{number}"
            server.flushdb()
            server.close()
            return
        server.close()
    pytest.skip("no empty Redis database on this machine")
