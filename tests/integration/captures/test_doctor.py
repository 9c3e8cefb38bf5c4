"""What the doctor says of every kind of server there is, each of them running."""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from podscope_collector import schema
from podscope_collector.app import create_app
from podscope_collector.captures import probing
from podscope_collector.captures.diagnosis import CheckState, Diagnosis, Verdict
from podscope_collector.captures.examination import diagnose
from podscope_collector.captures.listeners import LocalPorts
from podscope_collector.captures.targets import parse_targets
from podscope_collector.db import Database
from podscope_collector.runtime import Runtime
from podscope_collector.settings import CollectorSettings
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace


def xspace(event: str = "step", process: int | None = None) -> bytes:
    space = XSpace(hostnames=["h0"])
    plane = space.planes.add(name="/host:CPU")
    plane.event_metadata[1].name = event
    plane.lines.add(name="main").events.add(metadata_id=1, offset_ps=1, duration_ps=1)
    if process is not None:
        plane.stat_metadata[1].name = "process_id"
        plane.stats.add(metadata_id=1, int64_value=process)
    return space.SerializeToString()


def profile(event: str = "step", process: int | None = None) -> bytes:
    return wire.ProfileResponse(xspace=xspace(event, process)).SerializeToString()


class Stock:
    """Answers as the profiler servers of JAX and TensorFlow do."""

    def __init__(self, *answers: bytes, busy: bool = False) -> None:
        self.answers = itertools.cycle(answers or (profile(),))
        self.busy = busy
        self.profiles = 0
        self.touched = 0

    async def profile(self, body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        request = wire.ProfileRequest.FromString(body)
        options = request.opts
        if self.busy:
            await context.abort(grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
        if not options.duration_ms:
            levels = options.host_tracer_level, options.device_tracer_level
            assert (*levels, options.python_tracer_level) == (0, 0, 0)
            self.touched += 1
            return wire.ProfileResponse(empty_trace=True).SerializeToString()
        self.profiles += 1
        return next(self.answers)

    async def terminate(self, body: bytes, context: object) -> bytes:
        return b""

    async def monitor(self, body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unimplemented.")
        return b""

    def services(self) -> dict[str, dict[str, Any]]:
        unary = grpc.unary_unary_rpc_method_handler
        return {
            methods.PROFILER_SERVICE: {
                "Profile": unary(self.profile),
                "Terminate": unary(self.terminate),
                "Monitor": unary(self.monitor),
            }
        }


@asynccontextmanager
async def serving(services: dict[str, dict[str, Any]]) -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(name, table) for name, table in services.items())
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


def look(services: dict[str, dict[str, Any]], *, probe: bool = False) -> Diagnosis:
    async def scenario() -> Diagnosis:
        async with serving(services) as address:
            (found,) = await diagnose(parse_targets(address).targets, probe=probe)
            return found

    return asyncio.run(scenario())


def look_at(text: str) -> Diagnosis:
    (found,) = asyncio.run(diagnose(parse_targets(text).targets))
    return found


def state(found: Diagnosis, name: str) -> CheckState:
    (check,) = [check for check in found.checks if check.name == name]
    return check.state


def detail(found: Diagnosis, name: str) -> str:
    (check,) = [check for check in found.checks if check.name == name]
    return f"{check.detail}; {check.fix}"


def test_a_stock_server_is_ready_and_was_not_captured() -> None:
    stock = Stock()
    found = look(stock.services())
    assert (found.verdict, str(found.kind)) == (Verdict.READY, "JAX or TensorFlow")
    assert found.round_trip_ms is not None
    assert state(found, "clock") is CheckState.UNKNOWN
    assert state(found, "busy") is CheckState.OK
    assert (stock.profiles, stock.touched) == (0, 1)


def test_a_stock_server_that_captures_is_busy_and_no_probe_is_needed() -> None:
    found = look(Stock(busy=True).services())
    assert found.verdict is Verdict.BUSY
    assert "another capture runs" in detail(found, "busy")


def test_a_server_too_old_to_send_profiles_is_free_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    class Old(Stock):
        async def profile(
            self, body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> bytes:
            request = wire.ProfileRequest.FromString(body)
            try:
                os.makedirs(f"{request.repository_root}/{request.session_id}")  # noqa: PTH103
            except OSError as error:
                await context.abort(grpc.StatusCode.INTERNAL, str(error))
            return b""

    found = look(Old().services())
    assert (found.verdict, state(found, "busy")) == (Verdict.READY, CheckState.OK)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_breaks_off_is_not_ready() -> None:
    class Broken(Stock):
        async def profile(
            self, body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> bytes:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            return b""

    found = look(Broken().services())
    assert found.verdict is Verdict.NOT_READY
    assert "did its process end or restart?" in detail(found, "busy")


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ("PjitFunction(step)", "JAX"),
        ("EagerExecute", "TensorFlow"),
        ("step", "JAX or TensorFlow"),
    ],
)
def test_a_probe_tells_whose_profiler_it_is(event: str, kind: str) -> None:
    assert str(look(Stock(profile(event)).services(), probe=True).kind) == kind


def test_a_probe_finds_that_another_machines_port_is_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As it is seen of any other machine.
    monkeypatch.setattr(LocalPorts, "look", lambda: LocalPorts(frozenset(), None))
    unseen = look(Stock().services())
    assert (unseen.verdict, state(unseen, "port")) == (Verdict.READY, CheckState.UNKNOWN)
    one, two = profile(process=7), profile(process=8)
    shared = look(Stock(one, two).services(), probe=True)
    assert shared.verdict is Verdict.NOT_READY
    assert "2 processes share port" in detail(shared, "port")
    assert "(pids 7, 8)" in detail(shared, "port")
    alone = look(Stock(one).services(), probe=True)
    assert (alone.verdict, state(alone, "port")) == (Verdict.READY, CheckState.OK)
    silent = look(Stock().services(), probe=True)
    assert (silent.verdict, state(silent, "port")) == (Verdict.READY, CheckState.UNKNOWN)


def test_no_profile_is_read_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPorts, "look", lambda: LocalPorts(frozenset(), None))
    readers: list[threading.Thread] = []
    original = probing.recorded_process

    def recorded_process(space: XSpace) -> int | None:
        readers.append(threading.current_thread())
        return original(space)

    monkeypatch.setattr(probing, "recorded_process", recorded_process)
    found = look(Stock(profile(process=7)).services(), probe=True)
    assert state(found, "port") is CheckState.OK
    # The probe's own, and those of three further connections.
    assert len(readers) == 4
    assert threading.current_thread() not in readers


def test_who_listens_on_the_very_address_is_reached_before_who_listens_on_all() -> None:
    ports = LocalPorts(
        frozenset({"127.0.0.1", "10.0.0.5"}),
        {
            1: frozenset({("127.0.0.1", 11), ("0.0.0.0", 12)}),
            2: frozenset({("127.0.0.1", 11), ("10.0.0.5", 12)}),
            3: frozenset({("::", 11), ("::", 12)}),
        },
    )
    assert [ports.of(["127.0.0.1"], port) for port in (1, 2, 3, 4)] == [{11}, {11}, {11, 12}, None]
    assert ports.of(["10.0.0.5"], 1) == {12}
    assert ports.of(["10.9.9.9"], 1) is None


def test_a_probe_captures_once_and_tells_its_size() -> None:
    stock = Stock()
    found = look(stock.services(), probe=True)
    assert (found.verdict, stock.profiles) == (Verdict.READY, 1)
    assert state(found, "probe") is CheckState.OK


@pytest.mark.parametrize(
    ("stock", "verdict", "check", "words"),
    [
        (Stock(busy=True), Verdict.BUSY, "busy", "another capture runs"),
        (Stock(b"\x38\x01"), Verdict.READY, "probe", "no event"),
        (Stock(b"\xff\xff"), Verdict.NOT_READY, "probe", "no profile"),
    ],
)
def test_a_probe_finds_what_only_a_capture_can(
    stock: Stock, verdict: Verdict, check: str, words: str
) -> None:
    found = look(stock.services(), probe=True)
    assert found.verdict is verdict
    assert words in detail(found, check)


def test_a_grpc_server_without_a_profiler_is_named() -> None:
    found = look({"some.Service": {}})
    assert (found.verdict, str(found.kind)) == (Verdict.NOT_READY, "gRPC without a profiler")
    assert "jax.profiler.start_server" in detail(found, "service")


class FakeAgent:
    """Describes itself as it is told to."""

    def __init__(self, described: own.DescribeResponse) -> None:
        self.described = described

    async def ping(self, body: bytes, context: object) -> bytes:
        import time

        now = time.time_ns() + 2 * 10**9
        return own.ClockPingResponse(received_wall_ns=now, sent_wall_ns=now).SerializeToString()

    async def describe(self, body: bytes, context: object) -> bytes:
        return self.described.SerializeToString()

    def services(self) -> dict[str, dict[str, Any]]:
        unary = grpc.unary_unary_rpc_method_handler
        return {
            methods.AGENT_SERVICE: {
                "ClockPing": unary(self.ping),
                "Describe": unary(self.describe),
            }
        }


def described(**more: Any) -> own.DescribeResponse:
    response = own.DescribeResponse(spool_free_bytes=1 << 40, **more)
    response.limits.spool_bytes = 1 << 30
    return response


def test_an_agent_tells_its_clock_and_its_processes() -> None:
    response = described()
    response.targets.add(address="localhost:9999")
    found = look(FakeAgent(response).services())
    assert (found.verdict, str(found.kind)) == (Verdict.READY, "podscope agent")
    assert found.clock_offset_ms is not None
    assert found.clock_error_ms is not None
    assert abs(found.clock_offset_ms - 2000) <= found.clock_error_ms
    assert state(found, "targets") is CheckState.OK


def test_an_agent_without_a_process_to_capture_is_not_ready() -> None:
    found = look(FakeAgent(described()).services())
    assert found.verdict is Verdict.NOT_READY
    assert "--target" in detail(found, "targets")


def test_an_agent_some_of_whose_processes_are_gone_is_ready_with_a_warning() -> None:
    response = described()
    response.targets.add(address="localhost:1")
    lost = own.TargetDescription.STATE_UNREACHABLE
    response.targets.add(address="localhost:2", state=lost, detail="refused")
    found = look(FakeAgent(response).services())
    assert found.verdict is Verdict.READY
    assert "1 of 2 processes cannot be captured; localhost:2: refused" in detail(found, "targets")


def test_a_busy_agent_and_a_full_disk_are_told() -> None:
    response = described(is_busy=True)
    response.spool_free_bytes = 1000
    response.targets.add(address="localhost:1")
    found = look(FakeAgent(response).services())
    assert found.verdict is Verdict.BUSY
    assert state(found, "disk") is CheckState.WARNING


def test_an_agent_that_would_refuse_a_capture_is_not_ready_busy_or_not() -> None:
    for is_busy in (False, True):
        response = described(is_busy=is_busy, refusal="90 MiB of disk are free")
        response.targets.add(address="localhost:1")
        found = look(FakeAgent(response).services())
        assert found.verdict is Verdict.NOT_READY
        assert "would refuse a capture: 90 MiB of disk are free" in detail(found, "budget")


def test_where_nothing_listens_or_nothing_resolves_the_first_step_that_fails_is_the_last() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = look_at(f"127.0.0.1:{probe.getsockname()[1]}")
    assert [check.name for check in closed.checks] == ["dns", "tcp"]
    assert "nothing listens" in detail(closed, "tcp")
    lost = look_at("no-such-name.invalid:9999")
    assert [check.name for check in lost.checks] == ["dns"]
    assert lost.verdict is Verdict.NOT_READY


def test_a_server_that_is_no_grpc_is_named() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        found = look_at(f"127.0.0.1:{server.getsockname()[1]}")
    assert "speaks no gRPC" in detail(found, "grpc")


_SHARED = """
import grpc, sys, time
from concurrent import futures
server = grpc.server(futures.ThreadPoolExecutor(2), options=(("grpc.so_reuseport", 1),))
unary = grpc.unary_unary_rpc_method_handler
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
    "tensorflow.ProfilerService", {
        "Terminate": unary(lambda body, context: b""),
        "Profile": unary(lambda body, context: bytes([0x38, 1])),
    }),))
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
print("ready", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def sharing(port: int) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SHARED, str(port)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="ports are shared by Linux alone")
def test_two_processes_on_one_port_are_found() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with sharing(port):
        assert look_at(f"127.0.0.1:{port}").verdict is Verdict.READY
        with sharing(port):
            found = look_at(f"127.0.0.1:{port}")
    assert found.verdict is Verdict.NOT_READY
    assert f"2 processes share port {port}" in detail(found, "port")


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "podscope", "doctor", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_command_tells_what_to_mend_and_exits_by_it(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        plain = doctor(address, "--logdir", str(tmp_path / "runs"))
        found = doctor(address, "--json")
    assert plain.returncode == found.returncode == 1
    assert "nothing listens" in plain.stdout
    assert "can be written" in plain.stdout
    assert "0 of 1 targets ready" in plain.stdout
    (target,) = json.loads(found.stdout)["targets"]
    assert (target["target"], target["verdict"]) == (address, "not_ready")
    assert doctor("nope").returncode == 2


def test_the_service_looks_from_where_it_runs(tmp_path: Path) -> None:
    settings = CollectorSettings(data_dir=tmp_path, storage_root=str(tmp_path / "profiles"))
    database = Database(f"sqlite:///{tmp_path / 'a.db'}")
    schema.upgrade(database)

    class Nobody:
        def send_task(self, name: str, **more: object) -> None:
            raise AssertionError

    app = create_app(settings, runtime=Runtime(settings, database), sender=Nobody())
    with warnings.catch_warnings():
        # It asks for a successor of httpx that is not published everywhere yet.
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

    with TestClient(app, base_url="http://127.0.0.1") as client:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
            answer = client.post("/api/v1/doctor", json={"targets": address})
        assert answer.status_code == 200
        assert answer.json()["targets"][0]["verdict"] == "not_ready"
        assert answer.json()["storage"]["state"] == "ok"
        wrong = client.post("/api/v1/doctor", json={"targets": "nope"})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "bad_request")
    database.dispose()
