"""The daemon as a process, in front of profiler servers of the tests' own."""

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace

Answer = Callable[[wire.ProfileRequest, grpc.ServicerContext], bytes]
OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", methods.MAX_MESSAGE_BYTES),
)


def xspace(name: str = "/host:CPU", events: int = 2) -> bytes:
    space = XSpace(hostnames=["h0"])
    line = space.planes.add(name=name).lines.add(name="main")
    for index in range(events):
        line.events.add(offset_ps=index, duration_ps=1)
    return space.SerializeToString()


def answer_with(space: bytes) -> Answer:
    return lambda _request, _context: wire.ProfileResponse(xspace=space).SerializeToString()


@contextlib.contextmanager
def profiler(answer: Answer, **others: Callable[..., bytes]) -> Iterator[str]:
    """Serve Profile with `answer`, and other methods; yield the address."""

    def profile(body: bytes, context: grpc.ServicerContext) -> bytes:
        return answer(wire.ProfileRequest.FromString(body), context)

    options = (
        ("grpc.so_reuseport", 0),
        ("grpc.max_send_message_length", methods.MAX_MESSAGE_BYTES),
    )
    server = grpc.server(futures.ThreadPoolExecutor(4), options=options)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(method)
        for name, method in {"Profile": profile, **others}.items()
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(methods.PROFILER_SERVICE, handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


class Agent:
    """A running `podscope agent`."""

    def __init__(self, *targets: str, folder: str | None = None, **settings: Any) -> None:
        started_with = settings.pop("popen", {})
        self.folder = tempfile.TemporaryDirectory()
        self.runtime_dir = folder or self.folder.name
        prefix = settings.pop("prefix", [])
        command = [sys.executable, "-m", "podscope", "agent", "--port", "0", "--metrics-port", "0"]
        self.process = subprocess.Popen(
            [*prefix, *command, *(["--target", ",".join(targets)] if targets else [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            **started_with,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PODSCOPE_AGENT_RUNTIME_DIR": self.runtime_dir,
                **{f"PODSCOPE_AGENT_{name.upper()}": text for name, text in settings.items()},
            },
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = line.split("profiler service on ")[1].split(",")[0]
        self.metrics = line.split("metrics on ")[1].split(",")[0]
        self.channel = grpc.insecure_channel(self.address, options=OPTIONS)

    def call(self, path: str, body: bytes, timeout: float = 120) -> bytes:
        method = self.channel.unary_unary(
            path, request_serializer=bytes, response_deserializer=bytes
        )
        result: bytes = method(body, timeout=timeout)
        return result

    def step_time(self) -> own.StepTime:
        answer = self.call(methods.AGENT_DESCRIBE, own.DescribeRequest().SerializeToString())
        return own.DescribeResponse.FromString(answer).step_time

    def profile(
        self, *, duration_ms: int = 50, emit_xspace: bool = True, start_in_s: float = 0
    ) -> wire.ProfileResponse:
        request = wire.ProfileRequest(session_id="s", emit_xspace=emit_xspace)
        request.opts.version = 1
        request.opts.duration_ms = duration_ms
        if start_in_s:
            request.opts.start_timestamp_ns = time.time_ns() + int(start_in_s * 1e9)
        body = request.SerializeToString()
        return wire.ProfileResponse.FromString(self.call(methods.PROFILE, body))

    def close(self) -> int:
        self.channel.close()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=120)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.folder.cleanup()
        return code


@contextlib.contextmanager
def agent(*targets: str, **settings: Any) -> Iterator[Agent]:
    running = Agent(*targets, **settings)
    try:
        yield running
    finally:
        assert running.close() == 0


def status(failure: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, str | None]:
    return failure.value.code(), failure.value.details()


def test_all_targets_are_captured_together_and_merged() -> None:
    together = threading.Barrier(2, timeout=60)

    def wait_for_the_other(_request: wire.ProfileRequest, _context: grpc.ServicerContext) -> bytes:
        together.wait()
        return wire.ProfileResponse(xspace=xspace()).SerializeToString()

    with profiler(wait_for_the_other) as one, profiler(wait_for_the_other) as two:
        with agent(one, two) as running:
            space = XSpace.FromString(running.profile().xspace)
            figures = httpx.get(running.metrics, trust_env=False).text
    assert [p.name.split(" ")[0] for p in space.planes] == ["/host:CPU", "/host:CPU"]
    assert len({p.name for p in space.planes}) == 2
    assert 'podscope_agent_captures_total{result="done"} 1.0' in figures


def test_a_stock_client_gets_the_xspace_as_the_file_that_it_saves() -> None:
    with profiler(answer_with(xspace())) as target, agent(target) as running:
        response = running.profile(emit_xspace=False)
    assert [(tool.name, tool.data) for tool in response.tool_data] == [("xplane.pb", xspace())]
    assert not response.empty_trace


@pytest.mark.parametrize(
    "bad", [b"\xff\xff\xff", b"\x42\x03abc", b""], ids=["response", "xspace", "nothing"]
)
def test_a_target_that_sends_garbage_or_nothing_costs_only_itself(bad: bytes) -> None:
    with profiler(answer_with(xspace())) as good, profiler(lambda *_: bad) as broken:
        with agent(good, broken) as running:
            space = XSpace.FromString(running.profile().xspace)
    assert len(space.planes) == 1
    [warning] = space.warnings
    assert broken in warning


def test_a_dead_target_is_a_warning_and_no_target_at_all_an_error() -> None:
    with profiler(answer_with(xspace())) as good, profiler(answer_with(b"")) as dead:
        pass
    with profiler(answer_with(xspace())) as good, agent(good, dead) as running:
        [warning] = XSpace.FromString(running.profile().xspace).warnings
        assert dead in warning
        assert "UNAVAILABLE" in warning
    with agent(dead) as running, pytest.raises(grpc.RpcError) as failure:
        running.profile()
    assert status(failure)[0] is grpc.StatusCode.UNAVAILABLE


def test_a_capture_while_another_runs_is_told_in_the_stock_servers_words() -> None:
    entered, release = threading.Event(), threading.Event()

    def slow(_request: wire.ProfileRequest, _context: grpc.ServicerContext) -> bytes:
        entered.set()
        release.wait(60)
        return wire.ProfileResponse(xspace=xspace()).SerializeToString()

    with profiler(slow) as target, agent(target) as running:
        with futures.ThreadPoolExecutor(1) as pool:
            first = pool.submit(running.profile)
            assert entered.wait(60)
            with pytest.raises(grpc.RpcError) as failure:
                running.profile()
            release.set()
            assert first.result().xspace == xspace()
        assert running.profile().xspace == xspace()
    assert status(failure) == (grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)


def test_a_busy_target_is_passed_on_as_busy() -> None:
    def busy(_request: wire.ProfileRequest, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)

    with profiler(busy) as target, agent(target) as running:
        with pytest.raises(grpc.RpcError) as failure:
            running.profile()
    assert status(failure) == (grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)


def test_a_client_that_hangs_up_before_a_delayed_start_frees_the_agent() -> None:
    with profiler(answer_with(xspace())) as target, agent(target) as running:
        request = wire.ProfileRequest(session_id="s", emit_xspace=True)
        request.opts.start_timestamp_ns = time.time_ns() + 600 * 10**9
        method = running.channel.unary_unary(
            methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
        )
        waiting = [method.future(request.SerializeToString(), timeout=600)]

        def is_busy() -> bool:
            try:
                running.profile()
            except grpc.RpcError:
                return True
            if waiting[-1].done():
                # It met the capture with which this looks: once more.
                waiting.append(method.future(request.SerializeToString(), timeout=600))
            return False

        wait_until(is_busy)
        waiting[-1].cancel()  # type: ignore[no-untyped-call]  # the stubs leave it out
        wait_until(lambda: not is_busy())


def test_a_target_that_hangs_beyond_the_deadline_costs_only_itself() -> None:
    release = threading.Event()

    def hang(_request: wire.ProfileRequest, _context: grpc.ServicerContext) -> bytes:
        release.wait(120)
        return b""

    with profiler(answer_with(xspace())) as good, profiler(hang) as hanging:
        with agent(good, hanging) as running:
            request = wire.ProfileRequest(emit_xspace=True)
            answer = running.call(methods.PROFILE, request.SerializeToString(), timeout=10)
            release.set()
    space = XSpace.FromString(wire.ProfileResponse.FromString(answer).xspace)
    [warning] = space.warnings
    assert hanging in warning
    assert "DEADLINE_EXCEEDED" in warning


def test_an_empty_trace_is_said_to_be_empty() -> None:
    with profiler(answer_with(xspace(events=0))) as target, agent(target) as running:
        assert running.profile().empty_trace
        assert not running.profile(emit_xspace=False).tool_data


def test_health_is_served_and_what_a_host_cannot_do_is_refused() -> None:
    with profiler(answer_with(xspace())) as target, agent(target) as running:
        assert running.call("/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
        assert running.call("/grpc.health.v1.Health/Check", b"\x0a\x00") == b"\x08\x01"
        for path, body in [
            (methods.NEW_SESSION, b""),
            (methods.ENUM_SESSIONS, b""),
            (methods.GET_SESSION_TOOL_DATA, b""),
        ]:
            with pytest.raises(grpc.RpcError) as failure:
                running.call(path, body)
            assert status(failure)[0] is grpc.StatusCode.UNIMPLEMENTED


def test_monitor_of_a_host_without_devices_tells_its_cpu_and_memory() -> None:
    with agent() as running:
        for level in (1, 2):
            request = wire.MonitorRequest(duration_ms=100, monitoring_level=level)
            answer = running.call(methods.MONITOR, request.SerializeToString())
            lines = wire.MonitorResponse.FromString(answer).data.splitlines()
            names = [line.partition(":")[0] for line in lines]
            assert {"Host CPU utilization", "Host memory used"} <= set(names)


def test_a_port_in_use_is_one_clear_line() -> None:
    with profiler(answer_with(b"")) as taken:
        port = taken.rpartition(":")[2]
        command = ["agent", "--target", "localhost:1", "--port", port, "--metrics-port", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "podscope", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"podscope: port {port} is in use; choose another with --port"
    )


def register(folder: str, port: int) -> "subprocess.Popen[str]":
    """A process that registers a profiler port and lives until it is killed."""
    script = (
        "import sys, time\n"
        "from podscope.profiler import server, steps\n"
        "server.register(int(sys.argv[1]), 'jax', {'role': 'trainer'})\n"
        "print('ready', flush=True)\n"
        "for _ in steps(range(6000)):\n"
        "    time.sleep(0.01)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, str(port)],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PODSCOPE_RUNTIME_DIR": folder,
            "RANK": "3",
        },
    )


def targets_of(running: Agent) -> list[dict[str, object]]:
    url = running.metrics.replace("/metrics", "/targets")
    items: list[dict[str, object]] = httpx.get(url, trust_env=False).json()["items"]
    return items


def wait_until(what: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_that_registers_is_captured_and_forgotten_when_it_is_killed() -> None:
    with profiler(answer_with(xspace())) as target, agent() as running:
        assert targets_of(running) == []
        with pytest.raises(grpc.RpcError) as failure:
            running.profile()
        assert "no process of this host is known" in str(status(failure)[1])
        port = int(target.rpartition(":")[2])
        process = register(running.folder.name, port)
        wait_until(lambda: bool(targets_of(running)))
        (known,) = targets_of(running)
        assert (known["source"], known["framework"], known["pid"]) == (
            "registered",
            "jax",
            process.pid,
        )
        assert known["labels"] == {"role": "trainer", "rank": "3"}
        wait_until(lambda: running.step_time().source == "process")
        assert running.step_time().seconds >= 0.01
        assert running.profile().xspace == xspace()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        wait_until(lambda: targets_of(running) == [])


def test_a_process_finds_an_agent_that_starts_after_it() -> None:
    with profiler(answer_with(xspace())) as target:
        first = Agent(target)
        folder = first.folder.name
        process = register(folder, int(target.rpartition(":")[2]))
        wait_until(lambda: any(t["source"] == "registered" for t in targets_of(first)))
        # One process, known by its address and by its word.
        assert len(targets_of(first)) == 1
        first.process.kill()
        first.process.wait()
        first.channel.close()
        assert first.process.stdout is not None
        first.process.stdout.close()
        second = Agent(folder=folder)
        wait_until(lambda: bool(targets_of(second)))
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        assert second.close() == 0
        first.folder.cleanup()


def test_what_cannot_be_captured_says_why() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    other = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with profiler(answer_with(xspace())) as dead:
        pass
    with agent(f"127.0.0.1:{other}", dead) as running:
        found = {str(item["address"]): item for item in targets_of(running)}
        listed = subprocess.run(
            [sys.executable, "-m", "podscope", "agent", "targets", "--agent", running.address],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=30,
        )
    server.stop(None).wait()
    assert found[f"127.0.0.1:{other}"]["state"] == "incompatible"
    assert found[dead]["state"] == "unreachable"
    assert found[dead]["detail"]
    assert listed.returncode == 0
    assert "incompatible" in listed.stdout


def test_no_agent_at_an_address_is_one_clear_line() -> None:
    with profiler(answer_with(b"")) as stock:
        answers = [
            subprocess.run(
                [sys.executable, "-m", "podscope", "agent", "targets", "--agent", address],
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                timeout=30,
            )
            for address in ("127.0.0.1:1", stock)
        ]
    assert [answer.returncode for answer in answers] == [6, 6]
    assert all("podscope agent" in a.stderr and a.stderr.count("\n") == 1 for a in answers)


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[]\n",
        b'{"port": 0}\n',
        b'{"port": true}\n',
        b'{"port": 1, "host": "a b"}\n',
        b"x" * 20_000,
        b"",
    ],
)
def test_a_stranger_on_the_socket_registers_nothing(line: bytes) -> None:
    with agent() as running:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(f"{running.folder.name}/agent.sock")
            stranger.sendall(line)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(10)
            with contextlib.suppress(ConnectionError):
                assert stranger.recv(10) == b""
        assert targets_of(running) == []


def test_two_agents_do_not_share_a_socket() -> None:
    with agent() as running:
        second = subprocess.run(
            [
                sys.executable,
                "-m",
                "podscope",
                "agent",
                "--port",
                "0",
                "--metrics-port",
                "0",
                "--runtime-dir",
                running.folder.name,
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=30,
        )
    assert second.returncode == 2
    assert "another agent listens" in second.stderr


def padded(name: str, size: int) -> bytes:
    """An XSpace of about this size."""
    space = XSpace.FromString(xspace(name))
    space.planes[0].lines[0].name = "x" * size
    return space.SerializeToString()


def fetched(running: Agent, capture_id: str) -> bytes:
    method = running.channel.unary_stream(
        methods.AGENT_FETCH,
        request_serializer=bytes,
        response_deserializer=own.FetchResponse.FromString,
    )
    request = own.FetchRequest(capture_id=capture_id).SerializeToString()
    return b"".join(piece.piece for piece in method(request, timeout=120))


def profiled(running: Agent, **more: Any) -> tuple[wire.ProfileResponse, list[tuple[str, str]]]:
    """A capture's answer and its trailing metadata."""
    request = wire.ProfileRequest(session_id="s", host_name="h:1", **more)
    method = running.channel.unary_unary(
        methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
    )
    answer, call = method.with_call(request.SerializeToString(), timeout=120)
    metadata = [(str(key), str(text)) for key, text in call.trailing_metadata()]
    return wire.ProfileResponse.FromString(answer), metadata


def test_a_profile_too_large_for_one_message_is_split_by_process_and_nothing_is_lost() -> None:
    spaces = [padded(f"/host:{name}", 40_000) for name in "abc"]
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(profiler(answer_with(space))) for space in spaces]
        running = stack.enter_context(agent(*targets, max_message_bytes="100000"))
        response, metadata = profiled(running)
        (kept,) = (text for key, text in metadata if key == "podscope-kept")
        third = fetched(running, kept)
        as_xspace, _ = profiled(running, emit_xspace=True)
    first, second = response.tool_data
    assert first.name == "xplane.pb"
    assert second.name.startswith("process-")
    assert second.name.endswith(".xplane.pb")
    parts = [XSpace.FromString(part) for part in (first.data, second.data, third)]
    assert [part.planes[0].name for part in parts] == ["/host:a", "/host:b", "/host:c"]
    assert [len(part.planes[0].lines[0].events) for part in parts] == [2, 2, 2]
    assert kept in parts[0].warnings[-1]
    assert XSpace.FromString(as_xspace.xspace).planes[0].name == "/host:a"
    assert [tool.name for tool in as_xspace.tool_data] == [second.name]


def test_files_of_a_profile_that_is_too_large_are_written_by_process(tmp_path: Path) -> None:
    spaces = [padded(f"/host:{name}", 40_000) for name in "abc"]
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(profiler(answer_with(space))) for space in spaces]
        settings = {"max_message_bytes": "100000", "allow_root": str(tmp_path)}
        running = stack.enter_context(agent(*targets, **settings))
        response, metadata = profiled(running, repository_root=str(tmp_path))
    assert response == wire.ProfileResponse()
    files = [Path(text) for key, text in metadata if key == "podscope-path"]
    assert sorted(files) == sorted((tmp_path / "s").iterdir())
    assert files[0].name == "h_1.xplane.pb"
    assert all(file.name.startswith("h_1.process-") for file in files[1:])
    names = [XSpace.FromString(file.read_bytes()).planes[0].name for file in files]
    assert names == ["/host:a", "/host:b", "/host:c"]


def test_a_profile_that_no_answer_can_hold_is_refused_with_the_way_to_it() -> None:
    space = padded("/host:a", 40_000)
    with profiler(answer_with(space)) as target:
        with agent(target, max_message_bytes="20000") as running:
            with pytest.raises(grpc.RpcError) as failure:
                running.profile()
            code, details = status(failure)
            kept = str(details).split("'")[1]
            assert fetched(running, kept) == space
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.slow
def test_three_hundred_megabytes_pass_through() -> None:
    space = padded("/host:CPU", 300_000_000)
    with profiler(answer_with(space)) as target, agent(target) as running:
        request = wire.ProfileRequest(emit_xspace=True).SerializeToString()
        answer = wire.ProfileResponse.FromString(running.call(methods.PROFILE, request, 120))
        assert answer.xspace == space
        assert running.profile().xspace == space


def test_two_processes_on_one_port_are_reported() -> None:
    """Stock servers set SO_REUSEPORT, and each capture reaches one of them at random."""
    script = (
        "import socket, sys, time\n"
        "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "s.bind(('127.0.0.1', int(sys.argv[1])))\n"
        "s.listen(); print('ready', flush=True); time.sleep(60)\n"
    )
    # A server of this process would be told from the other one's backlog only by chance.
    with socket.socket() as first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind(("127.0.0.1", 0))
        first.listen()
        port = first.getsockname()[1]
        second = subprocess.Popen(
            [sys.executable, "-c", script, str(port)], stdout=subprocess.PIPE, text=True
        )
        assert second.stdout is not None
        try:
            assert second.stdout.readline() == "ready\n"
            with profiler(answer_with(xspace())) as good:
                with agent(f"127.0.0.1:{port}", good) as running:
                    shared, fine = targets_of(running)
                    request = wire.ProfileRequest(emit_xspace=True).SerializeToString()
                    answer = running.call(methods.PROFILE, request, timeout=10)
        finally:
            second.kill()
            second.wait()
            second.stdout.close()
    pids = ", ".join(str(pid) for pid in sorted([os.getpid(), second.pid]))
    told = f"127.0.0.1:{port}: processes {pids} share this port"
    assert told in str(shared["detail"])
    assert "share this port" not in str(fine["detail"])
    space = XSpace.FromString(wire.ProfileResponse.FromString(answer).xspace)
    assert any(told in warning for warning in space.warnings)


class Continuous:
    """A profiler server in continuous mode, as a stock one."""

    def __init__(self, space: bytes) -> None:
        self.space = space
        self.is_running = False

    def start(self, _body: bytes, context: grpc.ServicerContext) -> bytes:
        if self.is_running:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "A profiling session is already running.")
        self.is_running = True
        return b""

    def snapshot(self, _body: bytes, context: grpc.ServicerContext) -> bytes:
        self._require(context)
        return wire.ProfileResponse(xspace=self.space).SerializeToString()

    def stop(self, _body: bytes, context: grpc.ServicerContext) -> bytes:
        self._require(context)
        self.is_running = False
        return b""

    def _require(self, context: grpc.ServicerContext) -> None:
        if not self.is_running:
            text = "No continuous profiling session found."
            context.abort(grpc.StatusCode.NOT_FOUND, text)


@contextlib.contextmanager
def continuous(space: bytes) -> Iterator[tuple[Continuous, str]]:
    target = Continuous(space)
    methods_of = {
        "StartContinuousProfiling": target.start,
        "GetSnapshot": target.snapshot,
        "StopContinuousProfiling": target.stop,
    }
    with profiler(answer_with(space), **methods_of) as address:
        yield target, address


def failure_of(running: Agent, path: str) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.RpcError) as failure:
        running.call(path, b"")
    return status(failure)


def test_continuous_profiling_is_relayed_and_a_target_without_it_costs_only_itself() -> None:
    none_found = (grpc.StatusCode.NOT_FOUND, "No continuous profiling session found.")
    with contextlib.ExitStack() as stack:
        one, first = stack.enter_context(continuous(xspace("/host:CPU")))
        two, second = stack.enter_context(continuous(xspace("/device:TPU:0", events=5)))
        old = stack.enter_context(profiler(answer_with(xspace())))
        running = stack.enter_context(agent(first, old, second))
        for path in (methods.GET_SNAPSHOT, methods.STOP_CONTINUOUS_PROFILING):
            assert failure_of(running, path) == none_found
        assert running.call(methods.START_CONTINUOUS_PROFILING, b"") == b""
        assert one.is_running
        assert two.is_running
        assert failure_of(running, methods.START_CONTINUOUS_PROFILING) == (
            grpc.StatusCode.ALREADY_EXISTS,
            "A profiling session is already running.",
        )
        answer = wire.ProfileResponse.FromString(running.call(methods.GET_SNAPSHOT, b""))
        space = XSpace.FromString(answer.xspace)
        assert [p.name for p in space.planes] == ["/host:CPU", "/device:TPU:0"]
        [warning] = space.warnings
        assert old in warning
        assert "UNIMPLEMENTED" in warning
        assert running.call(methods.STOP_CONTINUOUS_PROFILING, b"") == b""
        assert not one.is_running
        assert failure_of(running, methods.GET_SNAPSHOT) == none_found


def test_an_agent_that_stops_leaves_no_target_in_continuous_mode() -> None:
    with continuous(xspace()) as (target, address):
        with agent(address) as running:
            running.call(methods.START_CONTINUOUS_PROFILING, b"")
            assert target.is_running
        assert not target.is_running


def test_continuous_profiling_without_any_target_that_can_is_unimplemented() -> None:
    with profiler(answer_with(xspace())) as old, agent(old) as running:
        code, _ = failure_of(running, methods.START_CONTINUOUS_PROFILING)
    assert code is grpc.StatusCode.UNIMPLEMENTED


def test_who_watches_the_health_is_told_of_the_end() -> None:
    with profiler(answer_with(xspace())) as target:
        running = Agent(target)
        watch = running.channel.unary_stream(
            "/grpc.health.v1.Health/Watch", request_serializer=bytes, response_deserializer=bytes
        )
        known = watch(b"", timeout=30)
        assert next(iter(known)) == b"\x08\x01"
        unknown = watch(b"\x0a\x01x", timeout=30)
        assert next(iter(unknown)) == b"\x08\x03"
        running.process.send_signal(signal.SIGTERM)
        assert list(known) == [b"\x08\x02"]
        assert list(unknown) == []
        assert running.close() == 0


def slow_target(entered: threading.Event, release: threading.Event) -> Answer:
    def slow(_request: wire.ProfileRequest, _context: grpc.ServicerContext) -> bytes:
        entered.set()
        release.wait(60)
        return wire.ProfileResponse(xspace=xspace()).SerializeToString()

    return slow


@pytest.mark.parametrize("grace_s", ["20", "0.2"])
def test_sigterm_lets_a_capture_end_within_the_grace_time_and_else_tells_its_client(
    grace_s: str,
) -> None:
    entered, release = threading.Event(), threading.Event()
    with profiler(slow_target(entered, release)) as target:
        running = Agent(target, grace_s=grace_s)
        with futures.ThreadPoolExecutor(1) as pool:
            capture = pool.submit(running.profile)
            assert entered.wait(60)
            running.process.send_signal(signal.SIGTERM)
            if grace_s == "20":
                time.sleep(0.3)
                release.set()
                assert capture.result().xspace == xspace()
            else:
                with pytest.raises(grpc.RpcError) as failure:
                    capture.result()
                release.set()
                assert status(failure) == (
                    grpc.StatusCode.UNAVAILABLE,
                    "the agent is stopping; capture again when it is back",
                )
        assert running.close() == 0
        with agent(target) as again:
            assert again.profile().xspace == xspace()


def test_a_client_that_hangs_up_in_the_window_frees_the_agent_and_the_target() -> None:
    entered, cancelled = threading.Event(), threading.Event()
    slow = [True]

    def answer(_request: wire.ProfileRequest, context: grpc.ServicerContext) -> bytes:
        context.add_callback(cancelled.set)
        entered.set()
        if slow.pop() if slow else False:
            cancelled.wait(60)
        return wire.ProfileResponse(xspace=xspace()).SerializeToString()

    with profiler(answer) as target, agent(target) as running:
        method = running.channel.unary_unary(
            methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
        )
        request = wire.ProfileRequest(emit_xspace=True).SerializeToString()
        call = method.future(request, timeout=60)
        assert entered.wait(60)
        call.cancel()  # type: ignore[no-untyped-call]  # the stubs leave it out
        assert cancelled.wait(60)

        def works() -> bool:
            with contextlib.suppress(grpc.RpcError):
                return running.profile().xspace == xspace()
            return False

        wait_until(works)


KILLED_TARGET = """
import sys, time
from concurrent import futures
import grpc
def profile(body, context):
    print("entered", flush=True)
    time.sleep(60)
server = grpc.server(futures.ThreadPoolExecutor(1))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
    "tensorflow.ProfilerService", {"Profile": grpc.unary_unary_rpc_method_handler(profile)}),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
time.sleep(60)
"""


def test_a_target_that_is_killed_in_the_window_costs_only_itself() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_TARGET], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    doomed = f"127.0.0.1:{int(process.stdout.readline())}"
    with profiler(answer_with(xspace())) as good, agent(good, doomed) as running:
        with futures.ThreadPoolExecutor(1) as pool:
            capture = pool.submit(running.profile)
            assert process.stdout.readline() == "entered\n"
            process.kill()
            process.wait()
            [warning] = XSpace.FromString(capture.result().xspace).warnings
        process.stdout.close()
        assert doomed in warning
        assert "UNAVAILABLE" in warning
        assert len(XSpace.FromString(running.profile().xspace).planes) == 1


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))


def test_a_full_disk_fails_the_capture_and_not_the_next_one(tmp_path: Path) -> None:
    spaces = [padded("/host:CPU", 100_000), padded("/host:CPU", 1000)]

    def shrinking(_request: wire.ProfileRequest, _context: grpc.ServicerContext) -> bytes:
        space = spaces.pop(0) if len(spaces) > 1 else spaces[0]
        return wire.ProfileResponse(xspace=space).SerializeToString()

    def captured(running: Agent, name: str) -> own.CaptureResponse:
        request = wire.ProfileRequest(session_id="s", host_name="h:1").SerializeToString()
        body = own.CaptureRequest(capture_id=name, profile_request=request, wait=True)
        answer = running.call(methods.AGENT_CAPTURE, body.SerializeToString())
        return own.CaptureResponse.FromString(answer)

    settings = {"popen": {"preexec_fn": limit_file_size}, "allow_root": str(tmp_path)}
    with profiler(shrinking) as target, agent(target, **settings) as running:
        failed = captured(running, "a")
        assert failed.state == own.CaptureResponse.STATE_FAILED
        assert failed.grpc_code == "RESOURCE_EXHAUSTED"
        assert "cannot keep the profile" in failed.message
        assert captured(running, "b").state == own.CaptureResponse.STATE_DONE
        assert fetched(running, "b") == spaces[0]
        spaces.insert(0, padded("/host:CPU", 100_000))
        with pytest.raises(grpc.RpcError) as failure:
            profiled(running, repository_root=str(tmp_path))
        assert status(failure)[0] is grpc.StatusCode.INTERNAL
        assert "cannot write" in str(status(failure)[1])
        assert list((tmp_path / "s").iterdir()) == []
        profiled(running, repository_root=str(tmp_path))
        assert (tmp_path / "s" / "h_1.xplane.pb").read_bytes() == spaces[0]


# The interpreter may be in a folder that nobody else may read: that one right is kept.
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
AS_NOBODY += ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]


# Everything is read-only but the folder given.
READ_ONLY = """
mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"
"""


def cannot_be_read_only() -> bool:
    """Only root can make a name space of mounts, and not in every container."""
    if os.getuid() != 0 or shutil.which("setpriv") is None or shutil.which("unshare") is None:
        return True
    with tempfile.TemporaryDirectory() as name:
        command = ["unshare", "--mount", "sh", "-c", READ_ONLY, name, "true"]
        return subprocess.run(command, capture_output=True, check=False).returncode != 0


@pytest.mark.skipif(cannot_be_read_only(), reason="this user may not mount")
def test_it_runs_as_nobody_on_a_read_only_system_with_two_folders_to_write_to() -> None:
    with tempfile.TemporaryDirectory() as name, profiler(answer_with(xspace())) as target:
        Path(name).chmod(0o755)
        runtime, spool = Path(name, "run"), Path(name, "spool")
        for folder in (runtime, spool):
            folder.mkdir()
            os.chown(folder, 65534, 65534)
        settings: dict[str, Any] = {
            "folder": str(runtime),
            "spool_dir": str(spool),
            "prefix": ["unshare", "--mount", "sh", "-c", READ_ONLY, name, *AS_NOBODY],
            "popen": {"cwd": "/"},
        }
        with agent(target, **settings) as running:
            assert running.profile().xspace == xspace()
            assert (runtime / "agent.sock").is_socket()
            body = own.CaptureRequest(capture_id="a", wait=True).SerializeToString()
            running.call(methods.AGENT_CAPTURE, body)
            assert fetched(running, "a") == xspace()
            process = Path(f"/proc/{running.process.pid}")
            owner = process.stat().st_uid
            mounts = (process / "mounts").read_text()
    assert owner == 65534
    [root] = [line.split()[3] for line in mounts.splitlines() if line.split()[1] == "/"]
    assert "ro" in root.split(",")


def agent_fails(*options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "podscope", "agent", *options],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return done.returncode, done.stderr


def test_calls_without_the_token_are_denied_but_health_checks(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    bearer = (("authorization", "Bearer s3cret"),)
    with profiler(answer_with(xspace())) as target:
        with agent(target, token_file=str(secret)) as running:
            assert running.call("/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
            request = wire.ProfileRequest(emit_xspace=True).SerializeToString()
            method = running.channel.unary_unary(
                methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
            )
            for metadata in [(), (("authorization", "Bearer wrong"),)]:
                with pytest.raises(grpc.RpcError) as failure:
                    method(request, timeout=120, metadata=metadata)
                assert status(failure)[0] is grpc.StatusCode.UNAUTHENTICATED
            with pytest.raises(grpc.RpcError) as failure:
                fetched(running, "x")
            assert status(failure)[0] is grpc.StatusCode.UNAUTHENTICATED
            answer = method(request, timeout=120, metadata=bearer)
            assert wire.ProfileResponse.FromString(answer).xspace == xspace()
            code, text = agent_fails("targets", "--agent", running.address)
            assert (code, text.count("\n")) == (7, 1)
            assert "--token-file" in text
            code, _ = agent_fails(
                "targets", "--agent", running.address, "--token-file", str(secret)
            )
            assert code == 0


def test_a_token_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("absent", "empty", "binary", "."):
        path = tmp_path / name
        code, text = agent_fails("--token-file", str(path), "--port", "0", "--metrics-port", "0")
        assert (code, text.count("\n")) == (3, 1), text
        assert str(path) in text


@pytest.mark.parametrize(
    "options",
    [["--no-such"], ["--port", "99999"], ["--target", "nonsense"], ["--label", "x"], ["--port"]],
)
def test_wrong_options_are_told_with_exit_code_2(options: list[str]) -> None:
    code, text = agent_fails(*options, "--metrics-port", "0")
    assert code == 2
    assert "Traceback" not in text
