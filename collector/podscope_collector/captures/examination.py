"""Whether targets could be captured now: every step of the way tried, each failure with its fix."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

import grpc
import grpc.aio

from podscope_collector.agent_access import AgentAccess
from podscope_collector.captures.addresses import Target
from podscope_collector.captures.agent_description import note_description
from podscope_collector.captures.agents import AgentLink
from podscope_collector.captures.channels import CHANNEL_OPTIONS
from podscope_collector.captures.descriptors import affordable_width
from podscope_collector.captures.diagnosis import CheckState, Diagnosis, ServerKind, Verdict
from podscope_collector.captures.listeners import LocalPorts, loaded_libraries
from podscope_collector.captures.probing import (
    PROBE_MS,
    empty_session,
    framework_by_libraries,
    probe_session,
    read_recorded,
)
from podscope_collector.captures.reasons import Failure, classify
from podscope_collector.captures.request import DURATION_MS
from podscope_collector.captures.response import ResponseError, unwrap
from podscope_collector.captures.states import ReasonCode
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire

_MAX_WIDTH: Final = 128
_CONNECT_S: Final = 5.0
_CALL_S: Final = 5.0
_PROBE_GRACE_S: Final = 30.0
_FURTHER_PROBES: Final = 3
_HEALTH: Final = "/grpc.health.v1.Health/Check"
_SERVE: Final = "start its profiler server (jax.profiler.start_server(port)) or correct the port"


async def diagnose(
    targets: Sequence[Target],
    *,
    probe: bool = False,
    duration_ms: int = DURATION_MS,
    agent_access: AgentAccess | None = None,
    on_done: Callable[[Diagnosis], None] = lambda _: None,
) -> list[Diagnosis]:
    """Try every target, many at once; a target's trouble is a value.

    Args:
        targets: Whom to try.
        probe: Also capture for ``PROBE_MS``; what comes is thrown away.
        duration_ms: Of the capture that is planned: an agent tells whether it allows it.
        agent_access: For agents that serve TLS or ask for a token.
        on_done: Called with each target that is through.
    """
    width = asyncio.Semaphore(affordable_width(min(_MAX_WIDTH, max(1, len(targets)))))
    access = agent_access or AgentAccess()
    ports = await asyncio.to_thread(LocalPorts.look)

    async def one(target: Target) -> Diagnosis:
        async with width:
            examination = _Examination(target, access, ports, duration_ms, probe=probe)
            found = await examination.run()
        on_done(found)
        return found

    return list(await asyncio.gather(*(one(target) for target in targets)))


class _Examination:
    def __init__(
        self,
        target: Target,
        access: AgentAccess,
        ports: LocalPorts,
        duration_ms: int,
        *,
        probe: bool,
    ) -> None:
        self._access = access
        self._target = target
        self._ports = ports
        self._duration_ms = duration_ms
        self._addresses: list[str] = []
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._probe = probe
        self._found = Diagnosis(target.address)

    async def run(self) -> Diagnosis:
        if await self._name_resolves() and await self._accepts_connections():
            async with self._access.channel(self._target.address, CHANNEL_OPTIONS) as channel:
                await self._examine(channel)
        return self._found

    async def _name_resolves(self) -> bool:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                answers = await loop.getaddrinfo(
                    self._target.host, self._target.port, type=socket.SOCK_STREAM
                )
        except (OSError, TimeoutError) as error:
            why = getattr(error, "strerror", None) or "no answer from the resolver"
            self._found.add(
                "dns",
                CheckState.FAILED,
                f"the name '{self._target.host}' does not resolve ({why})",
                "check its spelling and the DNS of the machine that captures",
            )
            return False
        self._addresses = sorted({str(answer[4][0]) for answer in answers})
        self._found.add("dns", CheckState.OK, ", ".join(self._addresses[:4]))
        return True

    async def _accepts_connections(self) -> bool:
        began = time.monotonic()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(self._target.host, self._target.port)
        except ConnectionRefusedError:
            self._found.add(
                "tcp", CheckState.FAILED, f"nothing listens at {self._target.address}", _SERVE
            )
            return False
        except (OSError, TimeoutError) as error:
            why = getattr(error, "strerror", None) or f"no answer within {_CONNECT_S:g} s"
            self._found.add(
                "tcp",
                CheckState.FAILED,
                f"{self._target.address} cannot be reached ({why})",
                "check the address, firewalls and network policies",
            )
            return False
        self._found.add("tcp", CheckState.OK, f"{1000 * (time.monotonic() - began):.1f} ms")
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    async def _examine(self, channel: grpc.aio.Channel) -> None:
        if not await self._speaks_grpc(channel):
            return
        link = await AgentLink.open(channel, token=self._access.token_for(self._target.address))
        if link is not None:
            self._metadata = link.metadata
            self._found.kind = ServerKind.AGENT
            self._found.add("service", CheckState.OK, str(ServerKind.AGENT))
            await self._agent(channel, link)
        elif not await self._stock(channel):
            return
        await self._health(channel)
        self._port_is_its_own()
        has_failed = any(check.state is CheckState.FAILED for check in self._found.checks)
        if has_failed:
            # What has to be mended does not mend itself when another capture ends.
            self._found.verdict = Verdict.NOT_READY
        elif self._found.verdict is not Verdict.BUSY:
            self._found.verdict = Verdict.READY
        if self._probe and self._found.verdict is Verdict.READY:
            await self._capture(channel)

    async def _speaks_grpc(self, channel: grpc.aio.Channel) -> bool:
        try:
            async with asyncio.timeout(_CONNECT_S):
                await channel.channel_ready()
        except TimeoutError:
            self._found.add(
                "grpc",
                CheckState.FAILED,
                f"{self._target.address} takes connections and speaks no gRPC (HTTP/2)",
                "is this the port of the profiler? profilers serve without TLS",
            )
            return False
        self._found.add("grpc", CheckState.OK, "HTTP/2")
        return True

    async def _agent(self, channel: grpc.aio.Channel, link: AgentLink) -> None:
        if link.offset is not None:
            self._found.clock_offset_ms = link.offset.offset_ns / 1e6
            self._found.clock_error_ms = link.offset.error_ns / 1e6
            self._found.round_trip_ms = 2 * link.offset.error_ns / 1e6
            self._found.add(
                "clock",
                CheckState.OK,
                f"{self._found.clock_offset_ms:+.3f} ms, ± {self._found.clock_error_ms:.3f} ms",
            )
        try:
            planned = own.DescribeRequest(duration_ms=self._duration_ms).SerializeToString()
            answer = await self._call(channel, methods.AGENT_DESCRIBE, planned)
        except grpc.aio.AioRpcError as error:
            self._found.add("targets", CheckState.FAILED, f"it describes nothing ({_said(error)})")
            return
        described = own.DescribeResponse.FromString(answer)
        note_description(self._found, described)
        await self._monitor(channel)
        if described.is_busy:
            self._found.note_busy()
        else:
            self._found.add("busy", CheckState.OK, "no capture runs")

    async def _stock(self, channel: grpc.aio.Channel) -> bool:
        """Find out what kind of server it is; False when it is no profiler."""
        # Of a session that never was: a server that knows the method answers OK and forgets it.
        unheard_of = empty_session().session_id
        body = wire.TerminateRequest(session_id=unheard_of).SerializeToString()
        began = time.monotonic()
        try:
            await self._call(channel, methods.TERMINATE, body)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                self._found.kind = ServerKind.OTHER_GRPC
                detail = f"{self._target.address} is a gRPC server without a profiler"
                self._found.add("service", CheckState.FAILED, detail, _SERVE)
            else:
                failure = self._classified(error)
                self._found.add("service", CheckState.FAILED, failure.message)
            return False
        self._found.round_trip_ms = 1000 * (time.monotonic() - began)
        kind = await self._monitor(channel)
        listeners = self._ports.of(self._addresses, self._target.port) or set()
        is_stock = kind is ServerKind.STOCK
        if is_stock and len(listeners) == 1:
            libraries = await asyncio.to_thread(loaded_libraries, *listeners)
            kind = framework_by_libraries(libraries) or kind
        self._found.kind = kind
        self._found.add("service", CheckState.OK, str(kind))
        self._found.add("clock", CheckState.UNKNOWN, "only an agent can be asked for its clock")
        if is_stock:
            await self._is_free(channel)
        elif not self._probe:
            # Others would begin to record, or do what only their makers know.
            detail = "only --probe tells whether another capture runs"
            self._found.add("busy", CheckState.UNKNOWN, detail)
        return True

    async def _is_free(self, channel: grpc.aio.Channel) -> None:
        """Ask for a session of no length: only one that is open already is in its way."""
        try:
            await self._call(channel, methods.PROFILE, empty_session().SerializeToString())
        except grpc.aio.AioRpcError as error:
            failure = self._classified(error)
            if failure.reason is ReasonCode.BUSY:
                self._found.note_busy()
                return
            # One that is too old to send its profile cannot write it, and is free all the same.
            if error.code() is not grpc.StatusCode.INTERNAL:
                detail, fix = failure.message, ""
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    detail = f"{self._target.address} never ends a session of no length"
                    fix = "does its process stand still? look at it, or start it again"
                self._found.add("busy", CheckState.FAILED, detail, fix)
                return
        self._found.add("busy", CheckState.OK, "no capture runs")

    async def _monitor(self, channel: grpc.aio.Channel) -> ServerKind:
        """What ``Monitor`` answers tells the kinds of servers apart."""
        body = wire.MonitorRequest(duration_ms=0, monitoring_level=1).SerializeToString()
        try:
            await self._call(channel, methods.MONITOR, body)
        except grpc.aio.AioRpcError as error:
            is_absent = error.code() is grpc.StatusCode.UNIMPLEMENTED
            self._found.add(
                "monitor",
                CheckState.UNKNOWN,
                "no live figures" if is_absent else _said(error),
            )
            # The profilers of JAX and TensorFlow know the method and refuse it in these words.
            if is_absent and (error.details() or "") != "unimplemented.":
                return ServerKind.LIBRARY
            return ServerKind.STOCK
        self._found.add("monitor", CheckState.OK, "live figures")
        return ServerKind.TPU_WORKER

    async def _health(self, channel: grpc.aio.Channel) -> None:
        try:
            answer = await self._call(channel, _HEALTH, b"")
        except grpc.aio.AioRpcError as error:
            state = CheckState.UNKNOWN
            detail = "no health service, as on every stock server"
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                state, detail = CheckState.WARNING, _said(error)
            self._found.add("health", state, detail)
            return
        if answer == b"\x08\x01":
            self._found.add("health", CheckState.OK, "serving")
        else:
            self._found.add("health", CheckState.FAILED, "it says that it does not serve")

    def _port_is_its_own(self) -> None:
        """Two processes may listen on one port; captures then reach a random one of them."""
        listeners = self._ports.of(self._addresses, self._target.port)
        if listeners is None:
            detail = "another machine's ports cannot be seen; --probe asks on several connections"
            if not self._probe:
                self._found.add("port", CheckState.UNKNOWN, detail)
        else:
            self._port_has(listeners)

    def _port_has(self, processes: Collection[int]) -> None:
        if len(processes) == 1:
            self._found.add("port", CheckState.OK, "one process listens")
            return
        pids = ", ".join(str(pid) for pid in sorted(processes))
        self._found.verdict = Verdict.NOT_READY
        self._found.add(
            "port",
            CheckState.FAILED,
            f"{len(processes)} processes share port {self._target.port} (pids {pids}): a "
            "capture reaches a random one of them",
            "give each process a port of its own",
        )

    async def _capture(self, channel: grpc.aio.Channel) -> None:
        began = time.monotonic()
        try:
            answer = await self._call(
                channel,
                methods.PROFILE,
                probe_session().SerializeToString(),
                PROBE_MS / 1000 + _PROBE_GRACE_S,
            )
            unwrapped = unwrap(answer)
        except grpc.aio.AioRpcError as error:
            failure = self._classified(error)
            if failure.reason is ReasonCode.BUSY:
                self._found.note_busy()
                return
            self._found.verdict = Verdict.NOT_READY
            self._found.add("probe", CheckState.FAILED, failure.message)
            return
        except ResponseError as error:
            self._found.verdict = Verdict.NOT_READY
            detail = f"the capture came back as bytes that are no profile ({error})"
            self._found.add("probe", CheckState.FAILED, detail)
            return
        took_ms = 1000 * (time.monotonic() - began)
        if unwrapped.is_empty:
            self._found.add(
                "probe",
                CheckState.WARNING,
                f"a capture of {PROBE_MS} ms has no event",
                "is the job working? capture longer than one step",
            )
        else:
            detail = f"{PROBE_MS} ms captured in {took_ms:.0f} ms, {len(answer):,} bytes"
            self._found.add("probe", CheckState.OK, detail)
        if self._found.kind is not ServerKind.AGENT:
            await self._told_by(unwrapped.xspace)

    async def _told_by(self, profile: bytes | memoryview | None) -> None:
        """Learn from a probe whose profiler it is, and whether other processes answer there too."""
        recorded = await asyncio.to_thread(read_recorded, profile)
        if recorded is None:
            return
        if self._found.kind is ServerKind.STOCK:
            self._found.kind = recorded.framework or self._found.kind
        if any(check.name == "port" for check in self._found.checks):
            return
        process = recorded.process
        if process is None:
            detail = "another machine's ports cannot be seen, and its profiles name no process"
            self._found.add("port", CheckState.UNKNOWN, detail)
            return
        processes = {process}
        for _ in range(_FURTHER_PROBES):
            processes.add(await self._process_behind_another_connection() or process)
        if len(processes) > 1:
            self._port_has(processes)
        else:
            detail = f"{1 + _FURTHER_PROBES} connections reached one process"
            self._found.add("port", CheckState.OK, detail)

    async def _process_behind_another_connection(self) -> int | None:
        options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        async with self._access.channel(self._target.address, options) as channel:
            try:
                answer = await self._call(
                    channel,
                    methods.PROFILE,
                    probe_session().SerializeToString(),
                    PROBE_MS / 1000 + _PROBE_GRACE_S,
                )
                recorded = await asyncio.to_thread(read_recorded, unwrap(answer).xspace)
            except (grpc.aio.AioRpcError, ResponseError):
                return None
        return None if recorded is None else recorded.process

    def _classified(self, error: grpc.aio.AioRpcError) -> Failure:
        return classify(
            error.code(),
            error.details(),
            address=self._target.address,
            host=self._target.host,
            waited_s=_CALL_S,
            why_no_token=self._access.why_no_token(self._target.address),
        )

    async def _call(
        self, channel: grpc.aio.Channel, path: str, body: bytes, timeout_s: float = _CALL_S
    ) -> bytes:
        method = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        answer: bytes = await method(body, timeout=timeout_s, metadata=self._metadata)
        return answer


def _said(error: grpc.aio.AioRpcError) -> str:
    text = " ".join((error.details() or "").split())[:200]
    return f"{error.code().name}: {text}"
