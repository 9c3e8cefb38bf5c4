"""One capture of the host at a time: all of its processes together, merged into one XSpace."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import grpc
import grpc.aio
import structlog

from podscope_agent.errors import MalformedXSpaceError
from podscope_agent.guard import Budget, OverheadGuard
from podscope_agent.inventory import TargetInventory
from podscope_agent.live.model import CaptureEnd
from podscope_agent.memory import LARGE_BYTES, give_back_free_memory
from podscope_agent.merge import HostPart, ProcessXSpace, merge_xspaces, merged_into_files
from podscope_agent.pieces import Chunk, Pieces
from podscope_agent.processes import owners_of_ports, port_of, shared_port_text
from podscope_agent.responses import xspace_of_response
from podscope_agent.rpc import RpcFailure
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire

log = structlog.get_logger()

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", methods.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", methods.MAX_MESSAGE_BYTES),
    # Frames of 16 KB, the default, double the CPU time that a large profile takes to arrive.
    ("grpc.http2.lookahead_bytes", 8 << 20),
    # The targets are on this host: no proxy of the environment is between.
    ("grpc.enable_http_proxy", 0),
)
_GRACE_S: Final = 60.0
"""Time for serialisation and transfer beyond the window, as stock clients grant it."""
_MERGE_RESERVE_S: Final = 2.0
"""Kept back from the client's deadline, so that what came in can still be sent."""
_WAKE_BEFORE_START_S: Final = 0.2
"""A target that sleeps until a future start cannot be cancelled, so the agent sleeps instead."""

STOPPING_DETAILS: Final = "the agent is stopping; capture again when it is back"
"""What clients are told from SIGTERM on."""

MAX_DURATION_MS: Final = 3_600_000


@dataclass(frozen=True)
class TargetAnswer:
    """What became of one target of a capture.

    Attributes:
        answer: The serialised message that it answered with; of a capture, the XSpace.
        failure: Why there is none; None when the target answered.
        overtime_s: From the end of its window to its answer.
    """

    address: str
    answer: bytes = b""
    failure: RpcFailure | None = None
    process: ProcessXSpace | None = None
    overtime_s: float = 0.0


@dataclass(frozen=True)
class MergedCapture:
    """One capture of the whole host.

    Attributes:
        pieces: One XSpace of all targets that answered.
        is_empty: No event is in it.
        processes: What it is made of.
        warnings: What the agent added: targets that are missing and the like.
        cost: What it took on this host.
    """

    pieces: Pieces
    is_empty: bool
    processes: tuple[ProcessXSpace, ...]
    warnings: tuple[str, ...]
    cost: CaptureEnd

    def files(self, limit_bytes: int) -> list[HostPart]:
        """The profile as one file, or as one of each process where it would be too large."""
        return merged_into_files(self.pieces, self.processes, self.warnings, limit_bytes)


class HostSession:
    """Captures from all profiler servers of this host, one capture at a time.

    Every method runs on the event loop that the channels were made on.

    Attributes:
        step_time_before_s: How long a step took when the last capture began; None when no process
            said it.
    """

    def __init__(
        self,
        inventory: TargetInventory,
        *,
        guard: OverheadGuard | None = None,
        record: Callable[[CaptureEnd], None] = lambda _ended: None,
    ) -> None:
        """Connect lazily to what `inventory` has; call `record` with each capture's result."""
        self.guard = OverheadGuard(Budget()) if guard is None else guard
        self.inventory = inventory
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._record = record
        self._running_session: str | None = None
        self._work: asyncio.Task[MergedCapture] | None = None
        self._is_stopping = False
        self._is_continuous = False
        self._recording_since: float | None = None
        self.step_time_before_s: float | None = None

    async def close(self) -> None:
        """Close all channels; calls in flight are cancelled."""
        for channel in self._channels.values():
            await channel.close(None)

    def channel(self, address: str) -> grpc.aio.Channel:
        """The channel to a target; made on first use."""
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        return self._channels[address]

    async def forget_the_gone(self) -> None:
        """Close the channels to targets that are known no longer."""
        for address in set(self._channels) - set(self.inventory.addresses):
            await self._channels.pop(address).close(None)

    @property
    def is_busy(self) -> bool:
        """Whether a capture runs."""
        return self._running_session is not None

    def admit(self, request: wire.ProfileRequest) -> None:
        """Refuse a capture that cannot begin now; one that is admitted is begun at once.

        Raises:
            RpcFailure: busy, over budget, or the request makes no sense.
        """
        if self._is_stopping:
            raise RpcFailure(grpc.StatusCode.UNAVAILABLE, STOPPING_DETAILS)
        if self.is_busy:
            raise RpcFailure(grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
        if request.opts.duration_ms > MAX_DURATION_MS:
            text = f"duration_ms must be at most {MAX_DURATION_MS} (one hour)"
            raise RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, text)
        try:
            self.guard.admit(request.opts.duration_ms / 1000)
        except RpcFailure:
            self._record(CaptureEnd("refused"))
            raise

    async def capture(
        self, request: wire.ProfileRequest, time_remaining_s: float | None
    ) -> MergedCapture:
        """Capture all targets together.

        Args:
            request: As a stock client sends it.
            time_remaining_s: Until the client's deadline; None when it set none.

        Raises:
            RpcFailure: busy, over budget, no target answered, or the request makes no sense.
        """
        self.admit(request)
        self._running_session = request.session_id
        self._recording_since = None
        self.step_time_before_s = self.inventory.step_time_s
        started, cpu = time.monotonic(), time.process_time()
        ended = CaptureEnd("failed")
        try:
            self._work = asyncio.create_task(self._capture(request, time_remaining_s))
            merged = await self._work
            ended = replace(
                merged.cost,
                result="empty" if merged.is_empty else "done",
                seconds=time.monotonic() - started,
                cpu_seconds=time.process_time() - cpu,
                size_bytes=merged.pieces.size,
            )
            return replace(merged, cost=ended)
        except asyncio.CancelledError:
            ended = CaptureEnd("cancelled")
            if self._is_stopping:
                raise RpcFailure(grpc.StatusCode.UNAVAILABLE, STOPPING_DETAILS) from None
            raise
        finally:
            self._running_session = self._work = None
            self.guard.ended(self._recorded_s(request))
            seconds = time.monotonic() - started
            self._record(replace(ended, seconds=seconds, cpu_seconds=time.process_time() - cpu))
            log.info("capture_ended", result=ended.result, seconds=round(seconds, 3))

    async def finish(self, grace_s: float) -> None:
        """Begin nothing new; let a running capture end within `grace_s`, then end it.

        Continuous profiling ends too: a target that is left in it stays busy for ever.
        """
        self._is_stopping = True
        if self._work is not None:
            await asyncio.wait({self._work}, timeout=grace_s)
        if self._work is not None:
            self._work.cancel()
        if self._is_continuous:
            await self._call_all(methods.STOP_CONTINUOUS_PROFILING, b"", timeout_s=5)

    async def terminate(self, session_id: str) -> None:
        """End the running capture early; a session that does not run is not remembered."""
        if self._running_session != session_id:
            return
        body = wire.TerminateRequest(session_id=session_id).SerializeToString()
        await self._call_all(methods.TERMINATE, body, timeout_s=5)

    async def start_continuous(self, request: bytes) -> None:
        """Start continuous profiling on every target that can.

        Raises:
            RpcFailure: no target started, or one runs already.
        """
        if self.is_busy:
            raise RpcFailure(grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
        answers = await self._call_all(methods.START_CONTINUOUS_PROFILING, request, timeout_s=30)
        _require_one(answers)
        self._is_continuous = True

    async def stop_continuous(self, request: bytes) -> None:
        """Stop continuous profiling on every target.

        Raises:
            RpcFailure: no target had one.
        """
        self._is_continuous = False
        answers = await self._call_all(methods.STOP_CONTINUOUS_PROFILING, request, timeout_s=30)
        _require_one(answers)

    async def snapshot(self, request: bytes) -> MergedCapture:
        """Return one merged snapshot of the targets that profile continuously.

        Raises:
            RpcFailure: no target had a snapshot.
        """
        answers = await self._call_all(methods.GET_SNAPSHOT, request, timeout_s=_GRACE_S)
        answers = list(await asyncio.gather(*(_in_thread(answer) for answer in answers)))
        _require_one(answers)
        return await asyncio.to_thread(_merge, answers)

    async def _capture(
        self, request: wire.ProfileRequest, time_remaining_s: float | None
    ) -> MergedCapture:
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
        await self.forget_the_gone()
        targets = self.inventory.addresses
        if targets:
            start_s = request.opts.start_timestamp_ns / 1e9
            self._recording_since = time.monotonic() + max(0.0, start_s - time.time())
        answers = await asyncio.gather(
            *(self._capture_target(address, request, timeout_s) for address in targets)
        )
        _require_one(answers)
        return await asyncio.to_thread(_merge, answers)

    def _recorded_s(self, request: wire.ProfileRequest) -> float:
        """What of the window the targets recorded: less where it ended before its time."""
        if self._recording_since is None:
            return 0.0
        recorded_s = time.monotonic() - self._recording_since
        return min(request.opts.duration_ms / 1000, max(0.0, recorded_s))

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
        window_ends = max(time.time(), sent.opts.start_timestamp_ns / 1e9)
        window_ends += sent.opts.duration_ms / 1000
        answer = await self._call(address, methods.PROFILE, sent.SerializeToString(), timeout_s)
        if answer.failure is None:
            answer = replace(answer, overtime_s=max(0.0, time.time() - window_ends))
        return await _in_thread(answer)

    async def _call_all(self, path: str, body: bytes, *, timeout_s: float) -> list[TargetAnswer]:
        calls: list[Awaitable[TargetAnswer]] = [
            self._call(address, path, body, timeout_s) for address in self.inventory.addresses
        ]
        return list(await asyncio.gather(*calls))

    async def _call(self, address: str, path: str, body: bytes, timeout_s: float) -> TargetAnswer:
        """One call; a target's failure is a value, so that it costs only itself."""
        call = self.channel(address).unary_unary(
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


async def _in_thread(answer: TargetAnswer) -> TargetAnswer:
    return await asyncio.to_thread(_unwrapped, answer)


def _unwrapped(answer: TargetAnswer) -> TargetAnswer:
    """Take the XSpace out of a ProfileResponse and check that it is one."""
    if answer.failure is not None:
        return answer
    if len(answer.answer) > LARGE_BYTES:
        give_back_free_memory()
    try:
        space: Chunk = xspace_of_response(answer.answer)
        process = ProcessXSpace(port_of(answer.address), space, answer.address)
        # Walked here, where a malformed one costs only its own process.
        _ = process.programs
    except MalformedXSpaceError as error:
        text = f"it answered with bytes that are no profile: {error}"
        return TargetAnswer(answer.address, failure=RpcFailure(grpc.StatusCode.DATA_LOSS, text))
    return TargetAnswer(answer.address, process=process, overtime_s=answer.overtime_s)


def _require_one(answers: Sequence[TargetAnswer]) -> None:
    """Raise the targets' common failure when none of them answered."""
    if not answers:
        text = (
            "no process of this host is known to the agent: start the job's profiler server, "
            "register it, or name it with --target"
        )
        raise RpcFailure(grpc.StatusCode.UNAVAILABLE, text)
    failures = [answer.failure for answer in answers if answer.failure is not None]
    if len(failures) < len(answers):
        return
    # A target without the method says nothing of those that have it.
    able = [f for f in failures if f.status is not grpc.StatusCode.UNIMPLEMENTED] or failures
    if len({(failure.status, failure.details) for failure in able}) == 1:
        # Clients know what a stock server's busy or unimplemented means: pass it on as it is.
        raise able[0]
    text = "; ".join(f"{answer.address}: {answer.failure}" for answer in answers)
    raise RpcFailure(grpc.StatusCode.UNAVAILABLE, f"no target answered: {text}")


def _merge(answers: Sequence[TargetAnswer]) -> MergedCapture:
    give_back_free_memory()
    warnings = [
        f"{answer.address} is missing from this profile: {answer.failure}"
        for answer in answers
        if answer.failure is not None
    ]
    owners = owners_of_ports()
    processes: list[ProcessXSpace] = []
    for answer in answers:
        pids = owners.get(port_of(answer.address), ())
        if len(pids) > 1:
            warnings.append(shared_port_text(answer.address, pids))
        if answer.process is not None:
            if not answer.process.xspace:
                # Also what a server answers that writes files by itself, whatever it is asked for.
                warnings.append(f"{answer.address} is missing from this profile: it sent 0 bytes")
            # Two servers of one process are told apart by their ports.
            process = answer.process.process
            if pids and pids[0] not in {known.process for known in processes}:
                process = pids[0]
            processes.append(replace(answer.process, process=process))
    return MergedCapture(
        merge_xspaces(processes, warnings),
        not any(process.scanned.has_events for process in processes),
        tuple(processes),
        tuple(warnings),
        CaptureEnd("done", target_seconds=max(answer.overtime_s for answer in answers)),
    )
