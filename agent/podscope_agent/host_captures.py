"""Captures that a collector triggers and fetches later: by id, once each, kept for a while."""

import asyncio
import resource
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import grpc
import structlog
from google.protobuf.message import DecodeError

from podscope_agent.errors import AgentError
from podscope_agent.repository import Repository
from podscope_agent.results import PIECE_BYTES, ResultSpool, StoredResult
from podscope_agent.rpc import RpcFailure
from podscope_agent.session import HostSession, MergedCapture
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire

log = structlog.get_logger()

_MAX_ID_LENGTH: Final = 128
_MAX_REMEMBERED: Final = 256

State = own.CaptureResponse.State


@dataclass
class _Known:
    """A capture that was asked for; its task ends with the outcome in ``response``."""

    response: own.CaptureResponse
    task: asyncio.Task[None] | None = None


class HostCaptures:
    """Runs captures apart from the calls that asked for them, so that a lost call loses nothing."""

    def __init__(self, session: HostSession, spool: ResultSpool, repository: Repository) -> None:
        """Capture with `session`; keep profiles in `spool`, or write them to `repository`."""
        self._session = session
        self._spool = spool
        self._repository = repository
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def capture(
        self, request: own.CaptureRequest, time_remaining_s: float | None
    ) -> own.CaptureResponse:
        """Begin a capture, or tell what became of it.

        Args:
            request: With an id that is the caller's own.
            time_remaining_s: Until the caller's deadline; the capture outlives the call.

        Raises:
            RpcFailure: Busy, over budget, or the request makes no sense; nothing was begun.
        """
        if not 0 < len(request.capture_id) <= _MAX_ID_LENGTH:
            text = f"capture_id must have 1 to {_MAX_ID_LENGTH} characters"
            raise RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, text)
        known = self._known.get(request.capture_id)
        if known is None:
            known = self._begin(request)
        if request.wait and known.task is not None:
            # A caller that hangs up ends its waiting, not the capture.
            await asyncio.wait({known.task}, timeout=time_remaining_s)
        return known.response

    async def cancel(self, capture_id: str) -> bool:
        """End a running capture without a result; False when it does not run."""
        known = self._known.get(capture_id)
        if known is None or known.task is None or known.task.done():
            return False
        known.task.cancel()
        await asyncio.wait({known.task})
        return True

    async def fetch(self, request: own.FetchRequest) -> AsyncIterator[own.FetchResponse]:
        """The profile of a capture from an offset on, in pieces; waits for one that still runs.

        Raises:
            RpcFailure: NOT_FOUND for an unknown or expired one, else how the capture failed.
        """
        stored = await self._stored(request.capture_id)
        if request.offset > stored.size:
            text = f"the profile has {stored.size} bytes, less than the offset {request.offset}"
            raise RpcFailure(grpc.StatusCode.OUT_OF_RANGE, text)
        offset = request.offset
        try:
            file = await asyncio.to_thread(stored.path.open, "rb")
        except OSError as error:
            text = f"the profile of {request.capture_id} is not kept any more; capture again"
            raise RpcFailure(grpc.StatusCode.NOT_FOUND, text) from error
        with file:
            file.seek(offset)
            while True:
                piece = await asyncio.to_thread(file.read, PIECE_BYTES)
                is_last = offset + len(piece) >= stored.size
                yield own.FetchResponse(
                    offset=offset,
                    piece=piece,
                    size_bytes=stored.size,
                    sha256=stored.sha256 if is_last else "",
                )
                offset += len(piece)
                if is_last:
                    return
                if not piece:
                    text = "the file of the profile is shorter than it was; capture again"
                    raise RpcFailure(grpc.StatusCode.DATA_LOSS, text)

    async def close(self) -> None:
        """Cancel what runs and remove what is kept."""
        for capture_id in list(self._known):
            await self.cancel(capture_id)
        self._spool.close()

    async def _stored(self, capture_id: str) -> StoredResult:
        known = self._known.get(capture_id)
        if known is not None and known.task is not None:
            await asyncio.wait({known.task})
        if known is not None and known.response.state == State.STATE_FAILED:
            raise RpcFailure(_status(known.response.grpc_code), known.response.message)
        stored = self._spool.find(capture_id)
        if stored is None:
            text = f"no profile of capture '{capture_id[:40]}' is kept here; capture again"
            raise RpcFailure(grpc.StatusCode.NOT_FOUND, text)
        return stored

    def _begin(self, request: own.CaptureRequest) -> _Known:
        try:
            wanted = wire.ProfileRequest.FromString(request.profile_request)
        except DecodeError as error:
            text = "profile_request is no ProfileRequest"
            raise RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, text) from error
        if request.write_to_repository and not self._repository.allows(wanted.repository_root):
            text = (
                f"this agent may not write to '{wanted.repository_root[:200]}'; "
                "start it with --allow-root"
            )
            raise RpcFailure(grpc.StatusCode.PERMISSION_DENIED, text)
        # Raises before anything is remembered: a busy host is asked again with the same id.
        self._session.admit(wanted)
        response = own.CaptureResponse(capture_id=request.capture_id, state=State.STATE_RUNNING)
        known = _Known(response)
        self._known[request.capture_id] = known
        while len(self._known) > _MAX_REMEMBERED:
            oldest = next(iter(self._known))
            if self._known[oldest].response.state == State.STATE_RUNNING:
                break
            del self._known[oldest]
        to_repository = request.write_to_repository
        known.task = asyncio.create_task(
            self._run(request.capture_id, wanted, response, to_repository=to_repository)
        )
        return known

    async def _run(
        self,
        capture_id: str,
        wanted: wire.ProfileRequest,
        response: own.CaptureResponse,
        *,
        to_repository: bool,
    ) -> None:
        began, cpu = time.monotonic(), _cpu_seconds()
        try:
            merged = await self._session.capture(wanted, None)
            await asyncio.to_thread(
                self._keep, capture_id, wanted, merged, response, to_repository=to_repository
            )
        except RpcFailure as failure:
            _fail(response, failure.status.name, failure.details)
        except AgentError as error:
            _fail(response, grpc.StatusCode.RESOURCE_EXHAUSTED.name, str(error))
        except asyncio.CancelledError:
            _fail(response, grpc.StatusCode.CANCELLED.name, "the capture was cancelled")
        finally:
            response.cost.wall_seconds = time.monotonic() - began
            response.cost.agent_cpu_seconds = _cpu_seconds() - cpu
            response.cost.bytes = response.size_bytes

    def _keep(
        self,
        capture_id: str,
        wanted: wire.ProfileRequest,
        merged: MergedCapture,
        response: own.CaptureResponse,
        *,
        to_repository: bool,
    ) -> None:
        if merged.is_empty:
            response.state = State.STATE_EMPTY
        if to_repository and not merged.is_empty:
            host = wanted.opts.override_hostname or wanted.host_name.replace(":", "_")
            written = self._repository.write(
                wanted.repository_root, wanted.session_id, host, merged.pieces
            )
            response.path = written.path
            response.size_bytes, response.sha256 = written.size, written.sha256
        else:
            stored = self._spool.put(capture_id, merged.pieces)
            response.size_bytes, response.sha256 = stored.size, stored.sha256
        if not merged.is_empty:
            response.state = State.STATE_DONE


def _fail(response: own.CaptureResponse, code: str, message: str) -> None:
    response.state = State.STATE_FAILED
    response.grpc_code = code
    response.message = message


def _status(name: str) -> grpc.StatusCode:
    return grpc.StatusCode.__members__.get(name, grpc.StatusCode.INTERNAL)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
