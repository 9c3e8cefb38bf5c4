"""Captures all targets at once: one event loop, one channel per host, failures as values."""

import asyncio
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

import grpc
import structlog

from podscope_collector.agent_access import AgentAccess
from podscope_collector.captured_hosts import CapturedHost
from podscope_collector.captures.addresses import Target
from podscope_collector.captures.admission import ByteBudget, ExpectedSize, Reservation, StartLine
from podscope_collector.captures.agents import PINGS, AgentLink, PingTurns
from podscope_collector.captures.clocks import between
from podscope_collector.captures.descriptors import affordable_width
from podscope_collector.captures.fitting import check_descriptors, check_together
from podscope_collector.captures.keeping import Keeper, Kept, warm_up
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
    agent_access: AgentAccess | None = None,
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
        agent_access: For agents that serve TLS or ask for a token.

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
    flight.agent_access = agent_access or AgentAccess()
    before = attempts_before or {}
    hosts = [
        _Host(flight, target, name, before.get(name, 0))
        for target, name in zip(targets, names, strict=True)
    ]
    started_at = datetime.now(UTC)
    async with asyncio.TaskGroup() as group:
        for host in hosts:
            group.create_task(host.run())
    updates = tuple(update for host in hosts for update in (host.now, *host.parts))
    await _note_hosts(flight.keeper, updates)
    state = decide(request.quorum, (host.now.state for host in hosts))
    return CaptureOutcome(session, state, updates, started_at, datetime.now(UTC))


async def _note_hosts(keeper: Keeper, updates: Sequence[HostUpdate]) -> None:
    """Leave the hosts' clocks and failures beside the profiles; a capture does not fail by that."""
    known = [
        CapturedHost(
            one.host,
            None if one.state is HostState.DONE else str(one.reason or one.state),
            None if one.clock is None else one.clock.offset_ns,
            None if one.clock is None else one.clock.error_ns,
        )
        for one in updates
    ]
    if not any(one.state is HostState.DONE for one in updates):
        # There is nothing that it would be beside.
        return
    try:
        await asyncio.to_thread(keeper.note_hosts, known)
    except StorageError as error:
        log.warning("hosts_not_noted", session=keeper.session, error=str(error))


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
        # Those that must start together were counted beforehand; others leave room for what a
        # message takes beyond its bytes while it arrives.
        room = limits.byte_budget if request.synchronized else limits.byte_budget * 3 // 4
        self.budget = ByteBudget(room)
        self.ping_turns = PingTurns()
        self.memory = MemoryGuard(room)
        self.fetches = asyncio.Semaphore(limits.fetches)
        self.agent_access = AgentAccess()
        self.host_bytes = request.expected_host_bytes or limits.expected_host_bytes
        self.sizes = ExpectedSize(self.budget, self.host_bytes)
        # Who wants all together wants those that are slow to connect too.
        patience_s = limits.connect_timeout_s if request.synchronized else limits.start_patience_s
        self.start_line = StartLine(min(count, width), patience_s, request.delay_ms)
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
            self._warming = loop.run_in_executor(None, warm_up)


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
        self.parts: tuple[HostUpdate, ...] = ()

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
        tries = 0
        for number in itertools.count(1):
            async with self._flight.width:
                result = await self._attempt(number, times)
            if isinstance(result, Kept):
                self._done(result)
                return
            window_s = self._flight.window_ms(times) / 1000
            wait_s = pause_s(result, number, window_s, random.random())  # noqa: S311 - jitter
            is_empty = result.reason is ReasonCode.EMPTY_TRACE
            left_s = self._flight.last_start - monotonic()
            if result.step is NextStep.WAIT and request.attempts > 1:
                # Nothing was tried yet: the other capture's end is waited for as long as this
                # one has time, and asked for once more when it is over.
                wait_s = min(wait_s, max(left_s, 0.0) or math.inf)
            else:
                tries += 1
            if result.step is NextStep.STOP or tries == request.attempts or wait_s > left_s:
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

    async def _attempt(self, number: int, times: int) -> Kept | Failure:
        self._attempt_began = datetime.now(UTC)
        self._attempt_timings = {}
        self._move(
            HostState.CONNECTING,
            attempts=self._attempts_before + number,
            started_at=self.now.started_at or self._attempt_began,
        )
        flight = self._flight
        link: AgentLink | None = None
        access, address = flight.agent_access, self._target.address
        async with access.channel(address, CHANNEL_OPTIONS) as channel:
            try:
                is_ready = await self._connect(channel)
                if is_ready:
                    link = await AgentLink.open(
                        channel,
                        pings=PINGS if flight.request.delay_ms else 1,
                        token=access.token_for(address),
                        turns=flight.ping_turns,
                    )
                    if flight.steps is not None:
                        refused = flight.steps.join(self._target.address, link)
                        if refused is not None:
                            return refused
            except TimeoutError:
                message = (
                    f"{self._target.address} does not answer within "
                    f"{flight.connect_timeout_s:g} s; check the address, firewalls and network "
                    "policies"
                )
                return Failure(ReasonCode.UNREACHABLE, NextStep.RETRY, message)
            finally:
                if number == 1:
                    flight.start_line.settle()
            if not is_ready:
                # It only tells why; that need not wait for the bytes of others.
                return await self._answered(channel, times, is_ready=False)
            if number == 1:
                self._move(HostState.ARMED)
            # A profile that comes in pieces takes no more memory than one of them.
            size = flight.host_bytes if link is None else min(PIECE_BYTES, flight.host_bytes)
            async with flight.budget.reserve(size) as share:
                if number == 1:
                    await flight.start_line.opened()
                if link is not None:
                    share.becomes(PIECE_BYTES)
                    return await self._through_agent(link, flight.window_ms(times))
                return await self._answered(channel, times, share, is_ready=True)

    async def _answered(
        self,
        channel: grpc.aio.Channel,
        times: int,
        share: Reservation | None = None,
        *,
        is_ready: bool,
    ) -> Kept | Failure:
        """Ask a stock server for its profile and keep it."""
        answer = await self._profile(channel, self._flight.window_ms(times), is_ready=is_ready)
        if isinstance(answer, Failure):
            return answer
        if share is not None:
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
                waited_s=round(deadline_s, 1),
                why_no_token=self._flight.agent_access.why_no_token(self._target.address),
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
        done: dict[str, Any] = {
            "reason": None,
            "message": None,
            "grpc_code": None,
            "finished_at": datetime.now(UTC),
        }
        # Before the host itself: whoever sees it done sees all of it.
        self.parts = tuple(
            replace(
                self.now,
                host=part.host,
                state=HostState.DONE,
                part_of=self.now.host,
                **done,
                **_stored(part),
            )
            for part in kept.parts
        )
        for part in self.parts:
            self._tell(part)
        self._move(HostState.DONE, **done, **_stored(kept))

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
        self._tell(self.now)

    def _tell(self, update: HostUpdate) -> None:
        try:
            self._flight.on_update(update)
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


def _stored(kept: Kept) -> dict[str, Any]:
    return {
        "bytes": kept.file.size,
        "sha256": kept.file.sha256,
        "file": kept.file.path,
        "warnings": kept.warnings,
        "window_ns": kept.window_ns,
    }


def _rounded(seconds: Mapping[str, float]) -> dict[str, int]:
    return {name: round(1000 * spent) for name, spent in seconds.items()}
