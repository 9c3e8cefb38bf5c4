"""The daemon as a process, in front of profiler servers of the tests' own."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent import futures

import grpc
import httpx
import pytest
from tests.integration.agent.daemon import (
    Agent,
    agent,
    answer_with,
    profiler,
    status,
    targets_of,
    xspace,
)

from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace


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


def test_what_a_capture_took_is_told_with_its_answer() -> None:
    def slow(request: wire.ProfileRequest, _context: grpc.ServicerContext) -> bytes:
        time.sleep(request.opts.duration_ms / 1000 + 0.3)
        return wire.ProfileResponse(xspace=xspace()).SerializeToString()

    with profiler(slow) as target, agent(target) as running:
        request = wire.ProfileRequest(session_id="s", emit_xspace=True)
        request.opts.duration_ms = 50
        method = running.channel.unary_unary(
            methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
        )
        _, call = method.with_call(request.SerializeToString(), timeout=120)
        told = {key: float(text) for key, text in call.trailing_metadata()}
        figures = httpx.get(running.metrics, trust_env=False).text
    assert told["podscope-bytes"] == len(xspace())
    assert told["podscope-wall-seconds"] > told["podscope-target-seconds"] >= 0.29
    assert told["podscope-agent-cpu-seconds"] >= 0
    [total] = re.findall(r"^podscope_agent_capture_target_seconds_total (.*)$", figures, re.M)
    assert float(total) == pytest.approx(told["podscope-target-seconds"], abs=0.001)


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


def test_an_empty_trace_is_said_to_be_empty() -> None:
    with profiler(answer_with(xspace(events=0))) as target, agent(target) as running:
        assert running.profile().empty_trace
        assert not running.profile(emit_xspace=False).tool_data


def test_health_is_served_and_what_a_host_cannot_do_is_refused() -> None:
    with profiler(answer_with(xspace())) as target, agent(target) as running:
        assert running.call("/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
        assert running.call("/grpc.health.v1.Health/Check", b"\x0a\x00") == b"\x08\x01"
        for path in (methods.ENUM_SESSIONS, methods.GET_SESSION_TOOL_DATA):
            with pytest.raises(grpc.RpcError) as failure:
                running.call(path, b"")
            assert status(failure)[0] is grpc.StatusCode.UNIMPLEMENTED


def test_monitor_of_a_host_without_devices_tells_its_cpu_and_memory() -> None:
    with agent() as running:
        for level in (1, 2):
            request = wire.MonitorRequest(duration_ms=100, monitoring_level=level)
            answer = running.call(methods.MONITOR, request.SerializeToString())
            lines = wire.MonitorResponse.FromString(answer).data.splitlines()
            told = dict(line.split(": ") for line in lines)
            assert told["Host memory used"].endswith(" GiB")
            assert 0 <= float(told["Host CPU utilization"].removesuffix("%")) <= 100


def test_monitor_looks_at_the_host_for_as_long_as_it_is_asked_to() -> None:
    with agent() as running:
        began = time.monotonic()
        request = wire.MonitorRequest(duration_ms=700)
        running.call(methods.MONITOR, request.SerializeToString())
        assert time.monotonic() - began >= 0.7


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


def test_who_watches_the_health_is_told_of_the_end() -> None:
    with profiler(answer_with(xspace())) as target:
        running = Agent(target)
        watch = running.channel.unary_stream(
            "/grpc.health.v1.Health/Watch", request_serializer=bytes, response_deserializer=bytes
        )
        known = watch(b"", timeout=120)
        assert next(iter(known)) == b"\x08\x01"
        unknown = watch(b"\x0a\x01x", timeout=120)
        assert next(iter(unknown)) == b"\x08\x03"
        running.process.send_signal(signal.SIGTERM)
        assert list(known) == [b"\x08\x02"]
        assert list(unknown) == []
        assert running.close() == 0
