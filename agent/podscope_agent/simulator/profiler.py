"""One simulated host's profiler service: the behaviour of stock servers, request by request."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError

from podscope_agent.simulator.faults import Fault
from podscope_agent.simulator.journal import Journal
from podscope_agent.simulator.pod import Pod, Window
from podscope_agent.simulator.proxy import FlakyRelay
from podscope_agent.simulator.xspace import HostTrace, TraceOptions, record_host
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire

Handler = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]

_Request = TypeVar("_Request", wire.ProfileRequest, wire.TerminateRequest)

_REMEMBERED_TERMINATIONS: Final = 1024
_RUNNING: Final = "A profiling session is already running."
_NOT_RUNNING: Final = "No continuous profiling session found."


class HostProfiler:
    """Answers the profiler's methods for one host.

    Args:
        pod: The pod.
        host: Which host of it.
        executor: Where XSpaces are built, off the event loop.
        fault: What goes wrong here.
        journal: Gets every request for a profile.

    Attributes:
        is_capturing: Whether other captures are refused now.
    """

    def __init__(
        self,
        pod: Pod,
        host: int,
        executor: Executor,
        fault: Fault | None,
        journal: Journal | None = None,
    ) -> None:
        self._journal = journal
        self._pod, self._host, self._executor, self._fault = pod, host, executor, fault
        self._busy_answers = fault.number if fault is not None and fault.kind == "busy" else None
        self.is_capturing = False
        self._continuous: tuple[int, TraceOptions] | None = None
        self._terminated: dict[str, None] = {}
        self._termination = asyncio.Event()
        self.relay: FlakyRelay | None = None
        self.handlers: dict[str, Handler] = {
            methods.PROFILE: self.profile,
            methods.TERMINATE: self.terminate,
            methods.MONITOR: self.monitor,
            methods.START_CONTINUOUS_PROFILING: self.start_continuous,
            methods.GET_SNAPSHOT: self.get_snapshot,
            methods.STOP_CONTINUOUS_PROFILING: self.stop_continuous,
        }

    async def profile(self, raw: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        """Capture for the requested time and answer with the trace, or write it."""
        request = await _parsed(wire.ProfileRequest, raw, context)
        if self._journal is None:
            return await self._profile(request, context)
        with self._journal.request(self._host, request.session_id):
            return await self._profile(request, context)

    async def _profile(
        self, request: wire.ProfileRequest, context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> bytes:
        fault = self._fault.kind if self._fault is not None else None
        if fault == "hang":
            await asyncio.Event().wait()
        if self.is_capturing or self._continuous is not None or self._answers_busy():
            await _abort(context, grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
        self.is_capturing = True
        start_ns = _start_ns(request.opts)
        try:
            window, is_empty = await self._capture(request, start_ns)
            options = _trace_options(request.opts)
            if is_empty or fault == "empty":
                window = Window(window.start_ns, window.stop_ns, 0, 0)
            trace = await self._record(window, options)
            return await self._answer(request, trace, context)
        except asyncio.CancelledError:
            wait_s = (start_ns - time.time_ns()) / 1e9
            if wait_s > 0:
                # A stock server sleeps until the start time and notices only then.
                asyncio.get_running_loop().call_later(wait_s, self._release)
                start_ns = -1
            raise
        finally:
            if start_ns >= 0:
                self._release()

    async def terminate(
        self, raw: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> bytes:
        """End the capture of a session, now or when it begins."""
        request = await _parsed(wire.TerminateRequest, raw, context)
        self._terminated[request.session_id] = None
        while len(self._terminated) > _REMEMBERED_TERMINATIONS:
            del self._terminated[next(iter(self._terminated))]
        self._termination.set()
        return b""

    async def monitor(self, raw: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        """Refuse, as every server but a TPU worker's does."""
        del raw
        await _abort(context, grpc.StatusCode.UNIMPLEMENTED, "unimplemented.")

    async def start_continuous(
        self, raw: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> bytes:
        """Begin to record until a snapshot is taken."""
        if self._continuous is not None:
            await _abort(context, grpc.StatusCode.ALREADY_EXISTS, _RUNNING)
        if self.is_capturing:
            await _abort(context, grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
        options = _trace_options((await _parsed(wire.ProfileRequest, raw, context)).opts)
        self._continuous = (time.time_ns(), options)
        return b""

    async def get_snapshot(
        self, raw: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> bytes:
        """What was recorded since the start or the last snapshot."""
        del raw
        if self._continuous is None:
            await _abort(context, grpc.StatusCode.NOT_FOUND, _NOT_RUNNING)
        start_ns, options = self._continuous
        now_ns = time.time_ns()
        self._continuous = (now_ns, options)
        window = self._pod.window(start_ns, now_ns)
        trace = await self._record(self._pod.truncated(window, now_ns), options)
        response = wire.ProfileResponse(empty_trace=not trace.event_count, xspace=trace.xspace)
        return response.SerializeToString()

    async def stop_continuous(
        self, raw: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> bytes:
        """Stop recording."""
        del raw
        if self._continuous is None:
            await _abort(context, grpc.StatusCode.NOT_FOUND, _NOT_RUNNING)
        self._continuous = None
        return b""

    def _release(self) -> None:
        self.is_capturing = False

    def _answers_busy(self) -> bool:
        if self._fault is None or self._fault.kind != "busy":
            return False
        if self._busy_answers is None:
            return True
        self._busy_answers -= 1
        return self._busy_answers >= 0

    async def _capture(self, request: wire.ProfileRequest, start_ns: int) -> tuple[Window, bool]:
        """Wait until the capture is over; its window and whether it is empty."""
        wait_ns = start_ns - time.time_ns()
        if wait_ns > 0:
            # The window starts when it was meant to, however late this loop wakes up: hosts
            # that are told the same time must see the same steps.
            await asyncio.sleep(wait_ns / 1e9)
        else:
            start_ns = time.time_ns()
        stop_ns = start_ns + request.opts.duration_ms * 1_000_000
        if not request.opts.duration_ms:
            return Window(start_ns, stop_ns, 0, 0), True
        window = self._pod.window(start_ns, stop_ns)
        while (now_ns := time.time_ns()) < window.stop_ns:
            if request.session_id in self._terminated:
                del self._terminated[request.session_id]
                return self._pod.truncated(window, now_ns), False
            self._termination.clear()
            try:
                await asyncio.wait_for(self._termination.wait(), (window.stop_ns - now_ns) / 1e9)
            except TimeoutError:
                break
        return window, False

    async def _record(self, window: Window, options: TraceOptions) -> HostTrace:
        loop = asyncio.get_running_loop()
        work = partial(record_host, self._pod, self._host, window, options)
        return await loop.run_in_executor(self._executor, work)

    async def _answer(
        self,
        request: wire.ProfileRequest,
        trace: HostTrace,
        context: "grpc.aio.ServicerContext[bytes, bytes]",
    ) -> bytes:
        xspace = trace.xspace
        if self._fault is not None and self._fault.kind == "corrupt":
            xspace = corrupted(xspace)
        response = wire.ProfileResponse(empty_trace=not trace.event_count)
        if request.emit_xspace:
            response.xspace = xspace
        else:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._executor, _write_file, request, xspace)
            except OSError as error:
                details = f"{error.filename or request.repository_root}; {error.strerror}"
                await _abort(context, grpc.StatusCode.INTERNAL, details)
        answer = response.SerializeToString()
        if self.relay is not None and self._fault is not None and self._fault.kind == "reset":
            self.relay.cut_after(max(1, len(answer) // 2))
        return answer


def corrupted(xspace: bytes) -> bytes:
    """Bytes that begin like an XSpace and end in the middle of a plane."""
    return xspace[: max(1, len(xspace) // 3)]


async def _parsed(
    kind: type[_Request], raw: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]"
) -> _Request:
    try:
        return kind.FromString(raw)
    except DecodeError:
        await _abort(context, grpc.StatusCode.INTERNAL, "Failed to parse the request.")


async def _abort(
    context: "grpc.aio.ServicerContext[bytes, bytes]", code: grpc.StatusCode, details: str
) -> NoReturn:
    await context.abort(code, details)
    raise AssertionError  # abort always raises


def _start_ns(options: wire.ProfileOptions) -> int:
    # Version 0 asks for the defaults, which have no start time; the duration is kept.
    return options.start_timestamp_ns if options.version else 0


def _trace_options(options: wire.ProfileOptions) -> TraceOptions:
    encoded = options.SerializeToString(deterministic=True)
    if not options.version:
        return TraceOptions(encoded=encoded)
    return TraceOptions(
        host_tracer_level=options.host_tracer_level,
        device_tracer_level=options.device_tracer_level,
        python_tracer_level=options.python_tracer_level,
        enable_hlo_proto=options.enable_hlo_proto,
        encoded=encoded,
    )


def _write_file(request: wire.ProfileRequest, xspace: bytes) -> None:
    stem = request.opts.override_hostname or request.host_name
    session = request.session_id
    if "://" in request.repository_root or "\0" in stem + session + request.repository_root:
        raise FileNotFoundError(2, "No such file or directory", request.repository_root)
    if session in {".", ".."} or "/" in session:
        raise PermissionError(1, "a session is one folder", session)
    folder = Path(request.repository_root) / session
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem.replace(':', '_')}.xplane.pb").write_bytes(xspace)
