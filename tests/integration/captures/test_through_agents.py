"""Captures through agents: the real one served in this process, and one whose clock is wrong."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.integration import object_server

from podscope_agent.delivery import Delivery
from podscope_agent.guard import Budget, OverheadGuard
from podscope_agent.host_captures import HostCaptures
from podscope_agent.inventory import TargetInventory
from podscope_agent.live.exporter import LiveFigures
from podscope_agent.own_service import OwnService
from podscope_agent.repository import Repository
from podscope_agent.results import ResultSpool
from podscope_agent.server import AgentServer, AgentService, OwnRpcs
from podscope_agent.session import HostSession
from podscope_collector.agent_access import AgentAccess
from podscope_collector.captured_hosts import captured_hosts
from podscope_collector.captures.diagnosis import Diagnosis, ServerKind, Verdict
from podscope_collector.captures.examination import diagnose
from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.outcome import CaptureOutcome, HostUpdate
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.states import CaptureState, HostState, ReasonCode
from podscope_collector.storage import Storage
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace

SECOND = 10**9


def xspace(size: int = 10, start_ns: int = 0) -> bytes:
    space = XSpace(hostnames=["h0"])
    line = space.planes.add(name="/host:CPU").lines.add(name="main")
    line.events.add(offset_ps=1, duration_ps=1)
    if start_ns:
        plane = space.planes.add(name="Task Environment")
        for number, (name, at) in enumerate(
            (("profile_start_time", start_ns), ("profile_stop_time", start_ns + SECOND)), 1
        ):
            plane.stat_metadata[number].id = number
            plane.stat_metadata[number].name = name
            plane.stats.add(metadata_id=number, uint64_value=at)
    space.warnings.append("x" * size)
    return space.SerializeToString()


Profile = Callable[[wire.ProfileRequest], bytes]


def answering(sent: bytes) -> Profile:
    return lambda _: sent


@asynccontextmanager
async def profiler(answer: Profile, delay_s: float = 0) -> AsyncIterator[str]:
    async def profile(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await asyncio.sleep(delay_s)
        return answer(wire.ProfileRequest.FromString(body))

    async def terminate(body: bytes, context: object) -> bytes:
        return b""

    handlers = {
        "Profile": grpc.unary_unary_rpc_method_handler(profile),
        "Terminate": grpc.unary_unary_rpc_method_handler(terminate),
    }
    async with serving({methods.PROFILER_SERVICE: handlers}) as address:
        yield address


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


@asynccontextmanager
async def agent(
    *targets: str,
    root: str | None = None,
    token: str | None = None,
    limit_bytes: int = methods.MAX_MESSAGE_BYTES,
    **budget: Any,
) -> AsyncIterator[str]:
    live = LiveFigures("h0", [])
    spool = ResultSpool(None, 64 << 20, 60)
    repository = Repository([] if root is None else [root])
    session = HostSession(TargetInventory(targets), guard=OverheadGuard(Budget(**budget)))
    captures = HostCaptures(session, spool, repository, limit_bytes)
    service = OwnService("h0", {}, session, captures, live, spool, repository)
    profiler = AgentService(session, live, Delivery(repository, spool))
    server = AgentServer(profiler, OwnRpcs(service), "127.0.0.1", 0, token)
    await server.start()
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)
    await captures.close()
    await session.close()


@asynccontextmanager
async def cut_after(address: str, cuts: list[int]) -> AsyncIterator[str]:
    """A way to ``address`` that breaks after so many bytes of answers, once per cut."""
    host, _, port = address.rpartition(":")
    open_writers: set[asyncio.StreamWriter] = set()

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool
    ) -> None:
        passed = 0
        while piece := await reader.read(16384):
            passed += len(piece)
            if counts and cuts and passed > cuts[0]:
                cuts.pop(0)
                break
            writer.write(piece)
            await writer.drain()
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        open_writers.update((writer, back))
        pumps = [
            asyncio.create_task(pump(reader, back, counts=False)),
            asyncio.create_task(pump(there, writer, counts=True)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        writer.close()
        back.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for writer in open_writers:
        writer.close()


async def capture(
    targets: str,
    storage: Storage,
    on_update: Callable[[HostUpdate], None] = lambda _: None,
    session: str = "s1",
    agent_access: AgentAccess | None = None,
    **more: Any,
) -> CaptureOutcome:
    request = parse_request({"targets": targets, "duration_ms": 50, "attempts": 1} | more)
    found = request.parsed_targets().targets
    return await run_capture(request, found, storage, session, on_update, agent_access=agent_access)


def stored(storage: Storage, update: HostUpdate) -> bytes:
    content = storage.read(update.file or "")
    assert (len(content), hashlib.sha256(content).hexdigest()) == (update.bytes, update.sha256)
    return content


def test_a_profile_comes_in_pieces_with_the_hosts_clock_and_window(tmp_path: Path) -> None:
    space = xspace(3_000_000, start_ns=time.time_ns())
    answer = wire.ProfileResponse(xspace=space).SerializeToString()

    async def scenario() -> CaptureOutcome:
        async with profiler(lambda _: answer) as target, agent(target) as address:
            return await capture(address, Storage(str(tmp_path)))

    outcome = asyncio.run(scenario())
    (host,) = outcome.hosts
    assert (host.state, host.transfer, host.attempts) == (HostState.DONE, "stream", 1)
    assert stored(Storage(str(tmp_path)), host) == space
    assert host.clock is not None
    assert abs(host.clock.offset_ns) <= host.clock.error_ns + 2_000_000
    assert outcome.alignment is not None
    assert list((tmp_path / ".podscope" / "tmp").iterdir()) == []


def test_a_fetch_goes_on_where_the_connection_broke(tmp_path: Path) -> None:
    space = xspace(6_000_000)
    answer = wire.ProfileResponse(xspace=space).SerializeToString()

    async def scenario() -> CaptureOutcome:
        async with (
            profiler(lambda _: answer) as target,
            agent(target) as address,
            cut_after(address, [2_500_000, 1_700_000]) as way,
        ):
            return await capture(way, Storage(str(tmp_path)))

    (host,) = asyncio.run(scenario()).hosts
    assert (host.state, host.attempts, host.message) == (HostState.DONE, 1, None)
    assert stored(Storage(str(tmp_path)), host) == space


@pytest.fixture(params=["folder", "s3", "gs"])
def root(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Of a storage that the agent and the collector share."""
    if request.param == "folder":
        yield str(tmp_path)
        return
    with object_server.serving(request.param, tmp_path) as bucket:
        for name, text in bucket.variables.items():
            monkeypatch.setenv(name, text)
        yield f"{bucket.url}/team"


def test_an_agent_that_may_write_to_the_storage_sends_no_byte_of_it(root: str) -> None:
    space = xspace(2_000_000)
    answer = wire.ProfileResponse(xspace=space).SerializeToString()
    sent = 0

    async def scenario() -> CaptureOutcome:
        nonlocal sent
        async with profiler(lambda _: answer) as target, agent(target, root=root) as address:
            host, _, port = address.rpartition(":")

            async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                there, back = await asyncio.open_connection(host, int(port))

                async def up() -> None:
                    while piece := await reader.read(65536):
                        back.write(piece)
                    back.close()

                task = asyncio.create_task(up())
                nonlocal sent
                while piece := await there.read(65536):
                    sent += len(piece)
                    writer.write(piece)
                writer.close()
                await task

            server = await asyncio.start_server(handle, "127.0.0.1", 0)
            way = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            outcome = await capture(way, Storage(root))
            server.close()
            return outcome

    (host,) = asyncio.run(scenario()).hosts
    assert (host.state, host.transfer) == (HostState.DONE, "direct")
    assert stored(Storage(root), host) == space
    assert 0 < sent < 20_000


PARTS_LIMIT = 2_000_000


@pytest.mark.parametrize("is_direct", [False, True])
def test_a_profile_above_the_limit_of_a_message_is_a_file_of_each_process(
    tmp_path: Path, *, is_direct: bool
) -> None:
    spaces = [xspace(size, start_ns=time.time_ns()) for size in (1_200_000, 1_500_000, 900_000)]
    answers = [wire.ProfileResponse(xspace=space).SerializeToString() for space in spaces]
    told: list[HostUpdate] = []

    async def scenario() -> CaptureOutcome:
        async with AsyncExitStack() as stack:
            targets = [
                await stack.enter_async_context(profiler(answering(answer))) for answer in answers
            ]
            address = await stack.enter_async_context(
                agent(*targets, root=str(tmp_path) if is_direct else None, limit_bytes=PARTS_LIMIT)
            )
            return await capture(address, Storage(str(tmp_path)), told.append)

    outcome = asyncio.run(scenario())
    host, *parts = outcome.hosts
    assert outcome.state is CaptureState.COMPLETE
    assert [part.part_of for part in parts] == [host.host] * 2
    assert host.transfer == ("direct" if is_direct else "stream")
    storage = Storage(str(tmp_path))
    contents = [stored(storage, update) for update in (host, *parts)]
    assert all(len(content) < PARTS_LIMIT for content in contents)
    assert all(map(bytes.startswith, contents, spaces))
    warnings = [XSpace.FromString(content).warnings[-1] for content in contents]
    assert all("each of its 3 processes has a file of its own" in text for text in warnings)
    # Profilers of one process have their ports for names, and nothing else is in the session.
    assert storage.list_hosts("s1") == sorted(update.host for update in outcome.hosts)
    assert all(part.host.startswith(f"{host.host}.process-") for part in parts)
    # Whoever sees the host done sees its parts.
    done = [update.host for update in told if update.state is HostState.DONE]
    assert done == [*(part.host for part in parts), host.host]


def test_parts_of_a_profile_that_does_not_become_whole_are_removed(tmp_path: Path) -> None:
    whole = xspace(5000)
    told = own.CaptureResponse(
        capture_id="c",
        state=own.CaptureResponse.STATE_DONE,
        size_bytes=len(whole),
        sha256="0" * 64,
        more_parts=[own.CapturedPart(suffix="../../x", size_bytes=len(whole))],
    )
    names: set[str] = set()

    async def respond(body: bytes, _context: Any) -> bytes:
        return told.SerializeToString()

    async def ping(_body: bytes, _context: Any) -> bytes:
        now = time.time_ns()
        return own.ClockPingResponse(received_wall_ns=now, sent_wall_ns=now).SerializeToString()

    async def describe(_body: bytes, _context: Any) -> bytes:
        return own.DescribeResponse().SerializeToString()

    async def fetch(body: bytes, _context: Any) -> AsyncIterator[bytes]:
        part = own.FetchRequest.FromString(body).part
        # The first is fetched last, and damaged: the other one is stored by then.
        names.update(path.name for path in (tmp_path / "plugins/profile").glob("*/*.xplane.pb"))
        digest = hashlib.sha256(whole).hexdigest() if part else "1" * 64
        yield own.FetchResponse(
            piece=whole, size_bytes=len(whole), sha256=digest
        ).SerializeToString()

    handlers: dict[str, Any] = {
        "ClockPing": grpc.unary_unary_rpc_method_handler(ping),
        "Describe": grpc.unary_unary_rpc_method_handler(describe),
        "Capture": grpc.unary_unary_rpc_method_handler(respond),
        "Fetch": grpc.unary_stream_rpc_method_handler(fetch),
    }

    async def scenario() -> CaptureOutcome:
        async with serving({methods.AGENT_SERVICE: handlers}) as address:
            return await capture(address, Storage(str(tmp_path)))

    (host,) = asyncio.run(scenario()).hosts
    assert (host.state, host.reason) == (HostState.FAILED, ReasonCode.CORRUPT)
    # A suffix that an agent makes up leads nowhere.
    (name,) = names
    assert name.startswith(f"{host.host}.process-")
    assert list((tmp_path / "plugins/profile").glob("*/*.xplane.pb")) == []


def test_a_refusal_for_the_budget_is_final_and_says_why(tmp_path: Path) -> None:
    answer = wire.ProfileResponse(xspace=xspace()).SerializeToString()

    async def scenario() -> CaptureOutcome:
        async with profiler(lambda _: answer) as target:
            async with agent(target, max_duration_s=0.01) as address:
                return await capture(address, Storage(str(tmp_path)), attempts=3)

    outcome = asyncio.run(scenario())
    (host,) = outcome.hosts
    assert (outcome.state, host.reason, host.attempts) == (
        CaptureState.FAILED,
        ReasonCode.BUDGET,
        1,
    )
    assert "longer than this agent allows" in (host.message or "")


def test_the_doctor_says_beforehand_what_the_agents_guard_would_refuse(tmp_path: Path) -> None:
    answer = wire.ProfileResponse(xspace=xspace()).SerializeToString()

    async def looked(duration_ms: int, **budget: Any) -> Diagnosis:
        async with profiler(lambda _: answer) as target, agent(target, **budget) as address:
            targets = parse_request({"targets": address}).parsed_targets().targets
            (found,) = await diagnose(targets, duration_ms=duration_ms)
            return found

    allowed = asyncio.run(looked(2000, max_duration_s=2, min_free_memory_bytes=1))
    assert allowed.verdict is Verdict.READY
    states = {check.name: str(check.state) for check in allowed.checks}
    assert (states["monitor"], states["busy"], states["disk"]) == ("ok", "ok", "ok")
    longer = asyncio.run(looked(2001, max_duration_s=2))
    short = asyncio.run(looked(10, min_free_memory_bytes=1 << 60))
    for found, words in ((longer, "2.001 s is longer than"), (short, "MiB of memory are")):
        assert found.verdict is Verdict.NOT_READY
        (check,) = [check for check in found.checks if check.name == "budget"]
        assert words in check.detail


async def report_step_time(address: str, seconds: float) -> None:
    request = own.ReportFiguresRequest(step_time_seconds=seconds)
    async with grpc.aio.insecure_channel(address) as channel:
        method = channel.unary_unary(methods.AGENT_REPORT_FIGURES, bytes, bytes)
        await method(request.SerializeToString(), timeout=120)


def test_a_window_of_steps_is_of_those_that_know_them_and_the_others_say_why(
    tmp_path: Path,
) -> None:
    windows: list[int] = []

    def answer(request: wire.ProfileRequest) -> bytes:
        windows.append(request.opts.duration_ms)
        return wire.ProfileResponse(xspace=xspace()).SerializeToString()

    async def scenario() -> CaptureOutcome:
        async with (
            profiler(answer) as target,
            agent(target) as quick,
            agent(target) as slow,
            agent(target) as new,
        ):
            await report_step_time(quick, 0.01)
            await report_step_time(slow, 0.02)
            storage = Storage(str(tmp_path))
            targets = [quick, slow, new, target]
            return await capture(",".join(targets), storage, steps=3, duration_ms=5000)

    outcome = asyncio.run(scenario())
    quick, slow, new, stock = outcome.hosts
    assert [host.state for host in (quick, slow)] == [HostState.DONE, HostState.DONE]
    # Four steps of the slowest and a twentieth, for both.
    assert windows == [84, 84]
    assert (new.state, new.reason, new.attempts) == (HostState.FAILED, ReasonCode.STEPS, 1)
    assert "does not know yet how long a step takes" in (new.message or "")
    assert stock.reason is ReasonCode.STEPS
    assert "is no podscope agent" in (stock.message or "")


@pytest.mark.parametrize(
    ("space", "state", "reason"),
    [
        (XSpace(hostnames=["h"]).SerializeToString(), HostState.EMPTY, ReasonCode.EMPTY_TRACE),
        (b"", HostState.EMPTY, ReasonCode.EMPTY_TRACE),
    ],
)
def test_an_empty_profile_is_said_to_be_empty(
    tmp_path: Path, space: bytes, state: HostState, reason: ReasonCode
) -> None:
    answer = wire.ProfileResponse(xspace=space).SerializeToString()

    async def scenario() -> CaptureOutcome:
        async with profiler(lambda _: answer) as target, agent(target) as address:
            return await capture(address, Storage(str(tmp_path)))

    (host,) = asyncio.run(scenario()).hosts
    assert (host.state, host.reason) == (state, reason)


def test_a_cancelled_capture_frees_the_agent_at_once(tmp_path: Path) -> None:
    answer = wire.ProfileResponse(xspace=xspace()).SerializeToString()

    async def scenario() -> CaptureOutcome:
        async with profiler(lambda _: answer, delay_s=0.5) as target, agent(target) as address:
            storage = Storage(str(tmp_path))
            capturing = asyncio.Event()

            def note(update: HostUpdate) -> None:
                if update.state is HostState.CAPTURING:
                    capturing.set()

            first = asyncio.create_task(capture(address, storage, note, duration_ms=60_000))
            await capturing.wait()
            await asyncio.sleep(0.1)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            return await capture(address, storage, session="s2")

    assert asyncio.run(scenario()).state is CaptureState.COMPLETE


@pytest.mark.parametrize("given", ["right-token-of-the-agent", "another", None])
def test_an_agent_gets_its_token_when_it_asks_for_one(tmp_path: Path, given: str | None) -> None:
    answer = wire.ProfileResponse(xspace=xspace()).SerializeToString()

    async def scenario() -> CaptureOutcome:
        async with (
            profiler(lambda _: answer) as target,
            agent(target, token="right-token-of-the-agent") as address,
        ):
            access = AgentAccess(token=given)
            return await capture(address, Storage(str(tmp_path)), agent_access=access)

    (host,) = asyncio.run(scenario()).hosts
    if given == "right-token-of-the-agent":
        assert (host.state, host.transfer) == (HostState.DONE, "stream")
    else:
        assert (host.state, host.reason) == (HostState.FAILED, ReasonCode.UNAUTHENTICATED)


def test_a_host_that_took_too_long_is_free_for_the_next_capture(tmp_path: Path) -> None:
    answer = wire.ProfileResponse(xspace=xspace()).SerializeToString()
    asked: list[str] = []

    async def profile(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        asked.append("once more")
        if len(asked) == 1:
            await asyncio.sleep(3600)
        return answer

    handlers = {"Profile": grpc.unary_unary_rpc_method_handler(profile)}

    async def scenario() -> tuple[CaptureOutcome, CaptureOutcome]:
        async with (
            serving({methods.PROFILER_SERVICE: handlers}) as target,
            agent(target) as address,
        ):
            storage = Storage(str(tmp_path))
            late = await capture(address, storage, timeout_ms=5_000)
            return late, await capture(address, storage, session="s2")

    late, next_one = asyncio.run(scenario())
    assert [host.reason for host in late.hosts] == [ReasonCode.DEADLINE]
    assert next_one.state is CaptureState.COMPLETE


def test_nobody_but_an_agent_that_asks_is_sent_the_token(tmp_path: Path) -> None:
    answer = wire.ProfileResponse(xspace=xspace()).SerializeToString()
    seen: list[str] = []

    async def profile(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        seen.extend(str(key) for key, _ in context.invocation_metadata() or ())
        return answer

    handlers = {"Profile": grpc.unary_unary_rpc_method_handler(profile)}

    async def scenario() -> CaptureOutcome:
        async with serving({methods.PROFILER_SERVICE: handlers}) as address:
            access = AgentAccess(token="secret")
            return await capture(address, Storage(str(tmp_path)), agent_access=access)

    assert asyncio.run(scenario()).state is CaptureState.COMPLETE
    assert seen
    assert "authorization" not in seen


@pytest.mark.parametrize("is_allowed", [False, True])
def test_the_token_leaves_the_machine_in_plain_text_only_where_that_is_allowed(
    tmp_path: Path, *, is_allowed: bool
) -> None:
    answer = wire.ProfileResponse(xspace=xspace()).SerializeToString()
    token = "right-token-of-the-agent"
    access = AgentAccess(token, token_in_plain_text=is_allowed)

    async def scenario() -> tuple[CaptureOutcome, list[Diagnosis]]:
        async with profiler(lambda _: answer) as target, agent(target, token=token) as address:
            # This host, by an address that is not known to be its own.
            elsewhere = address.replace("127.0.0.1", "0.0.0.0")
            found = parse_request({"targets": elsewhere}).parsed_targets().targets
            outcome = await capture(elsewhere, Storage(str(tmp_path)), agent_access=access)
            return outcome, await diagnose(found, agent_access=access)

    outcome, [diagnosis] = asyncio.run(scenario())
    [host] = outcome.hosts
    if is_allowed:
        assert (host.state, host.transfer) == (HostState.DONE, "stream")
        assert diagnosis.kind is ServerKind.AGENT
        return
    assert (host.state, host.reason) == (HostState.FAILED, ReasonCode.UNAUTHENTICATED)
    [service] = [check for check in diagnosis.checks if check.name == "service"]
    for said in (host.message or "", service.detail):
        assert "not sent in plain text" in said
        assert "PODSCOPE_COLLECTOR_AGENT_CA_FILE" in said


class SkewedAgent:
    """An agent of which the clock is ahead by ``ahead_ns``; sends what it is given."""

    def __init__(self, ahead_ns: int, space: bytes, sha256: str | None = None) -> None:
        self.ahead_ns = ahead_ns
        self.space = space
        self.sha256 = hashlib.sha256(space).hexdigest() if sha256 is None else sha256
        self.start_ns = 0

    async def ping(self, body: bytes, context: object) -> bytes:
        now = time.time_ns() + self.ahead_ns
        return own.ClockPingResponse(received_wall_ns=now, sent_wall_ns=now).SerializeToString()

    async def describe(self, body: bytes, context: object) -> bytes:
        return own.DescribeResponse().SerializeToString()

    async def capture(self, body: bytes, context: object) -> bytes:
        request = own.CaptureRequest.FromString(body)
        if request.profile_request:
            profile = wire.ProfileRequest.FromString(request.profile_request)
            self.start_ns = profile.opts.start_timestamp_ns
        return own.CaptureResponse(
            state=own.CaptureResponse.STATE_DONE, size_bytes=len(self.space), sha256=self.sha256
        ).SerializeToString()

    async def fetch(self, body: bytes, context: object) -> AsyncIterator[bytes]:
        yield own.FetchResponse(piece=self.space, sha256=self.sha256).SerializeToString()

    def services(self) -> dict[str, dict[str, Any]]:
        unary = grpc.unary_unary_rpc_method_handler
        return {
            methods.AGENT_SERVICE: {
                "ClockPing": unary(self.ping),
                "Describe": unary(self.describe),
                "Capture": unary(self.capture),
                "Fetch": grpc.unary_stream_rpc_method_handler(self.fetch),
            }
        }


def test_hosts_begin_at_one_instant_each_by_its_own_clock(tmp_path: Path) -> None:
    now = time.time_ns()
    even = SkewedAgent(0, xspace(start_ns=now))
    ahead = SkewedAgent(5 * SECOND, xspace(start_ns=now + 5 * SECOND))

    async def scenario() -> CaptureOutcome:
        async with serving(even.services()) as one, serving(ahead.services()) as two:
            return await capture(f"{one} {two}", Storage(str(tmp_path)), delay_ms=300)

    outcome = asyncio.run(scenario())
    assert outcome.state is CaptureState.COMPLETE
    first, second = outcome.hosts
    assert first.clock is not None
    assert second.clock is not None
    assert abs(second.clock.offset_ns - 5 * SECOND) <= second.clock.error_ns
    # Who reads the folder without a database knows the clocks too.
    (run,) = (tmp_path / "plugins" / "profile").iterdir()
    noted = {one.host: (one.clock_offset_ns, one.clock_error_ns) for one in captured_hosts(run)}
    assert noted == {
        one.host: (one.clock.offset_ns, one.clock.error_ns)
        for one in outcome.hosts
        if one.clock is not None
    }
    apart = ahead.start_ns - even.start_ns
    assert abs(apart - 5 * SECOND) <= first.clock.error_ns + second.clock.error_ns
    alignment = outcome.alignment
    assert alignment is not None
    assert alignment.error_ns is not None
    assert alignment.skew_ns <= first.clock.error_ns + second.clock.error_ns
    assert alignment.outside == ()


def test_a_profile_that_was_damaged_on_the_way_is_not_kept(tmp_path: Path) -> None:
    lying = SkewedAgent(0, xspace(), sha256="0" * 64)

    async def scenario() -> CaptureOutcome:
        async with serving(lying.services()) as address:
            return await capture(address, Storage(str(tmp_path)))

    (host,) = asyncio.run(scenario()).hosts
    assert (host.state, host.reason) == (HostState.FAILED, ReasonCode.CORRUPT)
    assert not Storage(str(tmp_path)).has_xspace("s1", host.host)


def test_bytes_that_are_no_profile_are_kept_aside(tmp_path: Path) -> None:
    broken = SkewedAgent(0, b"\xff" * 100)

    async def scenario() -> CaptureOutcome:
        async with serving(broken.services()) as address:
            return await capture(address, Storage(str(tmp_path)))

    (host,) = asyncio.run(scenario()).hosts
    assert (host.state, host.reason) == (HostState.FAILED, ReasonCode.CORRUPT)
    rejected = Storage(str(tmp_path)).read_derived("rejected", "s1", host.host)
    assert rejected == b"\xff" * 100
