"""Makes this process a capture target: the profiler service, as stock servers speak it."""

import threading
import time
from collections.abc import Mapping
from concurrent import futures

import grpc

from podscope import wire
from podscope.profiler.errors import ProfilerAlreadyRunningError, ProfilerError
from podscope.profiler.options import SAMPLE_STACKS, ProfilerOptions
from podscope.profiler.session import Session
from podscope.registration import Registration
from podscope_protos import methods

_OPTIONS = (
    # Two processes on one port would share captures at random.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", methods.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", methods.MAX_MESSAGE_BYTES),
)
_THREADS = 4
_LAST_PORT = 65_535
_MAX_DURATION_MS = 3_600_000
_MAX_DELAY_S = 3_600
_server: grpc.Server | None = None
_registration: Registration | None = None


def start(port: int, host: str = "127.0.0.1") -> int:
    """Serve captures of this process; return the port. The host's agent, if any, is told.

    Args:
        port: Port to listen on; 0 picks a free one.
        host: Address to listen on. The service has no authentication, so other hosts reach it
            only when this says so (``0.0.0.0``).

    Raises:
        ProfilerError: a server runs already, the port is none or taken, or the address is none of
            this host's.
    """
    global _server, _registration
    if not 0 <= port <= _LAST_PORT:
        msg = f"port {port} is out of range; give 1 to {_LAST_PORT}, or 0 for a free one"
        raise ProfilerError(msg)
    if _server is not None:
        msg = "a profiler server runs in this process already"
        raise ProfilerError(msg)
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS, "podscope-server"), options=_OPTIONS)
    service = _Service()
    handlers = {
        "Profile": grpc.unary_unary_rpc_method_handler(service.profile),
        "Terminate": grpc.unary_unary_rpc_method_handler(service.terminate),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(methods.PROFILER_SERVICE, handlers),)
    )
    try:
        bound = server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except RuntimeError as error:
        msg = f"cannot listen on host {host}: it is no address of this machine"
        if port:
            msg = f"port {port} is in use; choose another, or 0 for a free one (host {host})"
        raise ProfilerError(msg) from error
    others = set(threading.enumerate())
    server.start()
    for thread in set(threading.enumerate()) - others:
        # gRPC's own thread, which has no name: profiles leave out what is called so.
        if "_serve" in thread.name:
            thread.name = "podscope-server"
    _server = server
    reached_by = "localhost" if host in {"0.0.0.0", "::", "127.0.0.1", "::1"} else host  # noqa: S104 - compared, not bound
    _registration = Registration(bound, reached_by, "python")
    return bound


def register(port: int, framework: str = "", labels: Mapping[str, str] | None = None) -> None:
    """Tell the host's agent of a profiler server that somebody else started in this process.

    After ``jax.profiler.start_server(9999)``, call ``podscope.profiler.server.register(9999)``
    and captures through the agent reach this process.

    Args:
        port: Where that server listens.
        framework: Whose it is; guessed from what is imported when empty.
        labels: Beyond job, run and rank, which the environment tells.

    Raises:
        ProfilerError: the port is none, or this process is registered already.
    """
    global _registration
    if not 1 <= port <= _LAST_PORT:
        msg = f"port {port} is out of range; give 1 to {_LAST_PORT}"
        raise ProfilerError(msg)
    if _registration is not None:
        msg = "this process is registered already; call stop() first"
        raise ProfilerError(msg)
    _registration = Registration(port, framework=framework, labels=labels)


def stop() -> None:
    """Stop serving, and be known to the agent no longer; a capture that runs is cancelled."""
    global _server, _registration
    if _registration is not None:
        _registration.close()
        _registration = None
    if _server is not None:
        _server.stop(None).wait()
        _server = None


class _Service:
    def __init__(self) -> None:
        # Of the capture that runs. Each has an event of its own: an earlier call's end may be told
        # when the next one records already.
        self._running: tuple[str, threading.Event] | None = None
        self._lock = threading.Lock()

    def profile(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        """One capture, as a stock server makes it."""
        try:
            request = wire.ProfileRequest.FromString(body)
        except Exception as error:  # noqa: BLE001 - protobuf's versions have different DecodeErrors
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not a ProfileRequest: {error}")
        # Beyond what a thread can wait for; unchecked it would end in an error in mid-capture.
        if request.opts.duration_ms > _MAX_DURATION_MS:
            text = f"duration_ms must be at most {_MAX_DURATION_MS} (one hour)"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        if request.opts.start_timestamp_ns / 1e9 - time.time() > _MAX_DELAY_S:
            text = "start_timestamp_ns lies more than an hour ahead"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        with self._lock:
            if self._running is not None:
                context.abort(grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
            ended = threading.Event()
            self._running = (request.session_id, ended)
        try:
            return self._capture(request, context, ended)
        finally:
            self._running = None

    def _capture(
        self,
        request: "wire.ProfileRequest",
        context: grpc.ServicerContext,
        ended: threading.Event,
    ) -> bytes:
        # Called at once when the client is gone: the wait below ends with it.
        if not context.add_callback(ended.set):
            ended.set()
        options = request.opts
        delay_s = options.start_timestamp_ns / 1e9 - time.time()
        if delay_s > 0:
            ended.wait(delay_s)
        try:
            session = Session(
                ProfilerOptions(
                    host_tracer_level=options.host_tracer_level,
                    # Stock clients send 0 for Python; stacks are what this process has to show.
                    python_tracer_level=max(SAMPLE_STACKS, options.python_tracer_level),
                    device_tracer_level=options.device_tracer_level,
                ),
                is_remote=True,
            )
        except ProfilerAlreadyRunningError:
            context.abort(grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
            raise
        try:
            ended.wait(options.duration_ms / 1000)
        finally:
            # Whatever happens: a session left open would refuse every later capture.
            xspace = session.stop()
        is_empty = session.is_empty
        response = wire.ProfileResponse(empty_trace=is_empty)
        if request.emit_xspace:
            response.xspace = xspace
        elif not is_empty:
            response.tool_data.add(name="xplane.pb", data=xspace)
        serialised: bytes = response.SerializeToString()
        return serialised

    def terminate(self, body: bytes, _context: grpc.ServicerContext) -> bytes:
        """End the capture of a session early; another session's is not touched."""
        running = self._running
        if running is not None:
            session_id, ended = running
            if session_id == wire.TerminateRequest.FromString(body).session_id:
                ended.set()
        return b""
