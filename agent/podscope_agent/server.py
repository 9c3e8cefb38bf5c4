"""Serves the profiler service of a host on one port, as a stock server would."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio
import psutil
from google.protobuf.message import DecodeError, Message

from podscope_agent.authentication import TokenRequired
from podscope_agent.delivery import Delivered, Delivery
from podscope_agent.errors import PortInUseError
from podscope_agent.health import HEALTH_SERVICE, Health
from podscope_agent.listening import bracketed, check_bind
from podscope_agent.live.exporter import LiveFigures
from podscope_agent.live.host_cpu import busy_ratio
from podscope_agent.live.model import CaptureEnd
from podscope_agent.memory import LARGE_BYTES, give_back_free_memory
from podscope_agent.monitor import host_use, monitor_response
from podscope_agent.own_service import OwnService
from podscope_agent.reflection import REFLECTION_SERVICES, Reflection
from podscope_agent.rpc import RpcFailure
from podscope_agent.session import HostSession, MergedCapture
from podscope_agent.worker_lists import WorkerLists
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire

_OPTIONS: Final = (
    # Two agents on one port would share captures at random.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", methods.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", methods.MAX_MESSAGE_BYTES),
)
_LONGEST_MONITOR_S: Final = 60.0
_Context = grpc.aio.ServicerContext[bytes, bytes]
M = TypeVar("M", bound=Message)
_Handler = Callable[[bytes, _Context], Awaitable[bytes]]


class AgentService:
    """The RPCs of one host; requests and answers are bytes, parsed only where they are read."""

    def __init__(
        self,
        session: HostSession,
        live: LiveFigures,
        delivery: Delivery,
        worker_lists: WorkerLists | None = None,
    ) -> None:
        """Answer for `session`, and `Monitor` from `live`; `delivery` hands profiles over.

        Without `worker_lists` they are refused.
        """
        self._worker_lists = worker_lists
        self._session = session
        self._live = live
        self._delivery = delivery

    async def profile(self, body: bytes, context: _Context) -> bytes:
        """Capture all processes of the host."""
        request = _parsed(wire.ProfileRequest, body)
        self._delivery.check(request)
        capture = self._session.capture(request, context.time_remaining())
        return await self._deliver(request, await capture, context)

    async def _deliver(
        self, request: wire.ProfileRequest, merged: MergedCapture, context: _Context
    ) -> bytes:
        # gRPC copies the answer to send it: what came in must be gone by then. Nobody else may
        # keep a name for it, not even the pool, which keeps arguments until after the result.
        cost = _told(merged.cost)
        owned = [merged]
        del merged
        delivered = await asyncio.to_thread(self._delivered, request, owned)
        context.set_trailing_metadata((*delivered.metadata, *cost))
        return delivered.response

    def _delivered(self, request: wire.ProfileRequest, owned: list[MergedCapture]) -> Delivered:
        delivered = self._delivery.deliver(request, owned.pop())
        if len(delivered.response) > LARGE_BYTES:
            give_back_free_memory()
        return delivered

    async def terminate(self, body: bytes, context: _Context) -> bytes:
        """End the capture of a session early."""
        request = _parsed(wire.TerminateRequest, body)
        await self._session.terminate(request.session_id)
        return b""

    async def monitor(self, body: bytes, context: _Context) -> bytes:
        """Live figures of the host and its devices; CPU time over the window that is asked for."""
        request = _parsed(wire.MonitorRequest, body)
        cpu_ratio = self._live.cpu.ratio()
        if request.duration_ms:
            before = psutil.cpu_times()
            left_s = context.time_remaining()
            window_s = min(request.duration_ms / 1000, _LONGEST_MONITOR_S)
            if left_s is not None:
                window_s = min(window_s, max(0.0, left_s - 1))
            await asyncio.sleep(window_s)
            cpu_ratio = busy_ratio(before, psutil.cpu_times())
        samples = await asyncio.to_thread(self._live.samples)
        response = monitor_response(
            samples,
            level=request.monitoring_level,
            with_timestamp=request.timestamp,
            host=host_use(cpu_ratio),
            step_time_s=self._session.inventory.step_time_s,
        )
        return response.SerializeToString()

    async def start_continuous(self, body: bytes, _context: _Context) -> bytes:
        """Start continuous profiling on every target that can."""
        await self._session.start_continuous(body)
        return b""

    async def snapshot(self, body: bytes, context: _Context) -> bytes:
        """One merged snapshot of the host."""
        # The clients of snapshots save the field `xspace`, and nothing else.
        request = wire.ProfileRequest(emit_xspace=True)
        return await self._deliver(request, await self._session.snapshot(body), context)

    async def stop_continuous(self, body: bytes, _context: _Context) -> bytes:
        """Stop continuous profiling."""
        await self._session.stop_continuous(body)
        return b""

    async def new_session(self, body: bytes, context: _Context) -> bytes:
        """Capture the hosts of a worker list, as far as this agent may call them."""
        asked = _parsed(wire.NewProfileSessionRequest, body)
        if self._worker_lists is not None:
            return (await self._worker_lists.capture(asked)).SerializeToString()
        text = "this agent serves one host: give every host as service address, no worker list"
        raise RpcFailure(grpc.StatusCode.UNIMPLEMENTED, text)

    async def keep_no_sessions(self, _body: bytes, _context: _Context) -> bytes:
        """As a stock server without storage, with the way to what is wanted."""
        text = "this agent keeps no sessions: open the files with XProf, or ask the collector"
        raise RpcFailure(grpc.StatusCode.UNIMPLEMENTED, text)


class OwnRpcs:
    """The agent's own service in bytes."""

    def __init__(self, service: OwnService) -> None:
        """Pass requests on to `service`."""
        self._service = service

    async def clock_ping(self, _body: bytes, _context: _Context) -> bytes:
        """The host's clocks, read before anything else is done."""
        return self._service.clock_ping(time.time_ns(), time.monotonic_ns())

    async def describe(self, body: bytes, _context: _Context) -> bytes:
        """What runs here and what the agent allows."""
        response = await self._service.describe(_parsed(own.DescribeRequest, body))
        return response.SerializeToString()

    async def capture(self, body: bytes, context: _Context) -> bytes:
        """Begin a capture, or tell what became of it."""
        request = _parsed(own.CaptureRequest, body)
        response = await self._service.capture(request, context.time_remaining())
        return response.SerializeToString()

    async def cancel(self, body: bytes, _context: _Context) -> bytes:
        """End a capture without a result."""
        response = await self._service.cancel(_parsed(own.CancelRequest, body))
        return response.SerializeToString()

    async def report_figures(self, body: bytes, _context: _Context) -> bytes:
        """Figures of the last capture, for metrics and `Monitor`."""
        request = _parsed(own.ReportFiguresRequest, body)
        return self._service.report_figures(request).SerializeToString()

    async def fetch(self, body: bytes, context: _Context) -> AsyncIterator[bytes]:
        """The profile of a capture in pieces."""
        try:
            async for piece in self._service.fetch(_parsed(own.FetchRequest, body)):
                yield piece.SerializeToString()
        except RpcFailure as failure:
            await _abort(context, failure)


def _told(cost: CaptureEnd) -> tuple[tuple[str, str], ...]:
    """What a capture took, as metadata of its answer."""
    return (
        ("podscope-wall-seconds", f"{cost.seconds:.3f}"),
        ("podscope-agent-cpu-seconds", f"{cost.cpu_seconds:.3f}"),
        ("podscope-target-seconds", f"{cost.target_seconds:.3f}"),
        ("podscope-bytes", str(cost.size_bytes)),
    )


def _parsed(kind: type[M], body: bytes) -> M:
    try:
        return kind.FromString(body)
    except DecodeError as error:
        text = f"not a {kind.DESCRIPTOR.name}"
        raise RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, text) from error


def _guarded(handler: _Handler) -> Any:
    """Turn failures into statuses, in this one place."""

    @functools.wraps(handler)
    async def guarded(body: bytes, context: _Context) -> bytes:
        try:
            return await handler(body, context)
        except RpcFailure as failure:
            await _abort(context, failure)

    return grpc.unary_unary_rpc_method_handler(guarded)


async def _abort(context: _Context, failure: RpcFailure) -> NoReturn:
    await context.abort(failure.status, failure.details)
    raise AssertionError  # abort raises; this tells the type checker


def _handlers(
    service: AgentService, own_rpcs: OwnRpcs, health: Health, reflection: Reflection
) -> "list[grpc.GenericRpcHandler[bytes, bytes]]":
    async def check(body: bytes, _context: _Context) -> bytes:
        return health.check(body)

    async def watch(body: bytes, _context: _Context) -> AsyncIterator[bytes]:
        async for status in health.watch(body):
            yield status

    async def reflect(requests: AsyncIterator[bytes], _context: _Context) -> AsyncIterator[bytes]:
        async for answer in reflection.stream(requests):
            yield answer

    services: Mapping[str, Mapping[str, _Handler]] = {
        methods.PROFILER_SERVICE: {
            "Profile": service.profile,
            "Terminate": service.terminate,
            "Monitor": service.monitor,
            "StartContinuousProfiling": service.start_continuous,
            "GetSnapshot": service.snapshot,
            "StopContinuousProfiling": service.stop_continuous,
        },
        methods.PROFILE_ANALYSIS: {
            "NewSession": service.new_session,
            "EnumSessions": service.keep_no_sessions,
            "GetSessionToolData": service.keep_no_sessions,
        },
        HEALTH_SERVICE: {"Check": check},
        methods.AGENT_SERVICE: {
            "ClockPing": own_rpcs.clock_ping,
            "Describe": own_rpcs.describe,
            "Capture": own_rpcs.capture,
            "Cancel": own_rpcs.cancel,
            "ReportFigures": own_rpcs.report_figures,
        },
    }
    handlers = {
        name: {method: _guarded(handler) for method, handler in table.items()}
        for name, table in services.items()
    }
    handlers[methods.AGENT_SERVICE]["Fetch"] = grpc.unary_stream_rpc_method_handler(own_rpcs.fetch)
    handlers[HEALTH_SERVICE]["Watch"] = grpc.unary_stream_rpc_method_handler(watch)
    for name in REFLECTION_SERVICES:
        handlers[name] = {"ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(reflect)}
    return [grpc.method_handlers_generic_handler(name, table) for name, table in handlers.items()]


class AgentServer:
    """A running profiler service of a host."""

    def __init__(
        self,
        service: AgentService,
        own_rpcs: OwnRpcs,
        host: str,
        port: int,
        token: str | None = None,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        """Prepare to serve on ``host:port``; port 0 picks a free one.

        With a token, calls must carry it; with credentials, the port speaks TLS alone.
        """
        self._credentials = credentials
        reflection = Reflection()
        self._health = Health(reflection.services)
        interceptors = () if token is None else (TokenRequired(token),)
        self._server = grpc.aio.server(interceptors=interceptors, options=_OPTIONS)
        self._server.add_generic_rpc_handlers(
            _handlers(service, own_rpcs, self._health, reflection)
        )
        self._host = host
        self.port = port

    async def start(self) -> None:
        """Listen.

        Raises:
            PortInUseError: the port is taken.
            ListenError: the address is none of this host's.
        """
        check_bind(self._host, self.port, "--port")
        try:
            where = bracketed(self._host, self.port)
            if self._credentials is None:
                bound = self._server.add_insecure_port(where)
            else:
                bound = self._server.add_secure_port(where, self._credentials)
        except RuntimeError as error:
            raise PortInUseError(self.port, "--port") from error
        if bound == 0:
            raise PortInUseError(self.port, "--port")
        self.port = bound
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, tell who watches, let running calls end within `grace_s`."""
        self._health.stop()
        await self._server.stop(grace_s)
