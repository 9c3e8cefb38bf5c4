"""The agent's own RPCs, served in this process in front of profiler servers of the tests' own."""

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from podscope_agent.delivery import Delivery
from podscope_agent.guard import Budget, OverheadGuard
from podscope_agent.host_captures import HostCaptures
from podscope_agent.inventory import TargetInventory
from podscope_agent.live.exporter import LiveFigures
from podscope_agent.own_service import OwnService
from podscope_agent.pieces import Pieces
from podscope_agent.repository import Repository
from podscope_agent.results import ResultSpool, StoredResult
from podscope_agent.server import AgentServer, AgentService, OwnRpcs
from podscope_agent.session import HostSession
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace

State = own.CaptureResponse.State
Profile = Callable[[wire.ProfileRequest], Awaitable[bytes]]


def xspace(size: int = 10) -> bytes:
    space = XSpace(hostnames=["h0"])
    line = space.planes.add(name="/host:CPU").lines.add(name="main")
    line.events.add(offset_ps=1, duration_ps=1)
    space.warnings.append("x" * size)
    return space.SerializeToString()


@dataclass
class Host:
    """An agent and the channel to it."""

    channel: grpc.aio.Channel
    spool: ResultSpool

    async def call(self, path: str, request: Any) -> bytes:
        method = self.channel.unary_unary(
            path, request_serializer=bytes, response_deserializer=bytes
        )
        answer: bytes = await method(request.SerializeToString(), timeout=120)
        return answer

    async def capture(self, capture_id: str, *, wait: bool = True, **more: Any) -> Any:
        request = wire.ProfileRequest(session_id="s", host_name="h:1", **more)
        request.opts.version = 1
        request.opts.duration_ms = 20
        body = own.CaptureRequest(
            capture_id=capture_id,
            profile_request=request.SerializeToString(),
            wait=wait,
            write_to_repository=bool(more),
        )
        return own.CaptureResponse.FromString(await self.call(methods.AGENT_CAPTURE, body))

    async def fetch(self, capture_id: str, offset: int = 0) -> list[Any]:
        method = self.channel.unary_stream(
            methods.AGENT_FETCH,
            request_serializer=bytes,
            response_deserializer=own.FetchResponse.FromString,
        )
        request = own.FetchRequest(capture_id=capture_id, offset=offset)
        return [piece async for piece in method(request.SerializeToString(), timeout=120)]


@asynccontextmanager
async def host(profile: Profile, root: Path | None = None) -> AsyncIterator[Host]:
    async def answer(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return await profile(wire.ProfileRequest.FromString(body))

    target = grpc.aio.server()
    target.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                methods.PROFILER_SERVICE,
                {"Profile": grpc.unary_unary_rpc_method_handler(answer)},
            ),
        )
    )
    port = target.add_insecure_port("127.0.0.1:0")
    await target.start()
    live = LiveFigures("h0", [])
    spool = ResultSpool(None, 64 << 20, 60)
    repository = Repository([] if root is None else [str(root)])
    inventory = TargetInventory([f"127.0.0.1:{port}"])
    session = HostSession(inventory, guard=OverheadGuard(Budget(max_duration_s=9)))
    captures = HostCaptures(session, spool, repository)
    service = OwnService("h0", {"job": "llm"}, session, captures, live, spool, repository)
    server = AgentServer(
        AgentService(session, live, Delivery(repository, spool)), OwnRpcs(service), "127.0.0.1", 0
    )
    await server.start()
    options = (("grpc.enable_http_proxy", 0),)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=options) as channel:
        yield Host(channel, spool)
    await server.stop(0)
    await captures.close()
    await session.close()
    await target.stop(0)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def answering(space: bytes) -> Profile:
    async def answer(request: wire.ProfileRequest) -> bytes:
        return wire.ProfileResponse(xspace=space).SerializeToString()

    return answer


def test_a_triggered_capture_is_fetched_in_pieces_and_resumed_anywhere() -> None:
    space = xspace(2_500_000)

    async def scenario() -> None:
        async with host(answering(space)) as agent:
            ended = await agent.capture("c1")
            assert (ended.state, ended.size_bytes) == (State.STATE_DONE, len(space))
            assert ended.sha256 == hashlib.sha256(space).hexdigest()
            assert ended.cost.bytes == len(space)
            pieces = await agent.fetch("c1")
            assert [len(p.piece) for p in pieces[:-1]] == [1 << 20] * 2
            assert b"".join(p.piece for p in pieces) == space
            assert [p.sha256 for p in pieces] == ["", "", ended.sha256]
            rest = await agent.fetch("c1", offset=2_000_001)
            assert (rest[0].offset, rest[0].piece) == (2_000_001, space[2_000_001:])
            at_end = await agent.fetch("c1", offset=len(space))
            assert [(p.piece, p.sha256) for p in at_end] == [(b"", ended.sha256)]

    run(scenario())


def test_a_trigger_returns_at_once_and_the_fetch_waits() -> None:
    space = xspace()

    async def scenario() -> None:
        release = asyncio.Event()

        async def slow(request: wire.ProfileRequest) -> bytes:
            await release.wait()
            return wire.ProfileResponse(xspace=space).SerializeToString()

        async with host(slow) as agent:
            assert (await agent.capture("c1", wait=False)).state == State.STATE_RUNNING
            fetched = asyncio.create_task(agent.fetch("c1"))
            # The same id asks for the outcome; another finds the host busy.
            assert (await agent.capture("c1", wait=False)).state == State.STATE_RUNNING
            with pytest.raises(grpc.aio.AioRpcError) as busy:
                await agent.capture("c2")
            assert busy.value.details() == methods.BUSY_DETAILS
            release.set()
            assert b"".join(p.piece for p in await fetched) == space
            assert (await agent.capture("c1")).state == State.STATE_DONE

    run(scenario())


def test_a_caller_that_hangs_up_loses_nothing() -> None:
    async def scenario() -> None:
        entered, release = asyncio.Event(), asyncio.Event()

        async def slow(request: wire.ProfileRequest) -> bytes:
            entered.set()
            await release.wait()
            return wire.ProfileResponse(xspace=xspace()).SerializeToString()

        async with host(slow) as agent:
            waiting = asyncio.create_task(agent.capture("c1"))
            await asyncio.wait_for(entered.wait(), 60)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            release.set()
            assert len(await agent.fetch("c1")) == 1

    run(scenario())


def test_a_cancelled_capture_frees_the_host_at_once() -> None:
    async def scenario() -> None:
        async def slow(request: wire.ProfileRequest) -> bytes:
            if request.session_id == "s":
                await asyncio.sleep(3600)
            return wire.ProfileResponse(xspace=xspace()).SerializeToString()

        async with host(slow) as agent:
            await agent.capture("c1", wait=False)
            body = own.CancelRequest(capture_id="c1")
            answer = await agent.call(methods.AGENT_CANCEL, body)
            assert own.CancelResponse.FromString(answer).was_running
            assert (await agent.capture("c1")).grpc_code == "CANCELLED"
            assert (await agent.capture("c2", wait=False)).state == State.STATE_RUNNING
            again = await agent.call(methods.AGENT_CANCEL, own.CancelRequest(capture_id="c1"))
            assert not own.CancelResponse.FromString(again).was_running

    run(scenario())


def test_a_capture_that_is_cancelled_while_it_is_stored_stays_cancelled() -> None:
    storing, may_go_on = threading.Event(), threading.Event()

    async def scenario() -> None:
        async with host(answering(xspace())) as agent:
            put = agent.spool.put

            def put_slowly(capture_id: str, *profiles: Pieces) -> tuple[StoredResult, ...]:
                storing.set()
                assert may_go_on.wait(60)
                return put(capture_id, *profiles)

            agent.spool.put = put_slowly  # type: ignore[method-assign]
            await agent.capture("c1", wait=False)
            assert await asyncio.to_thread(storing.wait, 60)
            await agent.call(methods.AGENT_CANCEL, own.CancelRequest(capture_id="c1"))
            may_go_on.set()
            await asyncio.get_running_loop().shutdown_default_executor()
            ended = await agent.capture("c1", wait=False)
            assert (ended.state, ended.grpc_code) == (State.STATE_FAILED, "CANCELLED")

    run(scenario())


def test_a_capture_that_fails_in_an_unforeseen_way_does_not_run_for_ever() -> None:
    async def scenario() -> None:
        async with host(answering(xspace())) as agent:

            def put(capture_id: str, *profiles: Pieces) -> tuple[StoredResult, ...]:
                raise ZeroDivisionError

            agent.spool.put = put  # type: ignore[method-assign]
            ended = await agent.capture("c1")
            assert (ended.state, ended.grpc_code) == (State.STATE_FAILED, "INTERNAL")
            assert "ZeroDivisionError" in ended.message

    run(scenario())


def test_a_failure_is_told_by_the_capture_and_by_the_fetch() -> None:
    async def scenario() -> None:
        async def garbage(request: wire.ProfileRequest) -> bytes:
            return b"\xff\xff\xff"

        async with host(garbage) as agent:
            ended = await agent.capture("c1")
            assert (ended.state, ended.grpc_code) == (State.STATE_FAILED, "DATA_LOSS")
            for capture_id, code in (
                ("c1", grpc.StatusCode.DATA_LOSS),
                ("nobody", grpc.StatusCode.NOT_FOUND),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as failure:
                    await agent.fetch(capture_id)
                assert failure.value.code() is code

    run(scenario())


def test_a_profile_that_expired_is_not_found() -> None:
    async def scenario() -> None:
        async with host(answering(xspace())) as agent:
            await agent.capture("c1")
            agent.spool.keep_s = -1
            with pytest.raises(grpc.aio.AioRpcError, match="capture again") as failure:
                await agent.fetch("c1")
            assert failure.value.code() is grpc.StatusCode.NOT_FOUND

    run(scenario())


def test_a_profile_is_written_to_an_allowed_root_and_to_no_other(tmp_path: Path) -> None:
    root = str(tmp_path / "plugins" / "profile")

    async def scenario() -> None:
        async with host(answering(xspace()), tmp_path) as agent:
            ended = await agent.capture("c1", repository_root=root)
            assert ended.path == f"{root}/s/h_1.xplane.pb"
            with pytest.raises(grpc.aio.AioRpcError, match="--allow-root") as failure:
                await agent.capture("c2", repository_root="/etc")
            assert failure.value.code() is grpc.StatusCode.PERMISSION_DENIED

    run(scenario())
    assert (tmp_path / "plugins" / "profile" / "s" / "h_1.xplane.pb").read_bytes() == xspace()


def test_a_stock_clients_root_is_written_to_where_it_is_allowed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with host(answering(xspace()), tmp_path) as agent:
            request = wire.ProfileRequest(
                session_id="s", host_name="localhost:1", repository_root=str(tmp_path)
            )
            method = agent.channel.unary_unary(
                methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
            )
            call = method(request.SerializeToString(), timeout=120)
            answer = wire.ProfileResponse.FromString(await call)
            trailing = {str(key): value for key, value in await call.trailing_metadata() or ()}
            assert (answer.empty_trace, len(answer.tool_data)) == (False, 0)
            assert trailing["podscope-sha256"] == hashlib.sha256(xspace()).hexdigest()
            assert trailing["podscope-path"] == f"{tmp_path}/s/localhost_1.xplane.pb"

    run(scenario())
    assert (tmp_path / "s" / "localhost_1.xplane.pb").read_bytes() == xspace()


def test_a_window_over_budget_is_refused_before_anything_begins() -> None:
    async def scenario() -> None:
        async with host(answering(xspace())) as agent:
            request = wire.ProfileRequest()
            request.opts.duration_ms = 9_001
            body = own.CaptureRequest(capture_id="c1", profile_request=request.SerializeToString())
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await agent.call(methods.AGENT_CAPTURE, body)
            assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await agent.capture("c1")).state == State.STATE_DONE

    run(scenario())


def test_clocks_are_read_in_order_and_the_host_describes_itself() -> None:
    async def scenario() -> None:
        async with host(answering(xspace())) as agent:
            before = time.time_ns()
            answer = await agent.call(methods.AGENT_CLOCK_PING, own.ClockPingRequest())
            after = time.time_ns()
            ping = own.ClockPingResponse.FromString(answer)
            assert before <= ping.received_wall_ns <= ping.sent_wall_ns <= after
            assert 0 < ping.received_monotonic_ns <= ping.sent_monotonic_ns
            body = await agent.call(methods.AGENT_DESCRIBE, own.DescribeRequest())
            described = own.DescribeResponse.FromString(body)
            assert (described.host, dict(described.labels)) == ("h0", {"job": "llm"})
            assert described.limits.max_duration_ms == 9_000
            assert [t.source for t in described.targets] == ["static"]
            assert not described.is_busy

    run(scenario())


@pytest.mark.parametrize("capture_id", ["", "x" * 129])
def test_an_id_that_is_none_is_refused(capture_id: str) -> None:
    async def scenario() -> None:
        async with host(answering(xspace())) as agent:
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await agent.capture(capture_id)
            assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(scenario())
