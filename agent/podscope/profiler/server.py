"""Makes this process a capture target: the profiler service, as stock servers speak it."""

import threading
import time
from concurrent import futures

import grpc

from podscope import wire
from podscope.profiler.errors import ProfilerAlreadyRunningError, ProfilerError
from podscope.profiler.session import ProfilerOptions, Session
from podscope_protos import methods

_OPTIONS = (
    # Two processes on one port would share captures at random.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", methods.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", methods.MAX_MESSAGE_BYTES),
)
_THREADS = 4
_server: grpc.Server | None = None


def start(port: int, host: str = "127.0.0.1") -> int:
    """Serve captures of this process; return the port.

    Args:
        port: Port to listen on; 0 picks a free one.
        host: Address to listen on. The service has no authentication, so other hosts reach it
            only when this says so (``0.0.0.0``).

    Raises:
        ProfilerError: a server runs already, or the port is taken.
    """
    global _server
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
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        msg = f"port {port} is in use; choose another, or 0 for a free one"
        raise ProfilerError(msg) from error
    server.start()
    _server = server
    return bound


def stop() -> None:
    """Stop serving; a capture that runs is cancelled."""
    global _server
    if _server is not None:
        _server.stop(None).wait()
        _server = None


class _Service:
    def __init__(self) -> None:
        self._ended = threading.Event()
        self._session_id: str | None = None
        self._lock = threading.Lock()

    def profile(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        """One capture, as a stock server makes it."""
        request = wire.ProfileRequest.FromString(body)
        with self._lock:
            if self._session_id is not None:
                context.abort(grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
            self._session_id = request.session_id
            self._ended.clear()
        try:
            return self._capture(request, context)
        finally:
            self._session_id = None

    def _capture(self, request: "wire.ProfileRequest", context: grpc.ServicerContext) -> bytes:
        # Called at once when the client is gone: the wait below ends with it.
        context.add_callback(self._ended.set)
        options = request.opts
        delay_s = options.start_timestamp_ns / 1e9 - time.time()
        if delay_s > 0:
            self._ended.wait(delay_s)
        try:
            session = Session(
                ProfilerOptions(
                    host_tracer_level=options.host_tracer_level,
                    # Stock clients send 0 for Python; stacks are what this process has to show.
                    python_tracer_level=1,
                )
            )
        except ProfilerAlreadyRunningError:
            context.abort(grpc.StatusCode.INTERNAL, methods.BUSY_DETAILS)
            raise
        self._ended.wait(options.duration_ms / 1000)
        is_empty = not session.has_spans()
        xspace = session.stop()
        response = wire.ProfileResponse(empty_trace=is_empty)
        if request.emit_xspace:
            response.xspace = xspace
        elif not is_empty:
            response.tool_data.add(name="xplane.pb", data=xspace)
        serialised: bytes = response.SerializeToString()
        return serialised

    def terminate(self, body: bytes, _context: grpc.ServicerContext) -> bytes:
        """End the capture of a session early; another session's is not touched."""
        if self._session_id == wire.TerminateRequest.FromString(body).session_id:
            self._ended.set()
        return b""
