"""The fan-out against gRPC servers of the tests' own, each with one behaviour."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.fitting import DoesNotFitError
from podscope_collector.captures.limits import FanoutLimits
from podscope_collector.captures.one_shot import capture_to_folder
from podscope_collector.captures.outcome import CaptureOutcome, HostUpdate
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.states import CaptureState, HostState, ReasonCode
from podscope_collector.storage import Buffer, Storage, StoredFile
from podscope_protos.methods import BUSY_DETAILS, PROFILER_SERVICE
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace

Context = Any
Answer = Callable[[wire.ProfileRequest, Context], Awaitable[bytes]]


def xspace(padding: int = 0) -> bytes:
    space = XSpace(hostnames=["h"], warnings=["2 events were dropped"])
    plane = space.planes.add(name="/host:CPU")
    plane.event_metadata[1].id = 1
    plane.event_metadata[1].name = "step"
    plane.lines.add(id=1, name="main").events.add(metadata_id=1, offset_ps=0, duration_ps=1)
    if padding:
        plane.stats.add(metadata_id=1, bytes_value=bytes(padding))
    return space.SerializeToString()


XSPACE = xspace()


def good(content: bytes = XSPACE) -> Answer:
    async def answer(request: wire.ProfileRequest, context: Context) -> bytes:
        await asyncio.sleep(request.opts.duration_ms / 1000)
        return wire.ProfileResponse(xspace=content).SerializeToString()

    return answer


def raw(content: bytes) -> Answer:
    async def answer(request: wire.ProfileRequest, context: Context) -> bytes:
        return content

    return answer


def status(code: grpc.StatusCode, details: str, times: int = 1000) -> Answer:
    left = times

    async def answer(request: wire.ProfileRequest, context: Context) -> bytes:
        nonlocal left
        left -= 1
        if left >= 0:
            await context.abort(code, details)
        return await good()(request, context)

    return answer


class Server:
    """A profiler server in the running loop; it remembers what it was asked."""

    def __init__(self, answer: Answer, service: str = PROFILER_SERVICE) -> None:
        self.requests: list[wire.ProfileRequest] = []
        self.at: list[float] = []
        self.cancelled = asyncio.Event()
        self._answer = answer
        self._service = service
        self.address = ""

    async def profile(self, body: bytes, context: Context) -> bytes:
        request = wire.ProfileRequest.FromString(body)
        self.requests.append(request)
        self.at.append(time.monotonic())
        try:
            return await self._answer(request, context)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    @contextlib.asynccontextmanager
    async def serving(self, host: str = "127.0.0.1") -> AsyncIterator["Server"]:
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        handlers = {"Profile": grpc.unary_unary_rpc_method_handler(self.profile)}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(self._service, handlers),)
        )
        port = server.add_insecure_port(f"{host}:0")
        self.address = f"{host}:{port}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)


@contextlib.asynccontextmanager
async def slow_to_connect(address: str, seconds: float) -> AsyncIterator[str]:
    """A port whose connections get through to a server only after a while."""
    host, _, port = address.rpartition(":")
    copies: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
        finally:
            # Also when it is cancelled: a writer that outlives the loop complains later.
            writer.transport.abort()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        onward = await asyncio.open_connection(host, int(port))
        copies.add(asyncio.ensure_future(copy(reader, onward[1])))
        copies.add(asyncio.ensure_future(copy(onward[0], writer)))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for one in copies:
            one.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


def dead_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def until(happened: Callable[[], bool]) -> None:
    """Look again and again; what is waited for tells nobody."""
    while not happened():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)


async def capture(
    root: Path,
    targets: list[str],
    updates: list[HostUpdate] | None = None,
    limits: FanoutLimits | None = None,
    storage: Storage | None = None,
    **fields: Any,
) -> CaptureOutcome:
    storage = storage or Storage(str(root))
    request = parse_request(
        {"targets": targets, "duration_ms": 50, "timeout_ms": 5000, "quorum": "any"} | fields
    )
    seen = [] if updates is None else updates
    return await run_capture(
        request,
        request.parsed_targets().targets,
        storage,
        await asyncio.to_thread(storage.new_session),
        seen.append,
        limits=limits or FanoutLimits(),
    )


def run_against(
    root: Path, *answers: Answer, extra: tuple[str, ...] = (), **fields: Any
) -> tuple[CaptureOutcome, list[Server], list[HostUpdate]]:
    """Capture servers with these behaviours, and these further targets."""
    updates: list[HostUpdate] = []

    async def scenario() -> tuple[CaptureOutcome, list[Server]]:
        async with contextlib.AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(Server(answer).serving()) for answer in answers
            ]
            targets = [*(server.address for server in servers), *extra]
            return await capture(root, targets, updates, **fields), servers

    outcome, servers = asyncio.run(scenario())
    return outcome, servers, updates


def test_every_host_is_stored_whole_and_the_capture_is_complete(tmp_path: Path) -> None:
    outcome, servers, updates = run_against(tmp_path, good(), good(), good())
    assert outcome.state is CaptureState.COMPLETE
    assert [host.state for host in outcome.hosts] == [HostState.DONE] * 3
    storage = Storage(str(tmp_path))
    assert storage.list_hosts(outcome.session) == sorted(host.host for host in outcome.hosts)
    assert all(storage.read_xspace(outcome.session, host.host) == XSPACE for host in outcome.hosts)
    assert outcome.hosts[0].warnings == ("2 events were dropped",)
    one = [update.state for update in updates if update.target == servers[0].address]
    assert one == ["connecting", "armed", "capturing", "receiving", "storing", "done"]


def test_the_request_is_the_one_that_a_stock_server_needs(tmp_path: Path) -> None:
    _, (server,), _ = run_against(
        tmp_path,
        good(),
        duration_ms=70,
        host_tracer_level=3,
        python_tracer_level=1,
        advanced_configuration={
            "tpu_perf_counters": True,
            "max_trace_buffers": 9,
            "tpu_trace_mode": "TRACE_COMPUTE",
        },
    )
    (request,) = server.requests
    options = request.opts
    assert request.emit_xspace
    assert (options.version, options.duration_ms, options.start_timestamp_ns) == (1, 70, 0)
    assert (options.host_tracer_level, options.python_tracer_level) == (3, 1)
    assert options.include_dataset_ops
    assert options.enable_hlo_proto
    advanced = options.advanced_configuration
    assert advanced["tpu_perf_counters"].bool_value
    assert advanced["max_trace_buffers"].int64_value == 9
    assert advanced["tpu_trace_mode"].string_value == "TRACE_COMPUTE"
    assert request.host_name == server.address


def test_a_name_too_long_for_a_file_is_cut_also_without_a_service(tmp_path: Path) -> None:
    long = ".".join(["a" * 60] * 4)
    options = {"duration_ms": 100, "timeout_ms": 1000, "attempts": 1}
    hosts = capture_to_folder([f"{long}:1", f"{long}:2", "[::1]:1"], str(tmp_path), options)
    names = [host.host for host in hosts]
    assert len(set(names)) == 3
    assert [len(name) <= 180 for name in names] == [True] * 3
    assert names[2] == "[__1]_1", "as stock clients call it"


def test_a_dead_host_costs_the_others_nothing(tmp_path: Path) -> None:
    dead = f"127.0.0.1:{dead_port()}"
    outcome, servers, _ = run_against(tmp_path, good(), extra=(dead, "no.such.host.invalid:1"))
    alive, refused, unresolved = outcome.hosts
    assert outcome.state is CaptureState.PARTIAL
    assert alive.state is HostState.DONE
    assert (refused.state, refused.reason) == (HostState.FAILED, ReasonCode.REFUSED)
    assert refused.attempts == 3
    assert refused.grpc_code == "UNAVAILABLE"
    assert unresolved.reason is ReasonCode.UNREACHABLE
    assert "does not resolve" in (unresolved.message or "")
    assert len(servers[0].requests) == 1, "a host that is done is never captured again"


@pytest.mark.parametrize(
    ("quorum", "state"),
    [("all", CaptureState.FAILED), ("1", CaptureState.PARTIAL), ("50%", CaptureState.PARTIAL)],
)
def test_the_quorum_decides_what_a_lost_host_means(
    tmp_path: Path, quorum: str, state: CaptureState
) -> None:
    dead = f"127.0.0.1:{dead_port()}"
    outcome, _, _ = run_against(tmp_path, good(), extra=(dead,), quorum=quorum, attempts=1)
    assert outcome.state is state


def test_the_end_of_another_capture_is_waited_for_beyond_the_tries(tmp_path: Path) -> None:
    busy = status(grpc.StatusCode.INTERNAL, BUSY_DETAILS, times=4)
    outcome, _, _ = run_against(tmp_path, busy, duration_ms=20, attempts=2, timeout_ms=100_000)
    assert outcome.hosts[0].state is HostState.DONE
    assert outcome.hosts[0].attempts == 5


def test_a_host_that_is_busy_for_ever_fails_when_the_time_is_over(tmp_path: Path) -> None:
    busy = status(grpc.StatusCode.INTERNAL, BUSY_DETAILS)
    outcome, _, _ = run_against(tmp_path, busy, duration_ms=20, attempts=2, timeout_ms=1000)
    assert outcome.hosts[0].state is HostState.FAILED
    assert outcome.hosts[0].reason is ReasonCode.BUSY
    assert outcome.hosts[0].attempts >= 2


def test_a_busy_host_is_asked_again_when_the_other_capture_may_have_ended(
    tmp_path: Path,
) -> None:
    busy_twice = status(grpc.StatusCode.INTERNAL, BUSY_DETAILS, times=2)
    outcome, (server,), updates = run_against(tmp_path, busy_twice, duration_ms=100)
    assert outcome.hosts[0].state is HostState.DONE
    assert outcome.hosts[0].attempts == 3
    assert outcome.hosts[0].reason is None
    waits = [update for update in updates if update.state is HostState.PENDING]
    assert [update.reason for update in waits] == [ReasonCode.BUSY] * 2
    first, second, third = server.at
    assert second - first >= 0.3
    assert third - second > second - first


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, ReasonCode.INVALID_ARGUMENT),
        (grpc.StatusCode.UNAUTHENTICATED, ReasonCode.UNAUTHENTICATED),
        (grpc.StatusCode.UNIMPLEMENTED, ReasonCode.UNIMPLEMENTED),
    ],
)
def test_a_final_status_is_not_tried_again(
    tmp_path: Path, code: grpc.StatusCode, reason: ReasonCode
) -> None:
    outcome, (server,), _ = run_against(tmp_path, status(code, "no"))
    assert outcome.hosts[0].reason is reason
    assert outcome.hosts[0].grpc_code == code.name
    assert len(server.requests) == 1


def test_a_server_without_a_profiler_is_told_apart(tmp_path: Path) -> None:
    async def scenario() -> CaptureOutcome:
        async with Server(good(), service="other.Service").serving() as server:
            return await capture(tmp_path, [server.address])

    (host,) = asyncio.run(scenario()).hosts
    assert host.reason is ReasonCode.UNIMPLEMENTED
    assert "without a profiler" in (host.message or "")


def test_a_web_server_is_no_profiler(tmp_path: Path) -> None:
    async def scenario() -> CaptureOutcome:
        async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                await reader.read()
            finally:
                writer.transport.abort()

        server = await asyncio.start_server(http, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await capture(tmp_path, [f"127.0.0.1:{port}"], attempts=1)

    (host,) = asyncio.run(scenario()).hosts
    assert host.state is HostState.FAILED
    assert host.reason in {ReasonCode.UNREACHABLE, ReasonCode.RESET}
    assert "127.0.0.1" in (host.message or "")


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xff\xff garbage",
        wire.ProfileResponse(xspace=b"\x0a\x7fgarbage").SerializeToString(),
        wire.ProfileResponse(xspace=XSPACE[:-5]).SerializeToString(),
    ],
)
def test_garbage_is_kept_aside_and_breaks_nobody(tmp_path: Path, content: bytes) -> None:
    outcome, _, _ = run_against(tmp_path, raw(content), good(), attempts=2)
    bad, fine = outcome.hosts
    assert (bad.state, bad.reason, bad.attempts) == (HostState.FAILED, ReasonCode.CORRUPT, 2)
    assert fine.state is HostState.DONE
    storage = Storage(str(tmp_path))
    assert storage.list_hosts(outcome.session) == [fine.host]
    kept = storage.read_derived("rejected", outcome.session, bad.host)
    assert kept in content


def test_a_host_whose_first_profile_is_damaged_is_asked_again(tmp_path: Path) -> None:
    contents = [XSPACE[:-5], XSPACE]

    async def better(request: wire.ProfileRequest, context: Context) -> bytes:
        return wire.ProfileResponse(xspace=contents.pop(0)).SerializeToString()

    outcome, (server,), _ = run_against(tmp_path, better)
    (host,) = outcome.hosts
    assert (host.state, host.attempts, len(server.requests)) == (HostState.DONE, 2, 2)
    assert [attempt.reason for attempt in host.history] == [ReasonCode.CORRUPT, None]
    storage = Storage(str(tmp_path))
    assert storage.read_xspace(outcome.session, host.host) == XSPACE
    assert storage.read_derived("rejected", outcome.session, host.host) == XSPACE[:-5]


def test_an_empty_trace_is_empty_and_not_failed(tmp_path: Path) -> None:
    outcome, (server, _), _ = run_against(tmp_path, raw(b"\x38\x01"), good())
    assert outcome.hosts[0].state is HostState.EMPTY
    assert outcome.hosts[0].reason is ReasonCode.EMPTY_TRACE
    assert outcome.state is CaptureState.PARTIAL
    assert len(server.requests) == 1


def test_an_empty_host_gets_a_longer_window_when_asked(tmp_path: Path) -> None:
    outcome, (server,), _ = run_against(tmp_path, raw(b"\x38\x01"), retry_empty=True)
    assert [request.opts.duration_ms for request in server.requests] == [50, 100, 200]
    assert outcome.hosts[0].state is HostState.EMPTY


def test_a_host_that_hangs_ends_at_its_deadline(tmp_path: Path) -> None:
    async def hang(request: wire.ProfileRequest, context: Context) -> bytes:
        await asyncio.sleep(3600)
        return b""

    outcome, (server, _), _ = run_against(tmp_path, hang, good(), timeout_ms=2000)
    assert outcome.hosts[0].reason is ReasonCode.DEADLINE
    assert outcome.hosts[1].state is HostState.DONE
    assert len(server.requests) == 1


def test_a_peer_that_accepts_and_says_nothing_is_unreachable(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        outcome = asyncio.run(capture(tmp_path, [address], attempts=1, timeout_ms=500))
    assert outcome.hosts[0].reason is ReasonCode.UNREACHABLE
    assert "does not answer within 1 s" in (outcome.hosts[0].message or "")


def test_a_connection_that_breaks_is_a_reset_and_is_tried_again(tmp_path: Path) -> None:
    async def scenario() -> tuple[CaptureOutcome, int]:
        connections = 0

        async def hang(request: wire.ProfileRequest, context: Context) -> bytes:
            await asyncio.sleep(60)
            return b""

        async with Server(hang).serving() as server:
            port = int(server.address.rpartition(":")[2])

            async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                nonlocal connections
                connections += 1
                back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(0.3):
                        await asyncio.gather(copy(reader, back_writer), copy(back_reader, writer))
                back_writer.transport.abort()
                writer.transport.abort()

            flaky = await asyncio.start_server(relay, "127.0.0.1", 0)
            async with flaky:
                address = f"127.0.0.1:{flaky.sockets[0].getsockname()[1]}"
                return await capture(tmp_path, [address], attempts=2), connections

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()

    outcome, connections = asyncio.run(scenario())
    assert outcome.hosts[0].reason is ReasonCode.RESET
    assert outcome.hosts[0].attempts == 2
    assert connections >= 2


def test_responses_far_beyond_four_megabytes_arrive(tmp_path: Path) -> None:
    large = xspace(padding=40_000_000)
    outcome, _, _ = run_against(tmp_path, good(large))
    assert outcome.hosts[0].bytes == len(large)
    stored = Storage(str(tmp_path)).read_xspace(outcome.session, outcome.hosts[0].host)
    assert stored == large


def test_all_hosts_are_asked_to_start_at_one_instant(tmp_path: Path) -> None:
    before = time.time_ns()
    outcome, servers, _ = run_against(tmp_path, *[good()] * 5, delay_ms=700)
    starts = {server.requests[0].opts.start_timestamp_ns for server in servers}
    assert outcome.state is CaptureState.COMPLETE
    assert len(starts) == 1
    (start,) = starts
    assert before + 700_000_000 <= start <= time.time_ns() + 700_000_000


def test_hosts_without_a_delay_are_all_asked_before_the_first_answers(tmp_path: Path) -> None:
    asked = asyncio.Barrier(10)

    async def together(request: wire.ProfileRequest, context: Context) -> bytes:
        await asked.wait()
        return await good()(request, context)

    outcome, _, _ = run_against(tmp_path, *[together] * 10, timeout_ms=60_000)
    assert outcome.state is CaptureState.COMPLETE


def test_the_byte_budget_holds_hosts_back_and_loses_none(tmp_path: Path) -> None:
    running = most = 0

    async def counting(request: wire.ProfileRequest, context: Context) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return wire.ProfileResponse(xspace=XSPACE).SerializeToString()

    limits = FanoutLimits(byte_budget=2_000, expected_host_bytes=1_000)
    outcome, _, _ = run_against(tmp_path, *[counting] * 16, limits=limits)
    assert outcome.state is CaptureState.COMPLETE
    # Half of the budget is one host; one more records before any has told how fast it is stored.
    assert most <= 2


class SlowStorage(Storage):
    """Takes longer for a profile than a host has to answer."""

    def put_xspace(self, session: str, host: str, content: Buffer) -> StoredFile:
        time.sleep(2.5)
        return super().put_xspace(session, host, content)


def test_the_wait_for_room_here_is_not_the_hosts_time(tmp_path: Path) -> None:
    # Both have their profile ready at once; the second waits until the first is stored.
    outcome, _, _ = run_against(
        tmp_path,
        good(),
        good(),
        limits=FanoutLimits(byte_budget=2_000, expected_host_bytes=1_000),
        storage=SlowStorage(str(tmp_path)),
        timeout_ms=2_000,
        attempts=1,
    )
    assert [host.state for host in outcome.hosts] == [HostState.DONE] * 2
    waited = max(host.timings_ms["receiving"] for host in outcome.hosts)
    assert waited > 2_000


def test_a_dead_host_is_known_while_others_hold_the_budget(tmp_path: Path) -> None:
    async def scenario() -> CaptureOutcome:
        dead = asyncio.Event()

        async def until_dead(request: wire.ProfileRequest, context: Context) -> bytes:
            await dead.wait()
            return await good()(request, context)

        def on_update(update: HostUpdate) -> None:
            if update.state is HostState.FAILED:
                dead.set()

        async with contextlib.AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(Server(until_dead).serving()) for _ in range(2)
            ]
            targets = [*(server.address for server in servers), f"127.0.0.1:{dead_port()}"]
            request = parse_request(
                {"targets": targets, "duration_ms": 20, "attempts": 1, "timeout_ms": 120_000}
            )
            return await run_capture(
                request,
                request.parsed_targets().targets,
                Storage(str(tmp_path)),
                "s1",
                on_update,
                limits=FanoutLimits(byte_budget=1_000, expected_host_bytes=1_000),
            )

    states = [host.state for host in asyncio.run(asyncio.wait_for(scenario(), 100)).hosts]
    assert states == [HostState.DONE, HostState.DONE, HostState.FAILED]


def test_synchronized_hosts_get_one_instant_however_slowly_one_of_them_connects(
    tmp_path: Path,
) -> None:
    async def scenario() -> tuple[CaptureOutcome, list[Server]]:
        async with contextlib.AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(Server(good()).serving()) for _ in range(3)]
            late = await stack.enter_async_context(slow_to_connect(servers[2].address, 1.5))
            targets = [servers[0].address, servers[1].address, late]
            limits = FanoutLimits(start_patience_s=0.1, width=3, byte_budget=3000)
            return await capture(
                tmp_path,
                targets,
                limits=limits,
                synchronized=True,
                expected_host_bytes=1000,
                delay_ms=400,
            ), servers

    outcome, servers = asyncio.run(scenario())
    assert outcome.state is CaptureState.COMPLETE
    starts = {server.requests[0].opts.start_timestamp_ns for server in servers}
    assert len(starts) == 1, "the two that were ready waited for the third"


def test_a_synchronized_capture_that_does_not_fit_asks_no_host(tmp_path: Path) -> None:
    server = Server(good())

    async def scenario() -> None:
        async with server.serving(), Server(good()).serving() as other:
            await capture(
                tmp_path,
                [server.address, other.address],
                limits=FanoutLimits(byte_budget=1999),
                synchronized=True,
                expected_host_bytes=1000,
            )

    with pytest.raises(DoesNotFitError, match="1,999 bytes may be in memory"):
        asyncio.run(scenario())
    assert server.requests == []


def test_a_host_whose_start_is_far_is_not_held_until_then(tmp_path: Path) -> None:
    async def scenario() -> tuple[Server, HostUpdate]:
        seen: list[HostUpdate] = []
        async with Server(good()).serving() as server:
            running = capture(tmp_path, [server.address], seen, delay_ms=60_000)
            work = asyncio.create_task(running)
            async with asyncio.timeout(30):
                await until(lambda: any(update.state is HostState.ARMED for update in seen))
            await asyncio.sleep(0.2)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        return server, seen[-1]

    server, last = asyncio.run(scenario())
    # A stock server that was asked would be busy for a minute: it sleeps until its start.
    assert server.requests == []
    assert (last.state, last.reason) == (HostState.CANCELLED, ReasonCode.CANCELLED)


def test_cancelling_frees_the_hosts_and_passes_through(tmp_path: Path) -> None:
    async def hang(request: wire.ProfileRequest, context: Context) -> bytes:
        await asyncio.sleep(3600)
        return b""

    updates: list[HostUpdate] = []

    async def scenario() -> None:
        async with Server(hang).serving() as slow, Server(good()).serving() as fast:
            work = asyncio.ensure_future(capture(tmp_path, [slow.address, fast.address], updates))
            async with asyncio.timeout(30):
                await until(lambda: any(update.state is HostState.DONE for update in updates))
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            await asyncio.wait_for(slow.cancelled.wait(), 60)

    asyncio.run(scenario())
    last = {update.target: update for update in updates}
    assert sorted(update.state for update in last.values()) == ["cancelled", "done"]


def test_an_old_server_that_writes_its_own_file_is_picked_up_on_a_shared_disk(
    tmp_path: Path,
) -> None:
    async def writes(request: wire.ProfileRequest, context: Context) -> bytes:
        folder = Path(request.repository_root) / request.session_id
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        name = request.host_name.replace(":", "_")
        await asyncio.to_thread((folder / f"{name}.xplane.pb").write_bytes, XSPACE)
        return b""

    outcome, _, _ = run_against(tmp_path, writes, raw(b""))
    picked_up, lost = outcome.hosts
    assert picked_up.state is HostState.DONE
    assert picked_up.bytes == len(XSPACE)
    assert (lost.state, lost.reason) == (HostState.FAILED, ReasonCode.UNIMPLEMENTED)
    assert "its own disk" in (lost.message or "")


def test_a_storage_that_cannot_be_written_fails_the_host_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "plugins").write_text("a file where a folder must be")
    outcome, _, _ = run_against(tmp_path, good())
    (host,) = outcome.hosts
    assert (host.state, host.reason) == (HostState.FAILED, ReasonCode.STORAGE)
    assert "cannot write" in (host.message or "")


def test_ipv6_is_dialled_in_brackets(tmp_path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")

    async def scenario() -> CaptureOutcome:
        async with Server(good()).serving(host="[::1]") as server:
            return await capture(tmp_path, [server.address])

    (host,) = asyncio.run(scenario()).hosts
    assert host.state is HostState.DONE
    assert host.host.startswith("__1_")


def test_a_display_that_fails_costs_no_profile(tmp_path: Path) -> None:
    async def scenario() -> CaptureOutcome:
        async with Server(good()).serving() as server:
            storage = Storage(str(tmp_path))
            request = parse_request({"targets": server.address, "duration_ms": 20})

            def fails(update: HostUpdate) -> None:
                raise RuntimeError(update.target)

            return await run_capture(
                request, request.parsed_targets().targets, storage, "s1", fails
            )

    assert asyncio.run(scenario()).state is CaptureState.COMPLETE
