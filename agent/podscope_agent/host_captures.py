"""Captures that a collector triggers and fetches later: by id, once each, kept for a while."""

import asyncio
import resource
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
import structlog
from google.protobuf.message import DecodeError

from podscope_agent.errors import AgentError, RepositoryError
from podscope_agent.merge import HostPart
from podscope_agent.repository import Repository, file_stem
from podscope_agent.results import PIECE_BYTES, ResultSpool, StoredResult
from podscope_agent.rpc import RpcFailure
from podscope_agent.session import HostSession, MergedCapture
from podscope_protos.methods import MAX_MESSAGE_BYTES
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire

log = structlog.get_logger()

_MAX_ID_LENGTH: Final = 128
_MAX_REMEMBERED: Final = 256

_CANCELLED: Final = "the capture was cancelled"

State = own.CaptureResponse.State


@dataclass
class _Known:
    """A capture that was asked for; its task ends with the outcome in ``response``."""

    response: own.CaptureResponse
    task: asyncio.Task[None] | None = None


class HostCaptures:
    """Runs captures apart from the calls that asked for them, so that a lost call loses nothing."""

    def __init__(
        self,
        session: HostSession,
        spool: ResultSpool,
        repository: Repository,
        limit_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        """Capture with `session`; keep profiles in `spool`, or write them to `repository`.

        A profile above `limit_bytes` becomes one of each process: no reader takes more than 2 GiB.
        """
        self._limit_bytes = limit_bytes
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
        if known.response.state == State.STATE_RUNNING:
            # It was ended before it had begun.
            _fail(known.response, grpc.StatusCode.CANCELLED.name, _CANCELLED)
        return True

    async def fetch(self, request: own.FetchRequest) -> AsyncIterator[own.FetchResponse]:
        """The profile of a capture from an offset on, in pieces; waits for one that still runs.

        Raises:
            RpcFailure: NOT_FOUND for an unknown or expired one, OUT_OF_RANGE for a part or an
                offset that it has not, else how the capture failed.
        """
        parts = await self._stored(request.capture_id)
        if request.part >= len(parts):
            text = f"the profile has {len(parts)} parts, none is number {request.part}"
            raise RpcFailure(grpc.StatusCode.OUT_OF_RANGE, text)
        stored = parts[request.part]
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

    async def _stored(self, capture_id: str) -> tuple[StoredResult, ...]:
        known = self._known.get(capture_id)
        if known is not None and known.task is not None:
            await asyncio.wait({known.task})
        if known is not None and known.response.state == State.STATE_FAILED:
            raise RpcFailure(_status(known.response.grpc_code), known.response.message)
        stored = self._spool.find(capture_id)
        if not stored:
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
        if request.write_to_repository:
            try:
                root = wanted.repository_root
                self._repository.check(root, wanted.session_id, file_stem(wanted))
            except RepositoryError as error:
                raise RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
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
            response.cost.target_seconds = merged.cost.target_seconds
            kept = await asyncio.to_thread(
                self._kept, capture_id, wanted, merged, to_repository=to_repository
            )
            response.MergeFrom(kept)
        except RpcFailure as failure:
            _fail(response, failure.status.name, failure.details)
        except AgentError as error:
            _fail(response, grpc.StatusCode.RESOURCE_EXHAUSTED.name, str(error))
        except asyncio.CancelledError:
            _fail(response, grpc.StatusCode.CANCELLED.name, _CANCELLED)
        except Exception as error:
            # Who asks would be told for ever that it runs.
            log.exception("capture_failed", capture=capture_id)
            text = f"unexpected {type(error).__name__}: {error}; please report this"
            _fail(response, grpc.StatusCode.INTERNAL.name, text)
        finally:
            response.cost.wall_seconds = time.monotonic() - began
            response.cost.agent_cpu_seconds = _cpu_seconds() - cpu
            more = sum(part.size_bytes for part in response.more_parts)
            response.cost.bytes = response.size_bytes + more

    def _kept(
        self,
        capture_id: str,
        wanted: wire.ProfileRequest,
        merged: MergedCapture,
        *,
        to_repository: bool,
    ) -> own.CaptureResponse:
        """Store the profile; return what there is to tell of it, apart from the shared answer.

        A capture that is cancelled meanwhile has been answered already, and stays cancelled.
        """
        files = merged.files(self._limit_bytes)
        if to_repository and not merged.is_empty:
            told = self._written(wanted, files)
        else:
            kept = self._spool.put(capture_id, *(file.pieces for file in files))
            told = [
                own.CapturedPart(suffix=file.suffix, size_bytes=one.size, sha256=one.sha256)
                for file, one in zip(files, kept, strict=True)
            ]
        first, *more = told
        return own.CaptureResponse(
            state=State.STATE_EMPTY if merged.is_empty else State.STATE_DONE,
            size_bytes=first.size_bytes,
            sha256=first.sha256,
            path=first.path,
            more_parts=more,
        )

    def _written(
        self, wanted: wire.ProfileRequest, files: Sequence[HostPart]
    ) -> list[own.CapturedPart]:
        host = file_stem(wanted)
        told = []
        for file in files:
            written = self._repository.write(
                wanted.repository_root, wanted.session_id, file.name(host), file.pieces
            )
            told.append(
                own.CapturedPart(
                    suffix=file.suffix,
                    size_bytes=written.size,
                    sha256=written.sha256,
                    path=written.path,
                )
            )
        return told


def _fail(response: own.CaptureResponse, code: str, message: str) -> None:
    response.state = State.STATE_FAILED
    response.grpc_code = code
    response.message = message


def _status(name: str) -> grpc.StatusCode:
    return grpc.StatusCode.__members__.get(name, grpc.StatusCode.INTERNAL)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
