"""Targets, clients and disks that fail: each costs only itself, and the next capture works."""

import contextlib
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc
import httpx
import pytest
from tests.integration.agent.daemon import (
    Agent,
    agent,
    answer_with,
    fetched,
    padded,
    profiled,
    profiler,
    slow_target,
    status,
    targets_of,
    wait_until,
    xspace,
)

from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace


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


def test_names_that_no_file_can_have_are_refused_before_anything_is_captured(
    tmp_path: Path,
) -> None:
    captured: list[str] = []

    def counted(request: wire.ProfileRequest, _context: grpc.ServicerContext) -> bytes:
        captured.append(request.session_id)
        return wire.ProfileResponse(xspace=xspace()).SerializeToString()

    with profiler(counted) as target, agent(target, allow_root=str(tmp_path)) as running:
        for session, host in [("../up", "h:1"), ("s", "a/b"), ("s", "")]:
            request = wire.ProfileRequest(
                repository_root=str(tmp_path), session_id=session, host_name=host
            )
            with pytest.raises(grpc.RpcError) as failure:
                running.call(methods.PROFILE, request.SerializeToString())
            assert status(failure)[0] is grpc.StatusCode.INTERNAL
            body = request.SerializeToString()
            asked = own.CaptureRequest(
                capture_id=session, profile_request=body, write_to_repository=True
            )
            with pytest.raises(grpc.RpcError) as failure:
                running.call(methods.AGENT_CAPTURE, asked.SerializeToString())
            assert status(failure)[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert captured == []
        request = wire.ProfileRequest(
            repository_root=str(tmp_path), session_id="s", host_name="[::1]:8466"
        )
        running.call(methods.PROFILE, request.SerializeToString())
    assert captured == ["s"]
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["[__1]_8466.xplane.pb"]


def test_a_capture_whose_client_hangs_up_costs_the_budget_no_more_than_it_recorded() -> None:
    def slow(_request: wire.ProfileRequest, context: grpc.ServicerContext) -> bytes:
        while context.is_active():
            time.sleep(0.01)
        return b""

    with profiler(slow) as target, agent(target, max_time_ratio="0.01") as running:
        request = wire.ProfileRequest(emit_xspace=True)
        request.opts.version, request.opts.duration_ms = 1, 36_000
        method = running.channel.unary_unary(methods.PROFILE, bytes, bytes)
        call = method.future(request.SerializeToString(), timeout=120)
        wait_until(lambda: "busy" in {one["state"] for one in targets_of(running)})
        call.cancel()  # type: ignore[no-untyped-call] # only in stubs

        def spent_s() -> float:
            text = httpx.get(running.metrics).text
            assert "_created" not in text
            return float(text.split("podscope_profiling_spent_seconds_total ")[-1].split()[0])

        wait_until(lambda: spent_s() > 0)
        assert spent_s() < 30


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
