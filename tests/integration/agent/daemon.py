"""A running agent, and profiler servers of the tests' own for it."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
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


def targets_of(running: Agent) -> list[dict[str, object]]:
    url = running.metrics.replace("/metrics", "/targets")
    items: list[dict[str, object]] = httpx.get(url, trust_env=False).json()["items"]
    return items


def wait_until(what: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def padded(name: str, size: int) -> bytes:
    """An XSpace of about this size."""
    space = XSpace.FromString(xspace(name))
    space.planes[0].lines[0].name = "x" * size
    return space.SerializeToString()


def fetched(running: Agent, capture_id: str, part: int = 0) -> bytes:
    method = running.channel.unary_stream(
        methods.AGENT_FETCH,
        request_serializer=bytes,
        response_deserializer=own.FetchResponse.FromString,
    )
    request = own.FetchRequest(capture_id=capture_id, part=part).SerializeToString()
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


def failure_of(running: Agent, path: str) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.RpcError) as failure:
        running.call(path, b"")
    return status(failure)


def slow_target(entered: threading.Event, release: threading.Event) -> Answer:
    def slow(_request: wire.ProfileRequest, _context: grpc.ServicerContext) -> bytes:
        entered.set()
        release.wait(60)
        return wire.ProfileResponse(xspace=xspace()).SerializeToString()

    return slow


def agent_fails(*options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "podscope", "agent", *options],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return done.returncode, done.stderr
