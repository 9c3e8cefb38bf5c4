"""One capture of the host at a time: all of its processes together, merged into one XSpace."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
import structlog

from podscope_agent.errors import MalformedXSpaceError
from podscope_agent.merge import ProcessXSpace, has_events, merge_xspaces
from podscope_agent.processes import process_listening_on
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire

log = structlog.get_logger()

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", methods.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", methods.MAX_MESSAGE_BYTES),
    # The targets are on this host: no proxy of the environment is between.
    ("grpc.enable_http_proxy", 0),
)
_GRACE_S: Final = 60.0
"""Time for serialisation and transfer beyond the window, as stock clients grant it."""
_MERGE_RESERVE_S: Final = 2.0
"""Kept back from the client's deadline, so that what came in can still be sent."""
_WAKE_BEFORE_START_S: Final = 0.2
"""A target that sleeps until a future start cannot be cancelled, so the agent sleeps instead."""

MAX_DURATION_MS: Final = 3_600_000


class RpcFailure(Exception):  # noqa: N818 - it is the answer of an RPC, not only an error
    """A status to answer a call with.

    Attributes:
        status: The gRPC status code.
        details: Its text.
    """

    def __init__(self, status: grpc.StatusCode, details: str) -> None:
        self.status = status
        self.details = details
        super().__init__(f"{status.name}: {details}")


@dataclass(frozen=True)
class TargetAnswer:
    """What became of one target of a capture.

    Attributes:
        xspace: The serialised XSpace; empty when there is none.
        failure: Why there is none; None when the target answered.
    """

    address: str
    xspace: bytes = b""
    failure: RpcFailure | None = None


class HostSession:
    """Captures from all profiler servers of this host, one capture at a time.

    Every method runs on the event loop that the channels were made on.
    """

    def __init__(
        self,
        targets: Sequence[str],
        *,
        record: Callable[[str, float], None] = lambda _result, _seconds: None,
    ) -> None:
        """Connect lazily to `targets`; call `record` with the result of every capture."""
        self.targets = tuple(targets)
        self._channels = {
            address: grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
            for address in self.targets
        }
        self._record = record
        self._running_session: str | None = None

    async def close(self) -> None:
        """Close all channels; calls in flight are cancelled."""
        for channel in self._channels.values():
            await channel.close(None)

    @property
    def is_busy(self) -> bool:
        """Whether a capture runs."""
        return self._running_session is not None

    async def profile(
        self, request: wire.ProfileRequest, time_remaining_s: float | None
    ) -> wire.ProfileResponse:
        """Capture all targets together and return the host's merged XSpace.

        Args:
            request: As a stock client sends it.
            time_remaining_s: Until the client's deadline; None when it set none.

        Raises:
            RpcFailure: busy, no target answered, or the request makes no sense.
        """
        if self.is_busy:
            raise RpcFailure(grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
        if request.opts.duration_ms > MAX_DURATION_MS:
            text = f"duration_ms must be at most {MAX_DURATION_MS} (one hour)"
            raise RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, text)
        self._running_session = request.session_id
        started = time.monotonic()
        result = "failed"
        try:
            response = await self._capture(request, time_remaining_s)
            result = "empty" if response.empty_trace else "done"
            return response
        except asyncio.CancelledError:
            result = "cancelled"
            raise
        finally:
            self._running_session = None
            seconds = time.monotonic() - started
            self._record(result, seconds)
            log.info("capture_ended", result=result, seconds=round(seconds, 3))

    async def terminate(self, session_id: str) -> None:
        """End the running capture early; a session that does not run is not remembered."""
        if self._running_session != session_id:
            return
        body = wire.TerminateRequest(session_id=session_id).SerializeToString()
        await self._call_all(methods.TERMINATE, body, timeout_s=5)

    async def start_continuous(self, request: bytes) -> None:
        """Start continuous profiling on every target that can.

        Raises:
            RpcFailure: no target started.
        """
        answers = await self._call_all(methods.START_CONTINUOUS_PROFILING, request, timeout_s=30)
        _require_one(answers)

    async def stop_continuous(self, request: bytes) -> None:
        """Stop continuous profiling on every target.

        Raises:
            RpcFailure: no target had one.
        """
        answers = await self._call_all(methods.STOP_CONTINUOUS_PROFILING, request, timeout_s=30)
        _require_one(answers)

    async def snapshot(self, request: bytes) -> wire.ProfileResponse:
        """Return one merged snapshot of the targets that profile continuously.

        Raises:
            RpcFailure: no target had a snapshot.
        """
        answers = await self._call_all(methods.GET_SNAPSHOT, request, timeout_s=_GRACE_S)
        _require_one(answers)
        merged = await asyncio.to_thread(_merge, [_unwrapped(answer) for answer in answers])
        return wire.ProfileResponse(xspace=merged)

    async def _capture(
        self, request: wire.ProfileRequest, time_remaining_s: float | None
    ) -> wire.ProfileResponse:
        deadline = time.monotonic() + (
            _GRACE_S + 2 * request.opts.duration_ms / 1000
            if time_remaining_s is None
            else time_remaining_s
        )
        delay_s = request.opts.start_timestamp_ns / 1e9 - time.time() - _WAKE_BEFORE_START_S
        if delay_s > 0:
            if time.monotonic() + delay_s > deadline:
                text = "the start lies beyond the deadline of the call"
                raise RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, text)
            await asyncio.sleep(delay_s)
        timeout_s = max(0.1, deadline - time.monotonic() - _MERGE_RESERVE_S)
        answers = await asyncio.gather(
            *(self._capture_target(address, request, timeout_s) for address in self.targets)
        )
        _require_one(answers)
        merged = await asyncio.to_thread(_merge, answers)
        response = wire.ProfileResponse()
        response.empty_trace = not await asyncio.to_thread(has_events, merged)
        if request.emit_xspace:
            response.xspace = merged
        elif not response.empty_trace:
            # Stock clients never save `xspace`; this is the one field that all of them write.
            response.tool_data.add(name="xplane.pb", data=merged)
        return response

    async def _capture_target(
        self, address: str, request: wire.ProfileRequest, timeout_s: float
    ) -> TargetAnswer:
        sent = wire.ProfileRequest()
        sent.CopyFrom(request)
        sent.emit_xspace = True
        # With version 0 a server replaces the options by its defaults and forgets the start.
        sent.opts.version = sent.opts.version or 1
        sent.host_name = address
        sent.repository_root = ""
        answer = await self._call(address, methods.PROFILE, sent.SerializeToString(), timeout_s)
        return await asyncio.to_thread(_unwrapped, answer)

    async def _call_all(self, path: str, body: bytes, *, timeout_s: float) -> list[TargetAnswer]:
        calls: list[Awaitable[TargetAnswer]] = [
            self._call(address, path, body, timeout_s) for address in self.targets
        ]
        return list(await asyncio.gather(*calls))

    async def _call(self, address: str, path: str, body: bytes, timeout_s: float) -> TargetAnswer:
        """One call; a target's failure is a value, so that it costs only itself."""
        call = self._channels[address].unary_unary(
            path, request_serializer=bytes, response_deserializer=bytes
        )
        try:
            return TargetAnswer(address, await call(body, timeout=timeout_s))
        except grpc.aio.AioRpcError as error:
            log.warning(
                "target_failed", target=address, status=error.code().name, details=error.details()
            )
            return TargetAnswer(
                address, failure=RpcFailure(error.code(), error.details() or error.code().name)
            )


def _unwrapped(answer: TargetAnswer) -> TargetAnswer:
    """Take the XSpace out of a ProfileResponse and check that it is one."""
    if answer.failure is not None:
        return answer
    try:
        xspace = wire.ProfileResponse.FromString(answer.xspace).xspace
        has_events(xspace)
    # The runtime's DecodeError differs between protobuf's implementations.
    except (MalformedXSpaceError, ValueError, RuntimeError) as error:
        text = f"it answered with bytes that are no profile: {error}"
        return TargetAnswer(answer.address, failure=RpcFailure(grpc.StatusCode.DATA_LOSS, text))
    except Exception as error:
        if type(error).__name__ != "DecodeError":
            raise
        text = "it answered with bytes that are no profile"
        return TargetAnswer(answer.address, failure=RpcFailure(grpc.StatusCode.DATA_LOSS, text))
    return TargetAnswer(answer.address, xspace)


def _require_one(answers: Sequence[TargetAnswer]) -> None:
    """Raise the targets' common failure when none of them answered."""
    failures = [answer.failure for answer in answers if answer.failure is not None]
    if len(failures) < len(answers):
        return
    if len({(failure.status, failure.details) for failure in failures}) == 1:
        # Clients know what a stock server's busy or unimplemented means: pass it on as it is.
        raise failures[0]
    text = "; ".join(f"{answer.address}: {answer.failure}" for answer in answers)
    raise RpcFailure(grpc.StatusCode.UNAVAILABLE, f"no target answered: {text}")


def _merge(answers: Sequence[TargetAnswer]) -> bytes:
    warnings = [
        f"{answer.address} is missing from this profile: {answer.failure}"
        for answer in answers
        if answer.failure is not None
    ]
    processes = [
        ProcessXSpace(process_listening_on(answer.address), answer.xspace, answer.address)
        for answer in answers
        if answer.failure is None
    ]
    return merge_xspaces(processes, warnings)
