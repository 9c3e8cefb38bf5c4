"""Whether targets could be captured now: every step of the way tried, each failure with its fix."""

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

import grpc
import grpc.aio

from podscope_collector.agent_access import AgentAccess
from podscope_collector.captures.addresses import Target
from podscope_collector.captures.agents import AgentLink
from podscope_collector.captures.channels import CHANNEL_OPTIONS
from podscope_collector.captures.descriptors import affordable_width
from podscope_collector.captures.diagnosis import CheckState, Diagnosis, ServerKind, Verdict
from podscope_collector.captures.listeners import local_listeners
from podscope_collector.captures.reasons import Failure, classify
from podscope_collector.captures.response import ResponseError, unwrap
from podscope_collector.captures.states import ReasonCode
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire

PROBE_MS: Final = 100
_MAX_WIDTH: Final = 128
_CONNECT_S: Final = 5.0
_CALL_S: Final = 5.0
_PROBE_GRACE_S: Final = 30.0
_HEALTH: Final = "/grpc.health.v1.Health/Check"
_SERVE: Final = "start its profiler server (jax.profiler.start_server(port)) or correct the port"


async def diagnose(
    targets: Sequence[Target],
    *,
    probe: bool = False,
    agent_access: AgentAccess | None = None,
    on_done: Callable[[Diagnosis], None] = lambda _: None,
) -> list[Diagnosis]:
    """Try every target, many at once; a target's trouble is a value.

    Args:
        targets: Whom to try.
        probe: Also capture for ``PROBE_MS``; what comes is thrown away.
        agent_access: For agents that serve TLS or ask for a token.
        on_done: Called with each target that is through.
    """
    width = asyncio.Semaphore(affordable_width(min(_MAX_WIDTH, max(1, len(targets)))))

    async def one(target: Target) -> Diagnosis:
        async with width:
            access = agent_access or AgentAccess()
            found = await _Examination(target, probe=probe, agent_access=access).run()
        on_done(found)
        return found

    return list(await asyncio.gather(*(one(target) for target in targets)))


class _Examination:
    def __init__(self, target: Target, *, probe: bool, agent_access: AgentAccess) -> None:
        self._access = agent_access
        self._target = target
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
        addresses = sorted({str(answer[4][0]) for answer in answers})
        self._found.add("dns", CheckState.OK, ", ".join(addresses[:4]))
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
        if self._found.verdict is not Verdict.BUSY and not has_failed:
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
            answer = await self._call(channel, methods.AGENT_DESCRIBE, b"")
        except grpc.aio.AioRpcError as error:
            self._found.add("targets", CheckState.FAILED, f"it describes nothing ({_said(error)})")
            return
        described = own.DescribeResponse.FromString(answer)
        self._targets_of(described)
        free = described.spool_free_bytes
        limit = described.limits.spool_bytes
        is_short = free < min(limit, 1 << 30)
        self._found.add(
            "disk",
            CheckState.WARNING if is_short else CheckState.OK,
            f"{free / 2**30:.1f} GiB free for profiles",
            "free disk on the host, or give the agent another --spool-dir" if is_short else "",
        )
        step_s = described.step_time.seconds
        if step_s:
            self._found.add("steps", CheckState.OK, f"{step_s:.3g} s each")
        else:
            self._found.add("steps", CheckState.UNKNOWN, "unknown: no capture with --steps")
        if described.is_busy:
            self._busy()
        else:
            self._found.add("busy", CheckState.OK, "no capture runs")

    def _targets_of(self, described: own.DescribeResponse) -> None:
        state = own.TargetDescription.State
        lost = [
            target
            for target in described.targets
            if target.state in {state.STATE_UNREACHABLE, state.STATE_INCOMPATIBLE}
        ]
        known = len(described.targets)
        if not known or len(lost) == known:
            why = f"; {lost[0].address}: {lost[0].detail}" if lost else ""
            self._found.add(
                "targets",
                CheckState.FAILED,
                f"the agent knows no process that can be captured{why}",
                "start the job's profiler server, or name it with --target",
            )
        elif lost:
            self._found.add(
                "targets",
                CheckState.WARNING,
                f"{len(lost)} of {known} processes cannot be captured; {lost[0].address}: "
                f"{lost[0].detail}",
                "see 'podscope agent targets' on the host",
            )
        else:
            self._found.add("targets", CheckState.OK, f"{known} processes")

    async def _stock(self, channel: grpc.aio.Channel) -> bool:
        """Find out what kind of server it is; False when it is no profiler."""
        # Of a session that never was: a server that knows the method answers OK and forgets it.
        body = wire.TerminateRequest(
            session_id=f"podscope-doctor-{secrets.token_hex(8)}"
        ).SerializeToString()
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
        monitored = await self._monitor(channel)
        self._found.kind = monitored
        self._found.add("service", CheckState.OK, str(monitored))
        self._found.add("clock", CheckState.UNKNOWN, "only an agent can be asked for its clock")
        if not self._probe:
            detail = "only --probe tells whether another capture runs"
            self._found.add("busy", CheckState.UNKNOWN, detail)
        return True

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
        listeners = local_listeners(self._target)
        if listeners is None:
            self._found.add("port", CheckState.UNKNOWN, "another machine's ports cannot be seen")
        elif len(listeners) > 1:
            pids = ", ".join(str(pid) for pid in sorted(listeners))
            self._found.add(
                "port",
                CheckState.FAILED,
                f"{len(listeners)} processes share port {self._target.port} (pids {pids}): a "
                "capture reaches a random one of them",
                "give each process a port of its own",
            )
        else:
            self._found.add("port", CheckState.OK, "one process listens")

    async def _capture(self, channel: grpc.aio.Channel) -> None:
        request = wire.ProfileRequest(
            duration_ms=PROBE_MS,
            session_id=f"podscope-doctor-{secrets.token_hex(8)}",
            host_name=self._target.address,
            emit_xspace=True,
            tools=["xplane.pb"],
        )
        request.opts.version = 1
        request.opts.duration_ms = PROBE_MS
        request.opts.host_tracer_level = 1
        request.opts.device_tracer_level = 1
        began = time.monotonic()
        try:
            answer = await self._call(
                channel,
                methods.PROFILE,
                request.SerializeToString(),
                PROBE_MS / 1000 + _PROBE_GRACE_S,
            )
            unwrapped = unwrap(answer)
        except grpc.aio.AioRpcError as error:
            failure = self._classified(error)
            if failure.reason is ReasonCode.BUSY:
                self._busy()
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
        size = len(answer)
        if unwrapped.is_empty:
            self._found.add(
                "probe",
                CheckState.WARNING,
                f"a capture of {PROBE_MS} ms has no event",
                "is the job working? capture longer than one step",
            )
        else:
            detail = f"{PROBE_MS} ms captured in {took_ms:.0f} ms, {size:,} bytes"
            self._found.add("probe", CheckState.OK, detail)

    def _busy(self) -> None:
        self._found.verdict = Verdict.BUSY
        self._found.add(
            "busy",
            CheckState.WARNING,
            "another capture runs there now",
            "wait for its end; a capture with several attempts waits by itself",
        )

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
