"""One attempt on a host with an agent: trigger, wait for the window, pull the profile in pieces."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from podscope_collector.captures.addresses import Target
from podscope_collector.captures.agents import AgentLink, IncompleteStreamError, State
from podscope_collector.captures.clocks import ClockOffset, better
from podscope_collector.captures.incoming import IncomingProfile
from podscope_collector.captures.keeping import Keeper, Kept
from podscope_collector.captures.reasons import Failure, NextStep, classify
from podscope_collector.captures.states import HostState, ReasonCode
from podscope_collector.host_names import part_name
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire

Move = Callable[..., Any]


class AgentCapture:
    """A capture by an agent.

    Args:
        link: The agent.
        capture_id: Distinct for every attempt of every host.
        target: Whom the messages name.
        host: Name within the session.
        keeper: Gets the profile.
        fetches: Bounds the profiles that come at once.
        move: Called with every new state of the host.

    Attributes:
        offset_before: Of the agent's clock when the window began.
        offset_after: And when it was over.
    """

    def __init__(
        self,
        link: AgentLink,
        capture_id: str,
        target: Target,
        host: str,
        keeper: Keeper,
        fetches: asyncio.Semaphore,
        move: Move,
    ) -> None:
        self._link = link
        self._id = capture_id
        self._target = target
        self._host = host
        self._keeper = keeper
        self._fetches = fetches
        self._move = move
        self.offset_before: ClockOffset | None = link.offset
        self.offset_after: ClockOffset | None = None

    async def run(
        self,
        request: wire.ProfileRequest,
        *,
        window_s: float,
        timeout_s: float,
        retry_empty: bool,
    ) -> Kept | Failure:
        """Capture and keep the profile; a failure is a value.

        Args:
            request: As it is sent to a stock server too.
            window_s: Until the window is over.
            timeout_s: What the agent gets beyond it.
            retry_empty: Whether a capture without events is tried again.

        Raises:
            StorageError: The profile cannot be written.
            asyncio.CancelledError: After the agent was told to stop.
        """
        deadline_s = time.monotonic() + window_s + timeout_s
        is_direct = self._keeper.repository_root_is_below(self._link.allowed_roots)
        try:
            self._move(HostState.CAPTURING, transfer="direct" if is_direct else "stream")
            await self._link.trigger(self._id, request.SerializeToString(), to_repository=is_direct)
            # The window is long enough to look at the clock again.
            before, _ = await asyncio.gather(self._measured(), asyncio.sleep(window_s))
            self.offset_before = better(self._link.offset, before)
            self._move(HostState.RECEIVING)
            ended = await self._link.outcome(self._id, deadline_s)
            self.offset_after = await self._measured()
            return await self._settle(ended, deadline_s, retry_empty=retry_empty)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                # Nobody waits for it any more; the host must not stay busy with it.
                await self._link.cancel(self._id)
            return self._classified(error.code(), error.details(), window_s + timeout_s)
        except IncompleteStreamError as error:
            message = f"{self._target.address}: {error}"
            return Failure(ReasonCode.RESET, NextStep.RETRY, message)
        except asyncio.CancelledError:
            await asyncio.shield(self._link.cancel(self._id))
            raise

    async def _settle(
        self, ended: own.CaptureResponse, deadline_s: float, *, retry_empty: bool
    ) -> Kept | Failure:
        address = self._target.address
        if ended.state == State.STATE_EMPTY:
            return Failure(
                ReasonCode.EMPTY_TRACE,
                NextStep.RETRY if retry_empty else NextStep.STOP,
                f"{address} saw no event in the window; is it working? capture longer or raise "
                "the tracer levels",
            )
        if ended.state != State.STATE_DONE:
            code = grpc.StatusCode.__members__.get(ended.grpc_code, grpc.StatusCode.INTERNAL)
            return self._classified(code, ended.message, deadline_s - time.monotonic())
        first = own.CapturedPart(size_bytes=ended.size_bytes, sha256=ended.sha256, path=ended.path)
        parts: list[Kept] = []
        # The host's own is the last: a worker that goes on finds it when all of them are there.
        for number, part in reversed(list(enumerate([first, *ended.more_parts]))):
            result = await self._part(number, part, deadline_s)
            if isinstance(result, Failure):
                await asyncio.to_thread(self._keeper.forget, parts)
                return result
            parts.insert(0, result)
        whole, *others = parts
        return replace(whole, parts=tuple(others))

    async def _part(self, number: int, part: own.CapturedPart, deadline_s: float) -> Kept | Failure:
        # The host itself is the first part, whatever an agent calls it.
        host = self._host if number == 0 else part_name(self._host, part.suffix or str(number))
        if part.path:
            self._move(HostState.STORING)
            return await asyncio.to_thread(
                self._keeper.written_by_agent,
                part.size_bytes,
                part.sha256,
                host,
                self._target.address,
            )
        async with self._fetches:
            incoming = await asyncio.to_thread(IncomingProfile, self._keeper.storage)
            try:
                sha256 = await self._link.fetch(
                    self._id,
                    lambda piece: asyncio.to_thread(incoming.write, piece),
                    deadline_s,
                    part=number,
                )
                self._move(HostState.STORING)
                return await asyncio.to_thread(self._keep, incoming, sha256, host)
            finally:
                await asyncio.to_thread(incoming.discard)

    def _keep(self, incoming: IncomingProfile, sha256: str, host: str) -> Kept | Failure:
        incoming.close()
        return self._keeper.keep_incoming(incoming, sha256, host, self._target.address)

    async def _measured(self) -> ClockOffset | None:
        try:
            return await self._link.measure_clock()
        except grpc.aio.AioRpcError:
            return None

    def _classified(self, code: grpc.StatusCode, details: str | None, waited_s: float) -> Failure:
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            text = " ".join((details or "").split())[:300]
            message = f"the agent at {self._target.address} refuses: {text}"
            return Failure(ReasonCode.BUDGET, NextStep.STOP, message, code.name)
        return classify(
            code,
            details,
            address=self._target.address,
            host=self._target.host,
            waited_s=round(max(0.0, waited_s), 1),
        )
