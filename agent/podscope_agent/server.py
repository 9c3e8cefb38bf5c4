"""Serves the profiler service of a host on one port, as a stock server would."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from podscope_agent.errors import PortInUseError
from podscope_agent.listening import bracketed, check_bind
from podscope_agent.live.exporter import LiveFigures
from podscope_agent.monitor import monitor_response
from podscope_agent.session import HostSession, RpcFailure
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire

_OPTIONS: Final = (
    # Two agents on one port would share captures at random.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", methods.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", methods.MAX_MESSAGE_BYTES),
)
_HEALTH_SERVICE: Final = "grpc.health.v1.Health"
_SERVING: Final = b"\x08\x01"
"""A HealthCheckResponse with status SERVING; its one field is not worth a dependency."""

_Context = grpc.aio.ServicerContext[bytes, bytes]
M = TypeVar("M", bound=Message)
_Handler = Callable[[bytes, _Context], Awaitable[bytes]]


class AgentService:
    """The RPCs of one host; requests and answers are bytes, parsed only where they are read."""

    def __init__(self, session: HostSession, live: LiveFigures) -> None:
        """Answer for `session`, and `Monitor` from `live`."""
        self._session = session
        self._live = live

    async def profile(self, body: bytes, context: _Context) -> bytes:
        """Capture all processes of the host."""
        request = _parsed(wire.ProfileRequest, body)
        response = await self._session.profile(request, context.time_remaining())
        return await asyncio.to_thread(response.SerializeToString)

    async def terminate(self, body: bytes, context: _Context) -> bytes:
        """End the capture of a session early."""
        request = _parsed(wire.TerminateRequest, body)
        await self._session.terminate(request.session_id)
        return b""

    async def monitor(self, body: bytes, context: _Context) -> bytes:
        """Live figures of the host's devices."""
        request = _parsed(wire.MonitorRequest, body)
        samples = await asyncio.to_thread(self._live.samples)
        response = monitor_response(
            samples, level=request.monitoring_level, with_timestamp=request.timestamp
        )
        if response is None:
            raise RpcFailure(grpc.StatusCode.UNIMPLEMENTED, "unimplemented.")
        return response.SerializeToString()

    async def start_continuous(self, body: bytes, _context: _Context) -> bytes:
        """Start continuous profiling on every target that can."""
        await self._session.start_continuous(body)
        return b""

    async def snapshot(self, body: bytes, _context: _Context) -> bytes:
        """One merged snapshot of the host."""
        response = await self._session.snapshot(body)
        return response.SerializeToString()

    async def stop_continuous(self, body: bytes, _context: _Context) -> bytes:
        """Stop continuous profiling."""
        await self._session.stop_continuous(body)
        return b""

    async def new_session(self, body: bytes, context: _Context) -> bytes:
        """Refuse with advice: an agent stands for one host, a pod is the collector's part."""
        _parsed(wire.NewProfileSessionRequest, body)
        text = "this agent serves one host: give every host as service address, no worker list"
        raise RpcFailure(grpc.StatusCode.UNIMPLEMENTED, text)

    async def check_health(self, body: bytes, _context: _Context) -> bytes:
        """Answer the standard health check for the server and for its services."""
        asked = body[2:].decode(errors="replace") if len(body) > 1 else ""
        if asked not in {"", methods.PROFILER_SERVICE}:
            raise RpcFailure(grpc.StatusCode.NOT_FOUND, f"no service '{asked}'")
        return _SERVING


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


def _handlers(service: AgentService) -> "list[grpc.GenericRpcHandler[bytes, bytes]]":
    services: Mapping[str, Mapping[str, _Handler]] = {
        methods.PROFILER_SERVICE: {
            "Profile": service.profile,
            "Terminate": service.terminate,
            "Monitor": service.monitor,
            "StartContinuousProfiling": service.start_continuous,
            "GetSnapshot": service.snapshot,
            "StopContinuousProfiling": service.stop_continuous,
        },
        methods.PROFILE_ANALYSIS: {"NewSession": service.new_session},
        _HEALTH_SERVICE: {"Check": service.check_health},
    }
    return [
        grpc.method_handlers_generic_handler(
            name, {method: _guarded(handler) for method, handler in handlers.items()}
        )
        for name, handlers in services.items()
    ]


class AgentServer:
    """A running profiler service of a host."""

    def __init__(self, service: AgentService, host: str, port: int) -> None:
        """Prepare to serve on ``host:port``; port 0 picks a free one."""
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(_handlers(service))
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
            bound = self._server.add_insecure_port(bracketed(self._host, self.port))
        except RuntimeError as error:
            raise PortInUseError(self.port, "--port") from error
        if bound == 0:
            raise PortInUseError(self.port, "--port")
        self.port = bound
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, let the running capture end within `grace_s`, then cancel it."""
        await self._server.stop(grace_s)
