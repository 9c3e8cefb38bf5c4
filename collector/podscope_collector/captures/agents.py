"""Captures through podscope agents: their clock, a small trigger, and the profile as a stream."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import grpc
import grpc.aio

from podscope_collector.captures.clocks import ClockOffset, Ping, offset_of
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own

PINGS: Final = 8
FETCH_BREAKS: Final = 5
"""Connections that may break during one fetch; it goes on where it was."""
_PING_TIMEOUT_S: Final = 2.0
_CALL_TIMEOUT_S: Final = 10.0
_BREAK_PAUSE_S: Final = 0.2
_BROKEN: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN}
)

State = own.CaptureResponse.State
Write = Callable[[bytes], Awaitable[None]]


class PingTurns:
    """Lets few hosts at once measure their clocks.

    Answers of a thousand hosts queue up in our own event loop, and the wait there looks like a long
    way: the offsets would be wrong by as much. A host does not wait for its turn for ever, since
    the way to hosts that are far takes time itself.
    """

    def __init__(self, at_once: int = 16, patience_s: float = 2.0) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._patience_s = patience_s

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, or for long enough."""
        is_held = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                is_held = await self._free.acquire()
        try:
            yield
        finally:
            if is_held:
                self._free.release()


class AgentLink:
    """An agent at the other end of a channel.

    Attributes:
        offset: Of its clock when the link was made; None when no ping came back sound.
        allowed_roots: Roots that it may write profiles to by itself.
        step_time_s: How long a step of the host's job takes; None when the agent does not know.
        metadata: What every call carries: the token, when the agent asked for it.
    """

    def __init__(self, channel: grpc.aio.Channel, turns: PingTurns | None = None) -> None:
        self._channel = channel
        self._turns = turns or PingTurns()
        self.metadata: tuple[tuple[str, str], ...] = ()
        self.offset: ClockOffset | None = None
        self.allowed_roots: tuple[str, ...] = ()
        self.step_time_s: float | None = None

    @classmethod
    async def open(
        cls,
        channel: grpc.aio.Channel,
        *,
        pings: int = PINGS,
        token: str | None = None,
        turns: PingTurns | None = None,
    ) -> "AgentLink | None":
        """The agent behind the channel; None when it is another kind of profiler server.

        Args:
            channel: To whoever it is.
            pings: For the offset of its clock. One is enough where nothing starts by it: a
                thousand hosts that wait for each other are asked ten thousand times otherwise.
            token: For an agent that asks for one; nobody else gets it.
            turns: Of the hosts of one capture.
        """
        link = cls(channel, turns)
        try:
            first = await link._first_ping(token)
        except grpc.aio.AioRpcError:
            # Stock servers answer UNIMPLEMENTED; whatever else is wrong, the capture will tell.
            return None
        try:
            link.offset = offset_of([first, *await link._pings(pings - 1)])
            answer = await link._call(methods.AGENT_DESCRIBE, b"", _CALL_TIMEOUT_S)
            described = own.DescribeResponse.FromString(answer)
            link.allowed_roots = tuple(described.limits.allowed_roots)
            link.step_time_s = described.step_time.seconds or None
        except grpc.aio.AioRpcError:
            return link
        return link

    async def _first_ping(self, token: str | None) -> Ping:
        try:
            return await self._ping()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAUTHENTICATED or token is None:
                raise
        self.metadata = (("authorization", f"Bearer {token}"),)
        return await self._ping()

    async def measure_clock(self) -> ClockOffset | None:
        """The offset of the agent's clock now, by several pings."""
        return offset_of(await self._pings(PINGS))

    async def trigger(
        self, capture_id: str, profile_request: bytes, *, to_repository: bool
    ) -> own.CaptureResponse:
        """Begin a capture; the answer comes at once.

        Raises:
            grpc.aio.AioRpcError: It was not begun.
        """
        request = own.CaptureRequest(
            capture_id=capture_id,
            profile_request=profile_request,
            write_to_repository=to_repository,
        )
        answer = await self._call(
            methods.AGENT_CAPTURE, request.SerializeToString(), _CALL_TIMEOUT_S
        )
        return own.CaptureResponse.FromString(answer)

    async def outcome(self, capture_id: str, deadline_s: float) -> own.CaptureResponse:
        """How a capture ended, waited for until the deadline; connections may break meanwhile.

        Raises:
            grpc.aio.AioRpcError: The agent is gone, or the deadline has passed.
        """
        request = own.CaptureRequest(capture_id=capture_id, wait=True).SerializeToString()
        breaks = 0
        while True:
            try:
                answer = await self._call(
                    methods.AGENT_CAPTURE, request, max(0.1, deadline_s - time.monotonic())
                )
                return own.CaptureResponse.FromString(answer)
            except grpc.aio.AioRpcError as error:
                breaks += 1
                if not _may_go_on(error, breaks, deadline_s):
                    raise
                await asyncio.sleep(_BREAK_PAUSE_S * breaks)

    async def fetch(
        self, capture_id: str, write: Write, deadline_s: float, *, part: int = 0
    ) -> str:
        """Pass the profile to ``write`` in pieces, going on where a connection broke.

        Args:
            capture_id: Of the capture that was triggered.
            write: Takes the pieces in order.
            deadline_s: By the monotonic clock.
            part: Which of the profiles that a large one was split into.

        Returns:
            The SHA-256 that the agent tells of the whole.

        Raises:
            grpc.aio.AioRpcError: The agent is gone, keeps it no more, or the deadline has passed.
        """
        method = self._channel.unary_stream(
            methods.AGENT_FETCH,
            request_serializer=own.FetchRequest.SerializeToString,
            response_deserializer=own.FetchResponse.FromString,
        )
        offset = breaks = 0
        while True:
            request = own.FetchRequest(capture_id=capture_id, offset=offset, part=part)
            try:
                async for answer in method(
                    request,
                    timeout=max(0.1, deadline_s - time.monotonic()),
                    metadata=self.metadata,
                ):
                    await write(answer.piece)
                    offset += len(answer.piece)
                    if answer.sha256:
                        return str(answer.sha256)
                msg = "the agent ended the stream before the profile was whole"
                raise IncompleteStreamError(msg)
            except grpc.aio.AioRpcError as error:
                breaks += 1
                if not _may_go_on(error, breaks, deadline_s):
                    raise
                await asyncio.sleep(_BREAK_PAUSE_S * breaks)

    async def cancel(self, capture_id: str) -> None:
        """End a capture; an agent that does not answer ends it by its own limits."""
        request = own.CancelRequest(capture_id=capture_id).SerializeToString()
        try:
            await self._call(methods.AGENT_CANCEL, request, _PING_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return

    async def _pings(self, count: int) -> list[Ping]:
        if not count:
            return []
        async with self._turns.turn():
            return [await self._ping() for _ in range(count)]

    async def _ping(self) -> Ping:
        # Two clocks of our own: a step of the wall clock between must not look like a way.
        sent_ns = time.time_ns()
        began_ns = time.monotonic_ns()
        answer = own.ClockPingResponse.FromString(
            await self._call(methods.AGENT_CLOCK_PING, b"", _PING_TIMEOUT_S)
        )
        took_ns = time.monotonic_ns() - began_ns
        return Ping(
            sent_ns, answer.received_wall_ns, answer.sent_wall_ns, received_ns=sent_ns + took_ns
        )

    async def _call(self, path: str, body: bytes, timeout_s: float) -> bytes:
        method = self._channel.unary_unary(
            path, request_serializer=bytes, response_deserializer=bytes
        )
        answer: bytes = await method(body, timeout=timeout_s, metadata=self.metadata)
        return answer


class IncompleteStreamError(Exception):
    """A stream that ended without the digest of the whole."""


def _may_go_on(error: grpc.aio.AioRpcError, breaks: int, deadline_s: float) -> bool:
    return (
        error.code() in _BROKEN
        and breaks <= FETCH_BREAKS
        and time.monotonic() + _BREAK_PAUSE_S * breaks < deadline_s
    )
