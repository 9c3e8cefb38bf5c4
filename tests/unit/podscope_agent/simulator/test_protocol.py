"""A simulated host answers the profiler's RPCs as stock servers were seen to answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import DecodeError

from podscope_agent.simulator import Fault, Pod, PodServer, serving
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1 import xplane_pb2

OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0))
POD = Pod(device="cpu", hosts=2, steps=2)
END = wire.TerminateRequest(session_id="s").SerializeToString()


def request(duration_ms: int = 10, **fields: object) -> wire.ProfileRequest:
    options = wire.ProfileOptions(
        version=1,
        duration_ms=duration_ms,
        host_tracer_level=2,
        device_tracer_level=1,
        enable_hlo_proto=True,
    )
    defaults = {"session_id": "s", "host_name": "h:1", "emit_xspace": True, "opts": options}
    return wire.ProfileRequest(**{**defaults, **fields})  # type: ignore[arg-type] # any field


async def call(address: str, method: str, message: bytes) -> bytes:
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        answer: bytes = await channel.unary_unary(method, None, None)(message, timeout=120)
        return answer


async def profile(address: str, message: wire.ProfileRequest) -> wire.ProfileResponse:
    answer = await call(address, methods.PROFILE, message.SerializeToString())
    return wire.ProfileResponse.FromString(answer)


def with_pod(
    check: Callable[[list[str], PodServer], Awaitable[None]],
    faults: Mapping[int, Fault] | None = None,
    pod: Pod = POD,
) -> None:
    async def run() -> None:
        async with serving(pod, faults=faults) as server:
            await check([host.address for host in server.hosts], server)

    asyncio.run(run())


ENDLESS_MS = 600_000
"""Longer than any test waits: such a capture ends only when something ends it."""


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


async def status_of(call: Awaitable[object]) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), error.value.details()


def test_a_capture_holds_the_steps_and_the_host_name() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        response = await profile(addresses[1], request())
        space = xplane_pb2.XSpace.FromString(response.xspace)
        assert not response.empty_trace
        assert list(space.hostnames) == [server.hosts[1].hostname]
        host = next(plane for plane in space.planes if plane.name == "/host:CPU")
        names = {key: value.name for key, value in host.event_metadata.items()}
        steps = [e for line in host.lines for e in line.events if names[e.metadata_id] == "train"]
        assert len(steps) == 2

    with_pod(check)


def test_a_second_capture_is_refused_with_the_exact_words() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        first = asyncio.create_task(profile(addresses[0], request(ENDLESS_MS)))
        await until(lambda: server.is_capturing(0))
        status = await status_of(profile(addresses[0], request()))
        assert status == (grpc.StatusCode.INTERNAL, "Another profiling session active.")
        await call(addresses[0], methods.TERMINATE, END)
        assert (await first).xspace
        assert (await profile(addresses[0], request())).xspace

    with_pod(check)


def test_the_capture_starts_at_the_requested_time() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        start_ns = time.time_ns() + 2_000_000_000
        message = request()
        message.opts.start_timestamp_ns = start_ns
        response = await profile(addresses[0], message)
        space = xplane_pb2.XSpace.FromString(response.xspace)
        plane = next(p for p in space.planes if p.name == "Task Environment")
        names = {key: value.name for key, value in plane.stat_metadata.items()}
        started = next(
            s.uint64_value for s in plane.stats if names[s.metadata_id] == "profile_start_time"
        )
        assert started == start_ns

    with_pod(check)


def test_version_0_loses_the_start_time_but_keeps_the_duration() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        message = request(100)
        message.opts.version = 0
        message.opts.start_timestamp_ns = time.time_ns() + ENDLESS_MS * 1_000_000
        began = time.monotonic()
        assert (await profile(addresses[0], message)).xspace
        assert time.monotonic() - began >= 0.1

    with_pod(check)


def test_no_duration_gives_an_empty_trace_at_once() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        response = await profile(addresses[0], request(0))
        assert response.empty_trace

    with_pod(check)


def test_without_emit_xspace_the_server_writes_the_file_and_answers_zero_bytes(
    tmp_path: Path,
) -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        root = str(tmp_path / "plugins" / "profile")
        message = request(emit_xspace=False, repository_root=root).SerializeToString()
        assert await call(addresses[0], methods.PROFILE, message) == b""
        written = tmp_path / "plugins" / "profile" / "s" / "h_1.xplane.pb"
        assert xplane_pb2.XSpace.FromString(written.read_bytes()).planes

    with_pod(check)


def test_an_unwritable_root_is_an_internal_error() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        message = request(emit_xspace=False, repository_root="/proc/nope")
        code, details = await status_of(profile(addresses[0], message))
        assert code == grpc.StatusCode.INTERNAL
        assert details is not None
        assert "No such file or directory" in details

    with_pod(check)


@pytest.mark.parametrize("session", ["..", "/etc", "a/../../b"])
def test_a_session_that_is_no_single_folder_is_refused(session: str, tmp_path: Path) -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        root = str(tmp_path / "root")
        message = request(emit_xspace=False, repository_root=root, session_id=session)
        code, details = await status_of(profile(addresses[0], message))
        assert (code, details) == (grpc.StatusCode.INTERNAL, f"{session}; a session is one folder")

    with_pod(check)
    assert not list(tmp_path.iterdir())


def test_bytes_that_are_no_request_are_an_internal_error() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        for method in (methods.PROFILE, methods.TERMINATE, methods.START_CONTINUOUS_PROFILING):
            code, _ = await status_of(call(addresses[0], method, b"\xff\xff\xff"))
            assert code == grpc.StatusCode.INTERNAL
        assert (await profile(addresses[0], request())).xspace

    with_pod(check)


def test_terminate_ends_a_running_capture_with_its_data() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        running = asyncio.create_task(profile(addresses[0], request(ENDLESS_MS)))
        await until(lambda: server.is_capturing(0))
        # For a step to be recorded.
        await asyncio.sleep(0.3)
        assert await call(addresses[0], methods.TERMINATE, END) == b""
        assert not (await running).empty_trace

    with_pod(check)


def test_terminate_is_remembered_for_the_next_capture_of_that_session() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        await call(addresses[0], methods.TERMINATE, END)
        await profile(addresses[0], request(ENDLESS_MS))
        began = time.monotonic()
        await profile(addresses[0], request(300))
        assert time.monotonic() - began >= 0.3

    with_pod(check)


def test_a_cancelled_capture_frees_the_host() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        running = asyncio.create_task(profile(addresses[0], request(ENDLESS_MS)))
        await until(lambda: server.is_capturing(0))
        running.cancel()
        await until(lambda: not server.is_capturing(0))
        assert (await profile(addresses[0], request())).xspace

    with_pod(check)


def test_cancelling_before_the_start_time_keeps_the_host_busy_until_then() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        message = request()
        message.opts.start_timestamp_ns = start_ns = time.time_ns() + 2_000_000_000
        waiting = asyncio.create_task(profile(addresses[0], message))
        await until(lambda: server.is_capturing(0))
        waiting.cancel()
        await until(lambda: not server.is_capturing(0))
        assert time.time_ns() >= start_ns
        assert (await profile(addresses[0], request())).xspace

    with_pod(check)


def test_monitor_and_unknown_methods_are_unimplemented() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        status = await status_of(call(addresses[0], methods.MONITOR, b""))
        assert status == (grpc.StatusCode.UNIMPLEMENTED, "unimplemented.")
        status = await status_of(call(addresses[0], methods.NEW_SESSION, b""))
        assert status == (grpc.StatusCode.UNIMPLEMENTED, "")

    with_pod(check)


def test_continuous_profiling_snapshots_and_excludes_captures() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        address, message = addresses[0], request().SerializeToString()
        code, _ = await status_of(call(address, methods.GET_SNAPSHOT, b""))
        assert code == grpc.StatusCode.NOT_FOUND
        assert await call(address, methods.START_CONTINUOUS_PROFILING, message) == b""
        code, _ = await status_of(call(address, methods.START_CONTINUOUS_PROFILING, message))
        assert code == grpc.StatusCode.ALREADY_EXISTS
        code, details = await status_of(profile(address, request()))
        assert (code, details) == (grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
        # For a step to be recorded.
        await asyncio.sleep(0.3)
        snapshot = wire.ProfileResponse.FromString(await call(address, methods.GET_SNAPSHOT, b""))
        assert xplane_pb2.XSpace.FromString(snapshot.xspace).planes
        assert await call(address, methods.STOP_CONTINUOUS_PROFILING, b"") == b""
        code, _ = await status_of(call(address, methods.STOP_CONTINUOUS_PROFILING, b""))
        assert code == grpc.StatusCode.NOT_FOUND

    with_pod(check)


def test_no_host_events_make_a_cpu_trace_empty_but_keep_its_metadata() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        message = request()
        message.opts.host_tracer_level = 0
        response = await profile(addresses[0], message)
        space = xplane_pb2.XSpace.FromString(response.xspace)
        assert response.empty_trace
        assert "/host:metadata" in [plane.name for plane in space.planes]

    with_pod(check)


def test_hosts_captured_together_show_the_same_steps() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        message = request(50)
        message.opts.start_timestamp_ns = time.time_ns() + 3_000_000_000
        responses = await asyncio.gather(*(profile(a, message) for a in addresses))
        numbers = [step_numbers(response.xspace) for response in responses]
        assert numbers[0] == numbers[1]
        assert len(numbers[0]) == 2

    with_pod(check)


def test_a_refusing_host_is_unavailable_and_the_others_answer() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        code, _ = await status_of(profile(addresses[0], request()))
        assert code == grpc.StatusCode.UNAVAILABLE
        assert (await profile(addresses[1], request())).xspace

    with_pod(check, {0: Fault("refuse")})


def test_a_hanging_host_lets_the_deadline_pass() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await profile(addresses[0], request())

    with_pod(check, {0: Fault("hang")})


def test_a_host_busy_twice_answers_the_third_time() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        for _ in range(2):
            status = await status_of(profile(addresses[0], request()))
            assert status == (grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
        assert (await profile(addresses[0], request())).xspace

    with_pod(check, {0: Fault("busy", 2)})


def test_a_busy_host_stays_busy() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        for _ in range(3):
            code, _ = await status_of(profile(addresses[0], request()))
            assert code == grpc.StatusCode.INTERNAL

    with_pod(check, {0: Fault("busy")})


def test_an_empty_host_says_so_and_has_no_events() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        response = await profile(addresses[0], request())
        assert response.empty_trace
        space = xplane_pb2.XSpace.FromString(response.xspace)
        assert not any(line.events for plane in space.planes for line in plane.lines)

    with_pod(check, {0: Fault("empty")})


def test_a_corrupt_host_sends_no_xspace() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        response = await profile(addresses[0], request())
        with pytest.raises(DecodeError):
            xplane_pb2.XSpace.FromString(response.xspace)

    with_pod(check, {0: Fault("corrupt")})


def test_a_resetting_host_drops_the_connection_every_time() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        for _ in range(2):
            code, _ = await status_of(profile(addresses[0], request()))
            assert code == grpc.StatusCode.UNAVAILABLE

    with_pod(check, {0: Fault("reset")})


def test_a_slow_host_sends_at_its_rate() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        del server
        size = len((await profile(addresses[1], request())).xspace)
        began = time.monotonic()
        assert len((await profile(addresses[0], request())).xspace) > size / 2
        assert time.monotonic() - began > 0.8

    with_pod(check, {0: Fault("slow", 50_000)}, Pod(device="cpu", hosts=2, steps=3))


def step_numbers(xspace: bytes) -> list[int]:
    space = xplane_pb2.XSpace.FromString(xspace)
    host = next(plane for plane in space.planes if plane.name == "/host:CPU")
    key = next(k for k, v in host.stat_metadata.items() if v.name == "step_num")
    return [
        stat.int64_value
        for line in host.lines
        for event in line.events
        for stat in event.stats
        if stat.metadata_id == key
    ]


def test_hosts_that_refuse_have_a_port_each() -> None:
    async def check(addresses: list[str], server: PodServer) -> None:
        assert len(set(addresses)) == 12
        for address in addresses[:10]:
            code, _ = await status_of(profile(address, request()))
            assert code is grpc.StatusCode.UNAVAILABLE

    faults = {index: Fault("refuse") for index in range(10)}
    with_pod(check, faults, Pod(device="cpu", hosts=12, steps=2))
