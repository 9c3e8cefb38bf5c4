"""Captures all targets at once: one event loop, one channel per host, failures as values."""

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Final

import grpc
import structlog

from podscope_collector.agent_tls import open_channel
from podscope_collector.captures.addresses import Target
from podscope_collector.captures.admission import ByteBudget, ExpectedSize, Reservation, StartLine
from podscope_collector.captures.agents import PINGS, AgentLink, PingTurns
from podscope_collector.captures.clocks import between
from podscope_collector.captures.descriptors import affordable_width
from podscope_collector.captures.fitting import (
    check_descriptors,
    check_together,
    expected_bytes,
)
from podscope_collector.captures.keeping import Keeper, Kept
from podscope_collector.captures.limits import PIECE_BYTES, FanoutLimits
from podscope_collector.captures.outcome import Attempt, CaptureOutcome, HostUpdate
from podscope_collector.captures.profile_request import profile_request
from podscope_collector.captures.quorum import decide
from podscope_collector.captures.reasons import Failure, NextStep, classify, pause_s
from podscope_collector.captures.request import MAX_DURATION_MS, CaptureRequest
from podscope_collector.captures.states import HostState, ReasonCode
from podscope_collector.captures.step_window import StepWindow
from podscope_collector.captures.through_agent import AgentCapture
from podscope_collector.host_names import distinct_host_names
from podscope_collector.memory import MemoryGuard
from podscope_collector.storage import Storage, StorageError
from podscope_protos.methods import MAX_MESSAGE_BYTES, PROFILE
from podscope_protos.v1 import profiler_service_pb2 as wire

log = structlog.get_logger(__name__)

OnUpdate = Callable[[HostUpdate], None]

CHANNEL_OPTIONS: Final = (
    # A proxy of the environment is for the web, never for the hosts of a job.
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Connections of an earlier capture would bring their back-off with them.
    ("grpc.use_local_subchannel_pool", 1),
)


DEFAULT_LIMITS: Final = FanoutLimits()


async def run_capture(
    request: CaptureRequest,
    targets: Sequence[Target],
    storage: Storage,
    session: str,
    on_update: OnUpdate,
    *,
    host_names: Sequence[str] | None = None,
    attempts_before: Mapping[str, int] | None = None,
    limits: FanoutLimits = DEFAULT_LIMITS,
    agent_token: str | None = None,
    agent_tls: grpc.ChannelCredentials | None = None,
) -> CaptureOutcome:
    """Profile every target at once and store what they send.

    A host's failure is its own: it is in the outcome, never raised. A host that is done is never
    captured again.

    Args:
        request: Window, options, attempts, quorum.
        targets: The hosts to capture; on a retry those that failed.
        storage: Gets one XSpace per host, and the bytes that were none under ``rejected``.
        session: From ``storage.new_session()``.
        on_update: Called on the event loop at every change of a host, so it must not block.
        host_names: Names of the hosts within the session, in the order of the targets; made
            from the addresses when they are not given.
        attempts_before: By host name, the attempts of earlier runs, for the count to go on.
        limits: Width and memory.
        agent_token: For agents that ask for one.
        agent_tls: Given, every target is spoken to with TLS, none in plain text.

    Raises:
        DoesNotFitError: The request wants all hosts together, and that is impossible here.
        asyncio.CancelledError: The caller cancelled; all RPCs are cancelled first, and every
            host has got its final update.
    """
    host_bytes = request.expected_host_bytes or limits.expected_host_bytes
    if request.synchronized:
        check_together(targets, host_bytes, byte_budget=limits.byte_budget, width=limits.width)
        check_descriptors(len(targets))
    names = distinct_host_names(target.shown_name for target in targets)
    if host_names is not None:
        names = list(host_names)
    flight = _Flight(request, session, on_update, limits, len(targets), Keeper(storage, session))
    flight.agent_token = agent_token
    flight.agent_tls = agent_tls
    before = attempts_before or {}
    hosts = [
        _Host(flight, target, name, before.get(name, 0))
        for target, name in zip(targets, names, strict=True)
    ]
    started_at = datetime.now(UTC)
    async with asyncio.TaskGroup() as group:
        for host in hosts:
            group.create_task(host.run())
    updates = tuple(host.now for host in hosts)
    state = decide(request.quorum, (update.state for update in updates))
    return CaptureOutcome(session, state, updates, started_at, datetime.now(UTC))


class _Flight:
    """What the hosts of one capture share."""

    def __init__(
        self,
        request: CaptureRequest,
        session: str,
        on_update: OnUpdate,
        limits: FanoutLimits,
        count: int,
        keeper: Keeper,
    ) -> None:
        self.request = request
        self.session = session
        self.on_update = on_update
        self.limits = limits
        self.keeper = keeper
        width = affordable_width(min(count, limits.width))
        self.width = asyncio.Semaphore(width)
        self.budget = ByteBudget(limits.byte_budget)
        self.ping_turns = PingTurns()
        self.memory = MemoryGuard(limits.byte_budget)
        self.fetches = asyncio.Semaphore(limits.fetches)
        self.agent_token: str | None = None
        self.agent_tls: grpc.ChannelCredentials | None = None
        self.host_bytes = request.expected_host_bytes or limits.expected_host_bytes
        self.sizes = ExpectedSize(self.budget, self.host_bytes)
        at_once = max(1, limits.byte_budget // self.host_bytes)
        # Who wants all together wants those that are slow to connect too.
        patience_s = limits.connect_timeout_s if request.synchronized else limits.start_patience_s
        expected = count if request.synchronized else min(width, at_once)
        self.start_line = StartLine(expected, patience_s, request.delay_ms)
        self.steps = (
            None if request.steps is None else StepWindow(request.steps, request.duration_ms)
        )
        whole_ms = request.delay_ms + request.duration_ms + request.timeout_ms
        # No attempt begins later than this; one that has begun has its own deadline.
        self.last_start = monotonic() + whole_ms / 1000
        # Who gives a host little time to answer means its connection too.
        self.connect_timeout_s = min(limits.connect_timeout_s, max(1.0, request.timeout_ms / 1000))
        self._warming: asyncio.Future[None] | None = None

    def window_ms(self, times: int) -> int:
        """How long a host records; hosts without events get ``times`` the window."""
        window_ms = self.request.duration_ms if self.steps is None else self.steps.duration_ms
        return min(times * window_ms, MAX_DURATION_MS)

    def warm_up(self) -> None:
        """Load the check of XSpaces while the windows are open; once."""
        if self._warming is None:
            loop = asyncio.get_running_loop()
            self._warming = loop.run_in_executor(None, self.keeper.warm_up)


class _Host:
    """One host on its way through the states."""

    def __init__(self, flight: _Flight, target: Target, name: str, attempts_before: int) -> None:
        self._flight = flight
        self._target = target
        self._attempts_before = attempts_before
        self._in_state_since = monotonic()
        self._timings: dict[str, float] = {}
        self._attempt_timings: dict[str, float] = {}
        self._attempt_began: datetime | None = None
        self.now = HostUpdate(target=target.address, host=name, attempts=attempts_before)

    async def run(self) -> None:
        """Attempt until done, final, or out of attempts; only cancellation leaves here."""
        try:
            await self._attempts()
        except asyncio.CancelledError:
            if not self.now.state.is_final:
                self._end(HostState.CANCELLED, ReasonCode.CANCELLED, "the capture was cancelled")
            raise
        except StorageError as error:
            self._end(HostState.FAILED, ReasonCode.STORAGE, str(error))
        except Exception as error:
            log.exception("host_capture_failed", target=self._target.address)
            message = f"unexpected {type(error).__name__}: {error}; please report this"
            self._end(HostState.FAILED, ReasonCode.INTERNAL, message)

    async def _attempts(self) -> None:
        request = self._flight.request
        times = 1
        for number in range(1, request.attempts + 1):
            async with (
                self._flight.width,
                self._flight.budget.reserve(
                    expected_bytes(self._target, self._flight.host_bytes)
                ) as share,
            ):
                result = await self._attempt(number, times, share)
            if isinstance(result, Kept):
                self._done(result)
                return
            window_s = self._flight.window_ms(times) / 1000
            wait_s = pause_s(result, number, window_s, random.random())  # noqa: S311 - jitter
            is_empty = result.reason is ReasonCode.EMPTY_TRACE
            late = monotonic() + wait_s > self._flight.last_start
            if result.step is NextStep.STOP or number == request.attempts or late:
                state = HostState.EMPTY if is_empty else HostState.FAILED
                self._end(state, result.reason, result.message, result.grpc_code)
                return
            if is_empty:
                times *= 2
            self._move(
                HostState.PENDING,
                ended_as=HostState.EMPTY if is_empty else HostState.FAILED,
                reason=result.reason,
                grpc_code=result.grpc_code,
                message=f"{result.message} (next try in {wait_s:.1f} s)",
            )
            await asyncio.sleep(wait_s)

    async def _attempt(self, number: int, times: int, share: Reservation) -> Kept | Failure:
        self._attempt_began = datetime.now(UTC)
        self._attempt_timings = {}
        self._move(
            HostState.CONNECTING,
            attempts=self._attempts_before + number,
            started_at=self.now.started_at or self._attempt_began,
        )
        line = self._flight.start_line
        in_line = number == 1
        link: AgentLink | None = None
        async with open_channel(
            self._target.address, self._flight.agent_tls, CHANNEL_OPTIONS
        ) as channel:
            try:
                is_ready = await self._connect(channel)
                if is_ready:
                    link = await AgentLink.open(
                        channel,
                        pings=PINGS if self._flight.request.delay_ms else 1,
                        token=self._flight.agent_token,
                        turns=self._flight.ping_turns,
                    )
                    if self._flight.steps is not None:
                        refused = self._flight.steps.join(self._target.address, link)
                        if refused is not None:
                            return refused
                if is_ready and in_line:
                    self._move(HostState.ARMED)
                    in_line = False
                    await line.arrive()
            except TimeoutError:
                seconds = self._flight.connect_timeout_s
                message = (
                    f"{self._target.address} does not answer within {seconds:g} s; check the "
                    "address, firewalls and network policies"
                )
                return Failure(ReasonCode.UNREACHABLE, NextStep.RETRY, message)
            finally:
                if in_line:
                    line.leave()
            duration_ms = self._flight.window_ms(times)
            if link is not None:
                # Its profile comes in pieces: the memory that was set aside is not needed.
                share.becomes(PIECE_BYTES)
                return await self._through_agent(link, duration_ms)
            answer = await self._profile(channel, duration_ms, is_ready=is_ready)
        if isinstance(answer, Failure):
            return answer
        share.becomes(len(answer))
        self._flight.sizes.arrived(len(answer))
        self._move(HostState.STORING, transfer="unary")
        return await self._keep(answer)

    async def _connect(self, channel: grpc.aio.Channel) -> bool:
        """Whether the channel came up; if not, a call on it fails at once and says why."""
        ready, broken = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE
        async with asyncio.timeout(self._flight.connect_timeout_s):
            state = channel.get_state(try_to_connect=True)
            while state not in {ready, broken}:
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
        return state is ready

    async def _through_agent(self, link: AgentLink, duration_ms: int) -> Kept | Failure:
        flight = self._flight
        start_ns = flight.start_line.start_timestamp_ns()
        if start_ns and link.offset is not None:
            # The same instant, as the agent's own clock will show it.
            start_ns += link.offset.offset_ns
        self.now = replace(self.now, clock=link.offset)
        flight.warm_up()
        capture = AgentCapture(
            link,
            f"{flight.session}/{self.now.host}/{self.now.attempts}",
            self._target,
            self.now.host,
            flight.keeper,
            flight.fetches,
            self._move,
        )
        wait_ms = flight.request.delay_ms if start_ns else 0
        result = await capture.run(
            profile_request(
                flight.request, flight.keeper, self._target, self.now.host, duration_ms, start_ns
            ),
            window_s=(duration_ms + wait_ms) / 1000,
            timeout_s=flight.request.timeout_ms / 1000,
            retry_empty=flight.request.retry_empty,
        )
        self.now = replace(self.now, clock=between(capture.offset_before, capture.offset_after))
        return result

    async def _profile(
        self, channel: grpc.aio.Channel, duration_ms: int, *, is_ready: bool
    ) -> bytes | Failure:
        request = self._flight.request
        start_ns = self._flight.start_line.start_timestamp_ns()
        window_s = (duration_ms + (request.delay_ms if start_ns else 0)) / 1000
        deadline_s = window_s + request.timeout_ms / 1000
        # Without a deserializer the bytes are handed on as they came.
        call = channel.unary_unary(
            PROFILE,
            request_serializer=wire.ProfileRequest.SerializeToString,
            response_deserializer=None,
        )
        # On a channel that did not come up the call only tells why.
        if is_ready:
            self._move(HostState.CAPTURING)
            self._flight.warm_up()
        over = asyncio.get_running_loop().call_later(window_s, self._move, HostState.RECEIVING)
        try:
            answer: bytes = await call(
                profile_request(
                    request,
                    self._flight.keeper,
                    self._target,
                    self.now.host,
                    duration_ms,
                    start_ns,
                ),
                timeout=deadline_s,
            )
        except grpc.aio.AioRpcError as error:
            return classify(
                error.code(),
                error.details(),
                address=self._target.address,
                host=self._target.host,
                waited_s=math.ceil(deadline_s),
            )
        else:
            return answer
        finally:
            over.cancel()

    async def _keep(self, answer: bytes) -> Kept | Failure:
        """Check and store the answer off the loop; a cancelled capture still keeps it."""
        storing = asyncio.ensure_future(asyncio.to_thread(self._kept, answer))
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError:
            result = await storing
            if isinstance(result, Kept):
                self._done(result)
            raise

    def _kept(self, answer: bytes) -> Kept | Failure:
        flight = self._flight
        result = flight.keeper.keep(
            answer,
            host=self.now.host,
            address=self._target.address,
            retry_empty=flight.request.retry_empty,
        )
        flight.memory.check()
        return result

    # -- updates ------------------------------------------------------------------------------

    def _done(self, kept: Kept) -> None:
        self._move(
            HostState.DONE,
            reason=None,
            message=None,
            grpc_code=None,
            bytes=kept.file.size,
            sha256=kept.file.sha256,
            file=kept.file.path,
            warnings=kept.warnings,
            window_ns=kept.window_ns,
            finished_at=datetime.now(UTC),
        )

    def _end(
        self, state: HostState, reason: ReasonCode, message: str, grpc_code: str | None = None
    ) -> None:
        self._move(
            state,
            reason=reason,
            message=message,
            grpc_code=grpc_code,
            finished_at=datetime.now(UTC),
        )

    def _move(
        self, state: HostState, *, ended_as: HostState | None = None, **changes: object
    ) -> None:
        now = monotonic()
        before = str(self.now.state)
        for timings in (self._timings, self._attempt_timings):
            timings[before] = timings.get(before, 0.0) + now - self._in_state_since
        self._in_state_since = now
        self.now = replace(self.now, state=state, timings_ms=_rounded(self._timings), **changes)  # type: ignore[arg-type] # checked by replace itself
        if state.is_final or ended_as is not None:
            self._end_attempt(ended_as or state)
        try:
            self._flight.on_update(self.now)
        except Exception:
            log.exception("update_callback_failed", target=self._target.address)

    def _end_attempt(self, state: HostState) -> None:
        """Add the attempt that is over to the history; a host may end between two."""
        if self._attempt_began is None:
            return
        attempt = Attempt(
            number=self.now.attempts,
            state=state,
            reason=self.now.reason,
            message=self.now.message,
            grpc_code=self.now.grpc_code,
            bytes=self.now.bytes,
            timings_ms=_rounded(self._attempt_timings),
            started_at=self._attempt_began,
            finished_at=datetime.now(UTC),
        )
        self._attempt_began = None
        self.now = replace(self.now, history=(*self.now.history, attempt))


def _rounded(seconds: Mapping[str, float]) -> dict[str, int]:
    return {name: round(1000 * spent) for name, spent in seconds.items()}
