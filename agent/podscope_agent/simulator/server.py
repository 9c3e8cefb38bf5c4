"""Serves a pod: one gRPC server per host, all in one event loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import grpc

from podscope_agent.errors import PortInUseError, SimulationError
from podscope_agent.listening import bracketed, check_bind, held_port
from podscope_agent.simulator.faults import Fault
from podscope_agent.simulator.journal import Journal
from podscope_agent.simulator.pod import Pod
from podscope_agent.simulator.profiler import Handler, HostProfiler
from podscope_agent.simulator.proxy import FlakyRelay

_OPTIONS: Final = (
    # Two servers on one port would share the captures between them at random.
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
_BUILDERS: Final = 2
_LAST_PORT: Final = 65_535


@dataclass(frozen=True)
class ServedHost:
    """A host of the pod and where it is served.

    Attributes:
        index: Number within the pod.
        hostname: Name that its traces carry.
        address: ``host:port``; nothing listens there when its fault is ``refuse``.
        fault: What goes wrong there.
    """

    index: int
    hostname: str
    address: str
    fault: Fault | None


class _MethodHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic only in stubs
    """Finds methods by their full path; the others are unimplemented, without details."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = {
            path: grpc.unary_unary_rpc_method_handler(handler) for path, handler in handlers.items()
        }
        self._unknown = grpc.unary_unary_rpc_method_handler(_unimplemented)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return self._handlers.get(handler_call_details.method, self._unknown)


async def _unimplemented(raw: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    del raw
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
    return b""


class PodServer:
    """The servers of a pod.

    Args:
        pod: What to simulate.
        host: Address to listen on.
        port_base: Port of host 0, the others follow; 0 takes free ports.
        faults: Host index -> what goes wrong there.
        journal: Gets every request for a profile.
    """

    def __init__(
        self,
        pod: Pod,
        host: str = "127.0.0.1",
        port_base: int = 0,
        faults: Mapping[int, Fault] | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._journal = journal
        check_ports(port_base, pod.hosts)
        self._pod, self._host, self._port_base = pod, host, port_base
        self._faults = dict(faults or {})
        self._servers: list[grpc.aio.Server] = []
        self._profilers: dict[int, HostProfiler] = {}
        self._relays: list[FlakyRelay] = []
        self._refusing: list[socket.socket] = []
        self._executor = ThreadPoolExecutor(_BUILDERS, "xspace")
        self.hosts: tuple[ServedHost, ...] = ()

    async def start(self) -> None:
        """Listen on all ports.

        Raises:
            PortInUseError: One of them is taken.
            ListenError: The address cannot be listened on.
        """
        # Built once, before the first request: every host needs both.
        _ = self._pod.timeline.steps, self._pod.hlo
        served = []
        try:
            for index in range(self._pod.hosts):
                port = await self._start_host(index)
                address = bracketed(self._host, port)
                fault = self._faults.get(index)
                served.append(ServedHost(index, self._pod.hostname(index), address, fault))
        except BaseException:
            await self.stop()
            raise
        self.hosts = tuple(served)

    async def stop(self) -> None:
        """Drop all connections and stop listening."""
        for relay in self._relays:
            await relay.stop()
        for held in self._refusing:
            held.close()
        await asyncio.gather(*(server.stop(None) for server in self._servers))
        self._executor.shutdown(wait=False, cancel_futures=True)

    def is_capturing(self, host: int) -> bool:
        """Whether a capture waits or runs at a host of this number."""
        return host in self._profilers and self._profilers[host].is_capturing

    def _refusing_port(self) -> int:
        """A port of this host's own, which no other host gets."""
        held = held_port(self._host)
        self._refusing.append(held)
        return int(held.getsockname()[1])

    async def _start_host(self, index: int) -> int:
        port = self._port_base and self._port_base + index
        fault = self._faults.get(index)
        if fault is not None and fault.kind == "refuse":
            return port or self._refusing_port()
        profiler = HostProfiler(self._pod, index, self._executor, fault, self._journal)
        self._profilers[index] = profiler
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((_MethodHandler(profiler.handlers),))
        check_bind(self._host, port, "--port-base")
        if fault is None or fault.kind not in {"reset", "slow"}:
            port = _bind(server, self._host, port)
        else:
            rate = fault.number if fault.kind == "slow" else None
            profiler.relay = FlakyRelay(_bind(server, "127.0.0.1", 0), rate)
            self._relays.append(profiler.relay)
            port = await profiler.relay.start(self._host, port)
        await server.start()
        self._servers.append(server)
        return port


@contextlib.asynccontextmanager
async def serving(
    pod: Pod,
    host: str = "127.0.0.1",
    port_base: int = 0,
    faults: Mapping[int, Fault] | None = None,
    journal: Journal | None = None,
) -> AsyncIterator[PodServer]:
    """Serve a pod from the running event loop for as long as the block lasts."""
    server = PodServer(pod, host, port_base, faults, journal)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def check_ports(port_base: int, hosts: int) -> None:
    """Raise `SimulationError` unless every host has a port."""
    if port_base and not 1 <= port_base <= _LAST_PORT - hosts + 1:
        msg = (
            f"port base {port_base} with {hosts} hosts is out of range; "
            f"give 1 to {_LAST_PORT - hosts + 1}, or 0 for free ports"
        )
        raise SimulationError(msg)


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    try:
        return server.add_insecure_port(bracketed(host, port))
    except RuntimeError as error:
        raise PortInUseError(port, "--port-base") from error
