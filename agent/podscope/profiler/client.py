"""Captures from other processes, with the signature that people know."""

import importlib
import time
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import grpc

from podscope import wire
from podscope.profiler.access import KEPT_BACK, Access
from podscope.profiler.errors import ProfilerError
from podscope.profiler.files import save_xspace, session_name
from podscope.profiler.options import ProfilerOptions
from podscope_protos import methods
from podscope_protos.errors import PodscopeError

_OPTIONS = (
    ("grpc.max_receive_message_length", methods.MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
)
# By name: the library never needs the collector.
_FANOUT: Final = "podscope_collector.captures.one_shot"
_GRACE_S = 60.0
_WIDTH = 64
_FIRST_PAUSE_S = 0.25
_FINAL = {
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
}


@dataclass(frozen=True)
class WorkerResult:
    """What became of one worker.

    Attributes:
        file: Where its profile is; None when there is none. In an object store, its key below
            the log folder.
        problem: Why there is none; empty when there is one.
    """

    address: str
    file: Path | None
    problem: str = ""


def trace(
    service_addr: str,
    logdir: str | Path,
    duration_ms: int,
    worker_list: str = "",
    num_tracing_attempts: int = 3,
    options: ProfilerOptions | None = None,
    *,
    access: Access | None = None,
) -> list[WorkerResult]:
    """Profile one or more workers at once into a log folder.

    With ``podscope[collector]`` installed its fan-out does it: agents, streams that go on where a
    connection broke, one instant for all to start at, object stores. Without, each worker is
    called directly.

    Args:
        service_addr: Addresses, separated by commas; ``grpc://`` in front of each is optional.
        logdir: Log folder, in the layout that TensorBoard and XProf read; with the collector
            also ``s3://`` and ``gs://``.
        duration_ms: Length of the capture.
        worker_list: Further addresses.
        num_tracing_attempts: How often each worker is tried; one that succeeded is left alone.
        options: Tracer levels and delay.
        access: For agents that serve TLS or want a token. Without, the collector's fan-out takes
            what ``PODSCOPE_COLLECTOR_AGENT_…`` names.

    Returns:
        One result per worker, in order; some may have failed.

    Raises:
        ProfilerError: no worker gave a profile, or the arguments make no sense.
    """
    if duration_ms <= 0:
        msg = f"duration_ms must be positive, not {duration_ms}"
        raise ProfilerError(msg)
    addresses = _addresses(f"{service_addr},{worker_list}")
    chosen = options or ProfilerOptions(python_tracer_level=0)
    attempts = max(1, num_tracing_attempts)
    fanout = _collector()
    if fanout is not None:
        results = _through_collector(
            fanout, addresses, str(logdir), duration_ms, attempts, chosen, access
        )
    elif "://" in str(logdir):
        msg = f"writing to {logdir} needs: pip install 'podscope[collector]'; or give a folder"
        raise ProfilerError(msg)
    else:
        link = _Link(access or Access())
        results = _directly(link, addresses, Path(logdir), duration_ms, attempts, chosen)
    if all(result.file is None for result in results):
        problems = "; ".join(f"{result.address}: {result.problem}" for result in results)
        msg = f"no worker gave a profile: {problems}"
        raise ProfilerError(msg)
    return results


def _collector() -> ModuleType | None:
    """The collector's fan-out; None where what it needs is not installed."""
    try:
        return importlib.import_module(_FANOUT)
    except ModuleNotFoundError:
        return None


def _through_collector(
    fanout: ModuleType,
    addresses: list[str],
    logdir: str,
    duration_ms: int,
    attempts: int,
    options: ProfilerOptions,
    access: Access | None,
) -> list[WorkerResult]:
    shown: dict[str, Any] | None = None
    if access is not None:
        shown = {
            "token": access.token,
            "tls": access.credentials(),
            "token_in_plain_text": access.token_in_plain_text,
        }
    request: dict[str, Any] = {
        "duration_ms": duration_ms,
        "attempts": attempts,
        "delay_ms": options.delay_ms or 0,
        "host_tracer_level": options.host_tracer_level,
        "device_tracer_level": options.device_tracer_level,
        "python_tracer_level": options.python_tracer_level,
    }
    try:
        hosts = fanout.capture_to_folder(addresses, logdir, request, shown)
    except PodscopeError as error:
        raise ProfilerError(str(error)) from error
    root = Path() if "://" in logdir else Path(logdir)
    return [
        WorkerResult(
            host.target,
            None if host.file is None else root / host.file,
            "" if host.file is not None else _problem(host),
        )
        for host in hosts
    ]


def _problem(host: Any) -> str:
    """Why a host has no profile, the status first: that is what people look for."""
    text = host.message or f"the capture is {host.state}"
    return f"{host.grpc_code}: {text}" if host.grpc_code else text


def _directly(
    link: "_Link",
    addresses: list[str],
    logdir: Path,
    duration_ms: int,
    attempts: int,
    options: ProfilerOptions,
) -> list[WorkerResult]:
    request = _request(duration_ms, options)
    session = session_name()
    with futures.ThreadPoolExecutor(min(len(addresses), _WIDTH)) as pool:
        return list(
            pool.map(
                lambda address: _trace_one(link, address, request, logdir, session, attempts),
                addresses,
            )
        )


def monitor(
    service_addr: str, duration_ms: int, level: int = 1, *, access: Access | None = None
) -> str:
    """Return a worker's live figures as text.

    Args:
        service_addr: The agent's address.
        duration_ms: Window of the figures.
        level: 1 or 2, which tells more.
        access: For an agent that serves TLS or wants a token.

    Raises:
        ProfilerError: the worker does not answer, or has no such figures.
    """
    [address, *_] = _addresses(service_addr)
    request = wire.MonitorRequest(
        duration_ms=duration_ms, monitoring_level=level, timestamp=True
    ).SerializeToString()
    link = _Link(access or Access())
    try:
        answer = link.call(address, methods.MONITOR, request, _GRACE_S + duration_ms / 1000)
    except grpc.RpcError as error:
        msg = f"{address}: {link.problem(address, error)}"
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            msg = f"{address} has no live figures; ask the agent of its host (port 8466)"
        raise ProfilerError(msg) from error
    text: str = wire.MonitorResponse.FromString(answer).data
    return text


def _addresses(given: str) -> list[str]:
    stripped = (item.strip() for item in given.split(","))
    items = (item[7:] if item.lower().startswith("grpc://") else item for item in stripped)
    addresses = list(dict.fromkeys(item for item in items if item))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            msg = f"'{address}' is not host:port"
            raise ProfilerError(msg)
    if not addresses:
        msg = "no address to capture from"
        raise ProfilerError(msg)
    return addresses


def _request(duration_ms: int, options: ProfilerOptions) -> "wire.ProfileRequest":
    request = wire.ProfileRequest(duration_ms=duration_ms, emit_xspace=True)
    request.opts.version = 1
    request.opts.duration_ms = duration_ms
    request.opts.host_tracer_level = options.host_tracer_level
    request.opts.device_tracer_level = options.device_tracer_level
    request.opts.python_tracer_level = options.python_tracer_level
    request.opts.enable_hlo_proto = True
    request.opts.include_dataset_ops = True
    if options.delay_ms:
        request.opts.start_timestamp_ns = time.time_ns() + options.delay_ms * 1_000_000
    return request


def _trace_one(
    link: "_Link",
    address: str,
    request: "wire.ProfileRequest",
    logdir: Path,
    session: str,
    attempts: int,
) -> WorkerResult:
    sent = wire.ProfileRequest()
    sent.CopyFrom(request)
    sent.host_name = address
    sent.session_id = session
    delay_s = max(0.0, request.opts.start_timestamp_ns / 1e9 - time.time())
    wait_s = delay_s + 2 * request.opts.duration_ms / 1000 + _GRACE_S
    problem = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(_FIRST_PAUSE_S * 2**attempt)
        try:
            answer = link.call(address, methods.PROFILE, sent.SerializeToString(), wait_s)
        except grpc.RpcError as error:
            problem = link.problem(address, error)
            if error.code() in _FINAL:
                break
            continue
        response = wire.ProfileResponse.FromString(answer)
        if response.empty_trace or not response.xspace:
            problem = "the trace has no events"
            continue
        return WorkerResult(address, save_xspace(logdir, session, address, response.xspace))
    return WorkerResult(address, None, problem)


class _Link:
    """Calls with what a client shows."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._credentials = access.credentials()

    def call(self, address: str, path: str, body: bytes, timeout_s: float) -> bytes:
        with self._channel(address) as channel:
            method = channel.unary_unary(
                path, request_serializer=bytes, response_deserializer=bytes
            )
            shown = self._access.metadata_for(address)
            answer: bytes = method(body, timeout=timeout_s, metadata=shown)
            return answer

    def problem(self, address: str, error: grpc.RpcError) -> str:
        """Why a call failed, and what to do where the token was kept back."""
        text = f"{error.code().name}: {error.details()}"
        if error.code() is grpc.StatusCode.UNAUTHENTICATED and self._access.keeps_back(address):
            text += f"; {KEPT_BACK}"
        return text

    def _channel(self, address: str) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(address, options=_OPTIONS)
        return grpc.secure_channel(address, self._credentials, options=_OPTIONS)
