"""One host of a capture: attempt by attempt until it is done, final, or out of attempts."""

import asyncio
import itertools
import math
import random
import time
from time import monotonic
from typing import Final

import grpc
import structlog

from podscope_collector.captures.addresses import Target
from podscope_collector.captures.admission import Reservation
from podscope_collector.captures.agents import PINGS, AgentLink
from podscope_collector.captures.channels import CHANNEL_OPTIONS
from podscope_collector.captures.clocks import between
from podscope_collector.captures.flight import Flight
from podscope_collector.captures.host_progress import HostProgress
from podscope_collector.captures.keeping import Kept
from podscope_collector.captures.limits import PIECE_BYTES
from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.profile_request import profile_request
from podscope_collector.captures.reasons import Failure, NextStep, classify, pause_s
from podscope_collector.captures.states import HostState, ReasonCode
from podscope_collector.captures.through_agent import AgentCapture
from podscope_collector.storage import StorageError
from podscope_protos.methods import PROFILE
from podscope_protos.v1 import profiler_service_pb2 as wire

log = structlog.get_logger(__name__)

# A stock server that waits for its start is busy until then, whatever becomes of the call: it is
# asked only when the start is near.
_ASKED_BEFORE_S: Final = 2.0


class HostCapture:
    """One host on its way through the states."""

    def __init__(self, flight: Flight, target: Target, name: str, attempts_before: int) -> None:
        self._flight = flight
        self._target = target
        self._attempts_before = attempts_before
        first = HostUpdate(target=target.address, host=name, attempts=attempts_before)
        self._progress = HostProgress(first, flight.on_update)

    @property
    def updates(self) -> tuple[HostUpdate, ...]:
        """The host as it is now, behind it the parts of its profile."""
        return (self._progress.now, *self._progress.parts)

    async def run(self) -> None:
        """Attempt until done, final, or out of attempts; only cancellation leaves here."""
        try:
            await self._attempts()
        except asyncio.CancelledError:
            if not self._progress.now.state.is_final:
                self._progress.end(
                    HostState.CANCELLED, ReasonCode.CANCELLED, "the capture was cancelled"
                )
            raise
        except StorageError as error:
            self._progress.end(HostState.FAILED, ReasonCode.STORAGE, str(error))
        except Exception as error:
            log.exception("host_capture_failed", target=self._target.address)
            message = f"unexpected {type(error).__name__}: {error}; please report this"
            self._progress.end(HostState.FAILED, ReasonCode.INTERNAL, message)

    async def _attempts(self) -> None:
        request = self._flight.request
        times = 1
        tries = 0
        for number in itertools.count(1):
            async with self._flight.width:
                result = await self._attempt(number, times)
            if isinstance(result, Kept):
                self._progress.done(result)
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
                self._progress.end(state, result.reason, result.message, result.grpc_code)
                return
            if is_empty:
                times *= 2
            self._progress.move(
                HostState.PENDING,
                ended_as=HostState.EMPTY if is_empty else HostState.FAILED,
                reason=result.reason,
                grpc_code=result.grpc_code,
                message=f"{result.message} (next try in {wait_s:.1f} s)",
            )
            await asyncio.sleep(wait_s)

    async def _attempt(self, number: int, times: int) -> Kept | Failure:
        self._progress.begin_attempt(self._attempts_before + number)
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
                self._progress.move(HostState.ARMED)
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
        window_ms = self._flight.window_ms(times)
        answer = await self._profile(channel, window_ms, share, is_ready=is_ready)
        if isinstance(answer, Failure):
            return answer
        self._flight.sizes.arrived(len(answer))
        self._progress.move(HostState.STORING, transfer="unary")
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
        self._progress.learn(clock=link.offset)
        flight.warm_up()
        capture = AgentCapture(
            link,
            f"{flight.session}/{self._progress.now.host}/{self._progress.now.attempts}",
            self._target,
            self._progress.now.host,
            flight.keeper,
            flight.fetches,
            self._progress.move,
        )
        wait_ms = flight.request.delay_ms if start_ns else 0
        result = await capture.run(
            profile_request(
                flight.request,
                flight.keeper,
                self._target,
                self._progress.now.host,
                duration_ms,
                start_ns,
            ),
            window_s=(duration_ms + wait_ms) / 1000,
            timeout_s=flight.request.timeout_ms / 1000,
            retry_empty=flight.request.retry_empty,
        )
        self._progress.learn(clock=between(capture.offset_before, capture.offset_after))
        return result

    async def _profile(
        self,
        channel: grpc.aio.Channel,
        duration_ms: int,
        share: Reservation | None,
        *,
        is_ready: bool,
    ) -> bytes | Failure:
        request = self._flight.request
        start_ns = self._flight.start_line.start_timestamp_ns()
        if is_ready:
            await asyncio.sleep(_until(start_ns) - _ASKED_BEFORE_S)
        window_s = duration_ms / 1000 + _until(start_ns)
        deadline_s = window_s + request.timeout_ms / 1000
        # Without a deserializer the bytes are handed on as they came. On the wire one message is
        # a stream of one; as such it is not read before we ask for it.
        method = channel.unary_stream(
            PROFILE,
            request_serializer=wire.ProfileRequest.SerializeToString,
            response_deserializer=None,
        )
        # On a channel that did not come up the call only tells why.
        if is_ready:
            self._progress.move(HostState.CAPTURING)
            self._flight.warm_up()
        over = asyncio.get_running_loop().call_later(
            window_s, self._progress.move, HostState.RECEIVING
        )
        sent = profile_request(
            request,
            self._flight.keeper,
            self._target,
            self._progress.now.host,
            duration_ms,
            start_ns,
        )
        # Its own deadline is kept here, since what it waits for room of ours is not its time.
        call = method(sent, timeout=deadline_s + request.timeout_ms / 1000)
        try:
            async with asyncio.timeout(deadline_s) as limit:
                # It comes with the answer, whose bytes need not be taken yet; a call that failed
                # has none.
                await call.initial_metadata()
                if share is not None and not call.done():
                    await _room(share, limit)
                    if call.done() and await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                        return _no_room(self._target.address)
                # What is no bytes is the stream's end; an error is raised there.
                answer = await call.read()
                if share is not None and isinstance(answer, bytes):
                    share.becomes(len(answer))
                if not isinstance(answer, bytes) or isinstance(await call.read(), bytes):
                    message = f"{self._target.address} sent no answer, or more than one"
                    return Failure(ReasonCode.CORRUPT, NextStep.RETRY, message)
        except TimeoutError:
            code, details = grpc.StatusCode.DEADLINE_EXCEEDED, None
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details()
        else:
            return answer
        finally:
            over.cancel()
            call.cancel()
        return classify(
            code,
            details,
            address=self._target.address,
            host=self._target.host,
            waited_s=round(deadline_s, 1),
            why_no_token=self._flight.agent_access.why_no_token(self._target.address),
        )

    async def _keep(self, answer: bytes) -> Kept | Failure:
        """Check and store the answer off the loop; a cancelled capture still keeps it."""
        storing = asyncio.ensure_future(asyncio.to_thread(self._kept, answer))
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError:
            result = await storing
            if isinstance(result, Kept):
                self._progress.done(result)
            raise

    def _kept(self, answer: bytes) -> Kept | Failure:
        flight = self._flight
        result = flight.keeper.keep(
            answer,
            host=self._progress.now.host,
            address=self._target.address,
            retry_empty=flight.request.retry_empty,
        )
        flight.memory.check()
        return result


async def _room(share: Reservation, limit: asyncio.Timeout) -> None:
    """Wait for room in memory, for which the limit stands still."""
    loop = asyncio.get_running_loop()
    when, began = limit.when(), loop.time()
    limit.reschedule(None)
    await share.arrives()
    if when is not None:
        limit.reschedule(when + loop.time() - began)


def _no_room(address: str) -> Failure:
    return Failure(
        ReasonCode.BUDGET,
        NextStep.RETRY,
        f"{address} had its profile ready, and it was not read in time: storing is slow here; "
        "capture fewer hosts at once, or give them more time (timeout)",
    )


def _until(start_ns: int) -> float:
    """Seconds until a Unix time; 0 when it has passed."""
    return max(0.0, start_ns / 1e9 - time.time())
