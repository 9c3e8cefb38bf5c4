import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from podscope import profiler
from podscope.profiler import recording
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace


@pytest.fixture
def address() -> Iterator[str]:
    """This process as a capture target, with a thread that makes steps."""
    port = profiler.server.start(0)
    ended = threading.Event()

    def train() -> None:
        step = 0
        while not ended.is_set():
            with profiler.StepTrace("train", step_num=step):
                time.sleep(0.005)
            step += 1

    worker = threading.Thread(target=train)
    worker.start()
    yield f"127.0.0.1:{port}"
    ended.set()
    worker.join()
    profiler.server.stop()


def call(address: str, path: str, message: wire.ProfileRequest | wire.TerminateRequest) -> bytes:
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        answer: bytes = method(message.SerializeToString(), timeout=120)
        return answer


WHOLE_TEST_MS = 600_000
"""A capture that ends only when something ends it."""


def wait_until_recording() -> None:
    deadline_s = time.monotonic() + 300
    while recording.active is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def request(duration_ms: int, session_id: str = "s") -> wire.ProfileRequest:
    built = wire.ProfileRequest(session_id=session_id, emit_xspace=True)
    built.opts.version = 1
    built.opts.host_tracer_level = 2
    built.opts.duration_ms = duration_ms
    return built


@pytest.fixture(params=["directly", "through the collector"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the client reaches the workers."""
    if request.param == "directly":
        monkeypatch.setattr(profiler.client, "_FANOUT", "podscope_collector.not_installed")
    else:
        pytest.importorskip("podscope_collector.captures.one_shot")
    chosen: str = request.param
    return chosen


@pytest.mark.usefixtures("way")
def test_the_client_saves_steps_of_the_server_in_tensorboards_layout(
    address: str, tmp_path: Path
) -> None:
    [result] = profiler.client.trace(f"grpc://{address}", tmp_path, 200)
    assert result.file is not None
    assert result.file.name == address.replace(":", "_") + ".xplane.pb"
    assert result.file.parent.parent == tmp_path / "plugins" / "profile"
    space = XSpace.FromString(result.file.read_bytes())
    plane = next(p for p in space.planes if p.name == "/host:CPU")
    names = {m.name for m in plane.event_metadata.values()}
    assert "train" in names
    # The server's own threads are nobody's business.
    assert not [line.name for line in plane.lines if "serve" in line.name]
    assert {m.name for m in plane.stat_metadata.values()} >= {"_r", "step_num", "process_id"}


@pytest.mark.usefixtures("way")
def test_one_dead_worker_never_costs_another(address: str, tmp_path: Path) -> None:
    good, bad = profiler.client.trace(
        f"{address},127.0.0.1:1", tmp_path, 50, num_tracing_attempts=1
    )
    assert good.file is not None
    assert bad.file is None
    assert "UNAVAILABLE" in bad.problem


@pytest.mark.usefixtures("way")
def test_no_profile_at_all_is_an_error_that_names_each_worker(tmp_path: Path) -> None:
    with pytest.raises(profiler.ProfilerError, match=r"127\.0\.0\.1:1: UNAVAILABLE"):
        profiler.client.trace("127.0.0.1:1", tmp_path, 50, num_tracing_attempts=1)


@pytest.mark.usefixtures("way")
def test_the_delay_is_where_all_workers_start(address: str, tmp_path: Path) -> None:
    options = profiler.ProfilerOptions(python_tracer_level=0, delay_ms=700)
    asked_ns = time.time_ns()
    [result] = profiler.client.trace(address, tmp_path, 50, options=options)
    assert result.file is not None
    space = XSpace.FromString(result.file.read_bytes())
    [task] = [plane for plane in space.planes if plane.name == "Task Environment"]
    [start_ns] = [
        stat.uint64_value
        for stat in task.stats
        if task.stat_metadata[stat.metadata_id].name == "profile_start_time"
    ]
    assert start_ns - asked_ns >= 0.7e9


def test_a_caller_with_an_event_loop_may_capture(address: str, tmp_path: Path) -> None:
    async def notebook() -> None:
        [result] = profiler.client.trace(address, tmp_path, 50)
        assert result.file is not None

    asyncio.run(notebook())


@pytest.mark.parametrize("bad", ["", "host", "host:port"])
def test_an_address_that_cannot_be_one_is_refused(bad: str, tmp_path: Path) -> None:
    with pytest.raises(profiler.ProfilerError):
        profiler.client.trace(bad, tmp_path, 50)


def test_an_object_store_without_the_collector_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler.client, "_FANOUT", "podscope_collector.not_installed")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(profiler.ProfilerError, match=r"podscope\[collector\]"):
        profiler.client.trace("127.0.0.1:1", "s3://bucket/logs", 50)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_has_its_deadline_beyond_the_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler.client, "_FANOUT", "podscope_collector.not_installed")
    remaining: list[float | None] = []

    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        remaining.append(context.time_remaining())
        return b""

    server = grpc.server(futures.ThreadPoolExecutor(1))
    handlers = {"Profile": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(methods.PROFILER_SERVICE, handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    options = profiler.ProfilerOptions(delay_ms=1_000_000)
    with pytest.raises(profiler.ProfilerError, match="no events"):
        profiler.client.trace(
            f"127.0.0.1:{port}", tmp_path, 50, num_tracing_attempts=1, options=options
        )
    server.stop(None).wait()
    [seconds] = remaining
    assert seconds is not None
    assert seconds > 900


def test_live_figures_are_the_agents(address: str) -> None:
    with pytest.raises(profiler.ProfilerError, match="ask the agent of its host"):
        profiler.client.monitor(address, 10)


def test_busy_is_told_in_the_stock_servers_words(address: str) -> None:
    with futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(call, address, methods.PROFILE, request(WHOLE_TEST_MS, "first"))
        wait_until_recording()
        with pytest.raises(grpc.RpcError) as failure:
            call(address, methods.PROFILE, request(10))
        call(address, methods.TERMINATE, wire.TerminateRequest(session_id="first"))
        assert first.result()
    assert failure.value.code() is grpc.StatusCode.INTERNAL
    assert failure.value.details() == methods.BUSY_DETAILS


def test_terminate_ends_its_own_session_early_and_no_later_one(address: str) -> None:
    call(address, methods.TERMINATE, wire.TerminateRequest(session_id="mine"))
    with futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(call, address, methods.PROFILE, request(WHOLE_TEST_MS, "mine"))
        wait_until_recording()
        call(address, methods.TERMINATE, wire.TerminateRequest(session_id="other"))
        assert recording.active is not None
        call(address, methods.TERMINATE, wire.TerminateRequest(session_id="mine"))
        answer = wire.ProfileResponse.FromString(running.result())
    assert answer.xspace


def test_a_stock_client_gets_the_file_that_it_saves(address: str) -> None:
    asked = request(50)
    asked.emit_xspace = False
    answer = wire.ProfileResponse.FromString(call(address, methods.PROFILE, asked))
    assert [tool.name for tool in answer.tool_data] == ["xplane.pb"]


def test_a_second_server_and_a_taken_port_are_refused(address: str) -> None:
    with pytest.raises(profiler.ProfilerError, match="already"):
        profiler.server.start(0)
    port = address.rpartition(":")[2]
    code = f"from podscope import profiler; profiler.server.start({port})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"port {port} is in use" in done.stderr


@pytest.mark.parametrize(
    "change",
    [{"duration_ms": 2**64 - 1}, {"duration_ms": 3_600_001}, {"start_timestamp_ns": 2**63}],
)
def test_a_window_that_cannot_be_is_refused_and_the_next_capture_works(
    address: str, change: dict[str, int]
) -> None:
    asked = request(50)
    for name, value in change.items():
        setattr(asked.opts, name, value)
    with pytest.raises(grpc.RpcError) as failure:
        call(address, methods.PROFILE, asked)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert wire.ProfileResponse.FromString(call(address, methods.PROFILE, request(50))).xspace


def test_garbage_is_refused_as_what_it_is(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_unary(
            methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
        )
        with pytest.raises(grpc.RpcError) as failure:
            method(b"\xff\xff\xff", timeout=120)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_stopped_server_starts_again_on_the_same_port() -> None:
    port = profiler.server.start(0)
    profiler.server.stop()
    assert profiler.server.start(port) == port
    try:
        answer = call(f"127.0.0.1:{port}", methods.PROFILE, request(20))
        assert wire.ProfileResponse.FromString(answer).xspace
    finally:
        profiler.server.stop()


@pytest.mark.parametrize(
    ("port", "host", "words"),
    [
        (-1, "127.0.0.1", "out of range"),
        (65536, "127.0.0.1", "out of range"),
        (0, "192.0.2.1", "no address"),
    ],
)
def test_where_no_server_can_listen_the_reason_is_told(port: int, host: str, words: str) -> None:
    with pytest.raises(profiler.ProfilerError, match=words):
        profiler.server.start(port, host)
