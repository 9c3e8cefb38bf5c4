"""The daemon as a process, in front of profiler servers of the tests' own."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import httpx
import pytest

from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace

Answer = Callable[[wire.ProfileRequest, grpc.ServicerContext], bytes]
OPTIONS = (("grpc.enable_http_proxy", 0),)


def xspace(name: str = "/host:CPU", events: int = 2) -> bytes:
    space = XSpace(hostnames=["h0"])
    line = space.planes.add(name=name).lines.add(name="main")
    for index in range(events):
        line.events.add(offset_ps=index, duration_ps=1)
    return space.SerializeToString()


def answer_with(space: bytes) -> Answer:
    return lambda _request, _context: wire.ProfileResponse(xspace=space).SerializeToString()


@contextlib.contextmanager
def profiler(answer: Answer) -> Iterator[str]:
    """Serve Profile with `answer`; yield the address."""

    def profile(body: bytes, context: grpc.ServicerContext) -> bytes:
        return answer(wire.ProfileRequest.FromString(body), context)

    server = grpc.server(futures.ThreadPoolExecutor(4), options=(("grpc.so_reuseport", 0),))
    handlers = {"Profile": grpc.unary_unary_rpc_method_handler(profile)}
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

    def __init__(self, *targets: str) -> None:
        command = [sys.executable, "-m", "podscope", "agent", "--port", "0", "--metrics-port", "0"]
        self.process = subprocess.Popen(
            [*command, "--target", ",".join(targets)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = line.split("profiler service on ")[1].split(",")[0]
        self.metrics = line.split("metrics on ")[1].split(",")[0]
        self.channel = grpc.insecure_channel(self.address, options=OPTIONS)

    def call(self, path: str, body: bytes, timeout: float = 20) -> bytes:
        method = self.channel.unary_unary(
            path, request_serializer=bytes, response_deserializer=bytes
        )
        result: bytes = method(body, timeout=timeout)
        return result

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
        code = self.process.wait(timeout=40)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def agent(*targets: str) -> Iterator[Agent]:
    running = Agent(*targets)
    try:
        yield running
    finally:
        assert running.close() == 0


def status(failure: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, str | None]:
    return failure.value.code(), failure.value.details()


def test_all_targets_are_captured_together_and_merged() -> None:
    together = threading.Barrier(2, timeout=10)

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


@pytest.mark.parametrize("bad", [b"\xff\xff\xff", b"\x42\x03abc"], ids=["response", "xspace"])
def test_a_target_that_sends_garbage_costs_only_itself(bad: bytes) -> None:
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
        release.wait(10)
        return wire.ProfileResponse(xspace=xspace()).SerializeToString()

    with profiler(slow) as target, agent(target) as running:
        with futures.ThreadPoolExecutor(1) as pool:
            first = pool.submit(running.profile)
            assert entered.wait(10)
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
        request.opts.start_timestamp_ns = time.time_ns() + 30 * 10**9
        method = running.channel.unary_unary(
            methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
        )
        call = method.future(request.SerializeToString(), timeout=60)
        time.sleep(0.5)
        with pytest.raises(grpc.RpcError):
            running.profile()
        call.cancel()  # type: ignore[no-untyped-call]  # the stubs leave it out
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            with contextlib.suppress(grpc.RpcError):
                assert running.profile().xspace == xspace()
                return
            time.sleep(0.1)
    pytest.fail("the agent stayed busy")


def test_a_target_that_hangs_beyond_the_deadline_costs_only_itself() -> None:
    release = threading.Event()

    def hang(_request: wire.ProfileRequest, _context: grpc.ServicerContext) -> bytes:
        release.wait(30)
        return b""

    with profiler(answer_with(xspace())) as good, profiler(hang) as hanging:
        with agent(good, hanging) as running:
            request = wire.ProfileRequest(emit_xspace=True)
            answer = running.call(methods.PROFILE, request.SerializeToString(), timeout=4)
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
        for path, body in [(methods.MONITOR, b""), (methods.NEW_SESSION, b"")]:
            with pytest.raises(grpc.RpcError) as failure:
                running.call(path, body)
            assert status(failure)[0] is grpc.StatusCode.UNIMPLEMENTED


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
