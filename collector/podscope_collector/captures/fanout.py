"""Captures all targets at once: one event loop, one channel per host, failures as values."""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Final

import grpc
import structlog

from podscope_collector.captures.admission import ByteBudget, Reservation, StartLine
from podscope_collector.captures.descriptors import affordable_width
from podscope_collector.captures.keeping import Keeper, Kept
from podscope_collector.captures.outcome import CaptureOutcome, HostUpdate
from podscope_collector.captures.quorum import decide
from podscope_collector.captures.reasons import Failure, NextStep, classify, pause_s
from podscope_collector.captures.request import MAX_DURATION_MS, CaptureRequest
from podscope_collector.captures.states import HostState, ReasonCode
from podscope_collector.captures.targets import Target
from podscope_collector.host_names import distinct_host_names
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
MAX_EVENTS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class FanoutLimits:
    """Bounds of one capture's use of this machine.

    Attributes:
        width: Hosts in flight at once.
        byte_budget: Bytes of profiles in memory at once; beyond it hosts wait to be started.
        expected_host_bytes: What a host is taken for until its profile has arrived.
        connect_timeout_s: For a connection to come up.
        start_patience_s: How long connected hosts wait for those still connecting.
    """

    width: int = 1024
    byte_budget: int = 1 << 30
    expected_host_bytes: int = 4 << 20
    connect_timeout_s: float = 10.0
    start_patience_s: float = 1.0


DEFAULT_LIMITS: Final = FanoutLimits()


async def run_capture(
    request: CaptureRequest,
    targets: Sequence[Target],
    storage: Storage,
    session: str,
    on_update: OnUpdate,
    *,
    host_names: Sequence[str] | None = None,
    limits: FanoutLimits = DEFAULT_LIMITS,
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
        limits: Width and memory.

    Raises:
        asyncio.CancelledError: The caller cancelled; all RPCs are cancelled first, and every
            host has got its final update.
    """
    names = distinct_host_names(target.address for target in targets)
    if host_names is not None:
        names = list(host_names)
    flight = _Flight(request, session, on_update, limits, len(targets), Keeper(storage, session))
    hosts = [_Host(flight, target, name) for target, name in zip(targets, names, strict=True)]
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
        at_once = max(1, limits.byte_budget // limits.expected_host_bytes)
        self.start_line = StartLine(min(width, at_once), limits.start_patience_s, request.delay_ms)
        whole_ms = request.delay_ms + request.duration_ms + request.timeout_ms
        # No attempt begins later than this; one that has begun has its own deadline.
        self.last_start = monotonic() + whole_ms / 1000
        # Who gives a host little time to answer means its connection too.
        self.connect_timeout_s = min(limits.connect_timeout_s, max(1.0, request.timeout_ms / 1000))
        self._warming: asyncio.Future[None] | None = None

    def warm_up(self) -> None:
        """Load the check of XSpaces while the windows are open; once."""
        if self._warming is None:
            loop = asyncio.get_running_loop()
            self._warming = loop.run_in_executor(None, self.keeper.warm_up)


class _Host:
    """One host on its way through the states."""

    def __init__(self, flight: _Flight, target: Target, name: str) -> None:
        self._flight = flight
        self._target = target
        self._in_state_since = monotonic()
        self._timings: dict[str, float] = {}
        self.now = HostUpdate(target=target.address, host=name)

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
        duration_ms = request.duration_ms
        for number in range(1, request.attempts + 1):
            async with (
                self._flight.width,
                self._flight.budget.reserve(self._flight.limits.expected_host_bytes) as share,
            ):
                result = await self._attempt(number, duration_ms, share)
            if isinstance(result, Kept):
                self._done(result)
                return
            wait_s = pause_s(result, number, duration_ms / 1000, random.random())  # noqa: S311 - jitter
            is_empty = result.reason is ReasonCode.EMPTY_TRACE
            late = monotonic() + wait_s > self._flight.last_start
            if result.step is NextStep.STOP or number == request.attempts or late:
                state = HostState.EMPTY if is_empty else HostState.FAILED
                self._end(state, result.reason, result.message, result.grpc_code)
                return
            if is_empty:
                duration_ms = min(2 * duration_ms, MAX_DURATION_MS)
            self._move(
                HostState.PENDING,
                reason=result.reason,
                grpc_code=result.grpc_code,
                message=f"{result.message} (next try in {wait_s:.1f} s)",
            )
            await asyncio.sleep(wait_s)

    async def _attempt(self, number: int, duration_ms: int, share: Reservation) -> Kept | Failure:
        self._move(
            HostState.CONNECTING,
            attempts=number,
            started_at=self.now.started_at or datetime.now(UTC),
        )
        line = self._flight.start_line
        in_line = number == 1
        async with grpc.aio.insecure_channel(
            self._target.address, options=CHANNEL_OPTIONS
        ) as channel:
            try:
                is_ready = await self._connect(channel)
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
            answer = await self._profile(channel, duration_ms, is_ready=is_ready)
        if isinstance(answer, Failure):
            return answer
        share.becomes(len(answer))
        self._move(HostState.STORING)
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
                self._profile_request(duration_ms, start_ns), timeout=deadline_s
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

    def _profile_request(self, duration_ms: int, start_ns: int) -> wire.ProfileRequest:
        request = self._flight.request
        keeper = self._flight.keeper
        options = wire.ProfileOptions(
            # Version 0 would have the server replace all options by its defaults.
            version=1,
            include_dataset_ops=True,
            host_tracer_level=request.host_tracer_level,
            device_tracer_level=request.device_tracer_level,
            python_tracer_level=request.python_tracer_level,
            enable_hlo_proto=True,
            start_timestamp_ns=start_ns,
            duration_ms=duration_ms,
            repository_path=keeper.storage.root,
            session_id=self._flight.session,
            override_hostname=self.now.host,
        )
        for key, given in request.advanced_configuration.items():
            slot = options.advanced_configuration[key]
            if isinstance(given, bool):
                slot.bool_value = given
            elif isinstance(given, int):
                slot.int64_value = given
            else:
                slot.string_value = given
        return wire.ProfileRequest(
            duration_ms=duration_ms,
            max_events=MAX_EVENTS,
            tools=["xplane.pb"],
            opts=options,
            # A server too old for emit_xspace writes a file here; on a shared folder that is
            # where we look for it.
            repository_root=keeper.repository_root,
            session_id=self._flight.session,
            host_name=self._target.address,
            emit_xspace=True,
        )

    async def _keep(self, answer: bytes) -> Kept | Failure:
        """Check and store the answer off the loop; a cancelled capture still keeps it."""
        storing = asyncio.ensure_future(
            asyncio.to_thread(
                self._flight.keeper.keep,
                answer,
                host=self.now.host,
                address=self._target.address,
                retry_empty=self._flight.request.retry_empty,
            )
        )
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError:
            result = await storing
            if isinstance(result, Kept):
                self._done(result)
            raise

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

    def _move(self, state: HostState, **changes: object) -> None:
        now = monotonic()
        before = str(self.now.state)
        self._timings[before] = self._timings.get(before, 0.0) + now - self._in_state_since
        self._in_state_since = now
        timings = {name: round(1000 * spent) for name, spent in self._timings.items()}
        self.now = replace(self.now, state=state, timings_ms=timings, **changes)  # type: ignore[arg-type] # checked by replace itself
        try:
            self._flight.on_update(self.now)
        except Exception:
            log.exception("update_callback_failed", target=self._target.address)
