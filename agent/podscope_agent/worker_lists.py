"""Captures of a worker list (``ProfileAnalysis/NewSession``): this host, and hosts it may call.

TensorFlow's and XProf's clients send one to its first worker and call nobody else; that worker
captures all of them and writes the files.
"""

import asyncio
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

import grpc
import grpc.aio
import structlog

from podscope_agent.delivery import Delivery
from podscope_agent.errors import AgentError, MalformedXSpaceError
from podscope_agent.inventory import is_own_host
from podscope_agent.pieces import Pieces
from podscope_agent.processes import port_of
from podscope_agent.repository import Repository
from podscope_agent.responses import xspace_of_response
from podscope_agent.rpc import RpcFailure
from podscope_agent.scanning import scan
from podscope_agent.session import HostSession
from podscope_agent.targets import parse_targets
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire

log = structlog.get_logger()

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", methods.MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
)
_GRACE_S: Final = 60.0
_MAX_WORKERS: Final = 4096
_AT_ONCE: Final = 4
"""Profiles that are received at once; each is whole in memory until it is written."""


class WorkerLists:
    """Captures the hosts of a list and writes what they recorded below an allowed root.

    Args:
        session: Captures this host.
        delivery: Writes what it recorded.
        repository: Gets the other hosts' profiles.
        allowed: Patterns of other workers, ``host:port`` with ``*``. Without, a client could make
            this host call any address, past the network's policies.
        own_port: Of this agent.
    """

    def __init__(
        self,
        session: HostSession,
        delivery: Delivery,
        repository: Repository,
        allowed: Sequence[str],
        own_port: Callable[[], int],
    ) -> None:
        self._session = session
        self._delivery = delivery
        self._repository = repository
        self._allowed = tuple(pattern.lower() for pattern in allowed)
        self._own_port = own_port

    async def capture(self, asked: wire.NewProfileSessionRequest) -> wire.NewProfileSessionResponse:
        """Capture every worker; one that fails costs only itself.

        Raises:
            RpcFailure: A worker may not be called, nothing may be written, or no worker answered.
        """
        request = self._request(asked)
        here, elsewhere = self._sorted(asked.hosts)
        writing = asyncio.Semaphore(_AT_ONCE)
        captures = [self._of_other(worker, request, writing) for worker in elsewhere]
        if here:
            captures.insert(0, self._of_this_host(here, request))
        outcomes = await asyncio.gather(*captures, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for failure in failures:
            if not isinstance(failure, RpcFailure):
                raise failure
        if len(failures) == len(outcomes):
            raise failures[0]
        # The client takes an OK with a message for success; who reads it learns of the losses.
        return wire.NewProfileSessionResponse(
            error_message="; ".join(str(failure) for failure in failures),
            empty_trace=not any(outcome is True for outcome in outcomes),
        )

    def _request(self, asked: wire.NewProfileSessionRequest) -> wire.ProfileRequest:
        request = wire.ProfileRequest()
        request.CopyFrom(asked.request)
        request.repository_root = asked.repository_root or request.repository_root
        request.session_id = asked.session_id or request.session_id
        request.emit_xspace = False
        if not self._repository.allows(request.repository_root):
            text = (
                "the profiles of a worker list are written by its first worker, and this agent may "
                f"not write to '{request.repository_root[:200]}': start it with --allow-root, or "
                "give every host as service address"
            )
            raise RpcFailure(grpc.StatusCode.FAILED_PRECONDITION, text)
        return request

    def _sorted(self, hosts: Sequence[str]) -> tuple[list[str], list[str]]:
        """The workers of this host, and the others.

        Raises:
            RpcFailure: There is none, one is no address, or one may not be called.
        """
        if not 0 < len(hosts) <= _MAX_WORKERS:
            text = f"a worker list has 1 to {_MAX_WORKERS} items of host:port"
            raise RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, text)
        try:
            workers = parse_targets(hosts)
        except AgentError as error:
            raise RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
        ports = {self._own_port(), *map(port_of, self._session.inventory.addresses)}
        here = [one for one in workers if is_own_host(one) and port_of(one) in ports]
        elsewhere = [one for one in workers if one not in here]
        for worker in elsewhere:
            if not any(fnmatchcase(worker.lower(), pattern) for pattern in self._allowed):
                text = (
                    f"this agent may not call {worker}: name it with --allow-worker, give every "
                    "host as service address, or capture through the collector"
                )
                raise RpcFailure(grpc.StatusCode.PERMISSION_DENIED, text)
        return here, elsewhere

    async def _of_this_host(self, workers: Sequence[str], asked: wire.ProfileRequest) -> bool:
        """Its processes are one profile, under the name of the first worker that it is."""
        request = wire.ProfileRequest()
        request.CopyFrom(asked)
        request.host_name = workers[0]
        merged = await self._session.capture(request, None)
        await asyncio.to_thread(self._delivery.deliver, request, merged)
        return not merged.is_empty

    async def _of_other(
        self, worker: str, asked: wire.ProfileRequest, writing: asyncio.Semaphore
    ) -> bool:
        request = wire.ProfileRequest()
        request.CopyFrom(asked)
        request.host_name = worker
        # Its disk is not ours: what it recorded comes back and is written here.
        request.repository_root, request.emit_xspace = "", True
        timeout_s = _GRACE_S + 2 * request.opts.duration_ms / 1000
        async with grpc.aio.insecure_channel(worker, options=_OPTIONS) as channel:
            method = channel.unary_unary(
                methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
            )
            try:
                answer: bytes = await method(request.SerializeToString(), timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                log.warning("worker_failed", worker=worker, status=error.code().name)
                raise RpcFailure(error.code(), f"{worker}: {error.details()}") from error
        async with writing:
            return await asyncio.to_thread(self._write, worker, asked, answer)

    def _write(self, worker: str, asked: wire.ProfileRequest, answer: bytes) -> bool:
        name = worker.replace(":", "_")
        try:
            space = xspace_of_response(answer)
            has_events = scan(space).has_events
            if has_events:
                self._repository.write(
                    asked.repository_root, asked.session_id, name, Pieces([space])
                )
        except MalformedXSpaceError as error:
            text = f"{worker} answered with bytes that are no profile: {error}"
            raise RpcFailure(grpc.StatusCode.DATA_LOSS, text) from error
        except AgentError as error:
            raise RpcFailure(grpc.StatusCode.INTERNAL, str(error)) from error
        return has_events
