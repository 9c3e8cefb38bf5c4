"""Hands a profile to the client that asked: in the answer, in a repository, or kept to fetch."""

import secrets
from dataclasses import dataclass

import grpc

from podscope_agent.errors import RepositoryError, SpoolError
from podscope_agent.merge import HostPart, with_warnings
from podscope_agent.repository import Repository, file_stem
from podscope_agent.responses import profile_response, room_for
from podscope_agent.results import ResultSpool
from podscope_agent.rpc import RpcFailure
from podscope_agent.session import MergedCapture
from podscope_protos.methods import MAX_MESSAGE_BYTES
from podscope_protos.v1 import profiler_service_pb2 as wire


@dataclass(frozen=True)
class Delivered:
    """An answer to ``Profile``.

    Attributes:
        response: The serialised ProfileResponse.
        metadata: What the call's trailing metadata tells of files.
    """

    response: bytes
    metadata: tuple[tuple[str, str], ...] = ()


class Delivery:
    """Decides where a profile goes, and that nothing of it is dropped.

    Args:
        repository: Where files may be written.
        spool: Where the processes' profiles wait that no answer has room for.
        limit_bytes: Of one message and of one file; readers of XSpaces take no more than 2 GiB.
    """

    def __init__(
        self, repository: Repository, spool: ResultSpool, limit_bytes: int = MAX_MESSAGE_BYTES
    ) -> None:
        self._repository = repository
        self._spool = spool
        self._limit_bytes = limit_bytes

    def check(self, request: wire.ProfileRequest) -> None:
        """Refuse names that no file can have, before anything is captured for them.

        Raises:
            RpcFailure: INTERNAL, as a stock server that cannot write.
        """
        if request.emit_xspace or not self._repository.allows(request.repository_root):
            return
        try:
            self._repository.check(request.repository_root, request.session_id, file_stem(request))
        except RepositoryError as error:
            raise RpcFailure(grpc.StatusCode.INTERNAL, str(error)) from error

    def deliver(self, request: wire.ProfileRequest, merged: MergedCapture) -> Delivered:
        """Answer a request with what was captured for it.

        Raises:
            RpcFailure: A file cannot be written, or nothing fits into the answer.
        """
        room = self._limit_bytes - room_for(merged.pieces) + merged.pieces.size
        files = merged.files(room)
        if not request.emit_xspace and self._repository.allows(request.repository_root):
            return self._written(request, files, is_empty=merged.is_empty)
        if merged.is_empty and not request.emit_xspace:
            return Delivered(profile_response(None, is_empty=True))
        return self._answered(files, is_empty=merged.is_empty, as_xspace=request.emit_xspace)

    def _written(
        self, request: wire.ProfileRequest, files: list[HostPart], *, is_empty: bool
    ) -> Delivered:
        """As a stock server does it: under the name that the client calls this host by."""
        host = file_stem(request)
        metadata: list[tuple[str, str]] = []
        for part in files:
            try:
                written = self._repository.write(
                    request.repository_root, request.session_id, part.name(host), part.pieces
                )
            except RepositoryError as error:
                raise RpcFailure(grpc.StatusCode.INTERNAL, str(error)) from error
            metadata += [
                ("podscope-path", written.path),
                ("podscope-size", str(written.size)),
                ("podscope-sha256", written.sha256),
            ]
        return Delivered(profile_response(None, is_empty=is_empty), tuple(metadata))

    def _answered(self, files: list[HostPart], *, is_empty: bool, as_xspace: bool) -> Delivered:
        room = self._limit_bytes
        inside: list[HostPart] = []
        metadata: list[tuple[str, str]] = []
        warnings: list[str] = []
        for part in files:
            if room_for(part.pieces) <= room:
                room -= room_for(part.pieces)
                inside.append(part)
                continue
            kept = self._kept(part)
            metadata.append(("podscope-kept", kept))
            warnings.append(
                f"{part.suffix or 'one process'} has {part.pieces.size:,} bytes, for which this "
                f"answer has no room; the agent keeps them as '{kept}' for "
                f"{self._spool.keep_s:.0f} s (AgentService/Fetch)"
            )
        if not inside:
            text = f"the profile is too large for an answer: {'; '.join(warnings)}"
            raise RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        first, *others = inside
        pieces = with_warnings(first.pieces, warnings)
        tools = [(f"{part.suffix}.xplane.pb", part.pieces) for part in others]
        if as_xspace:
            return Delivered(profile_response(pieces, tools, is_empty=is_empty), tuple(metadata))
        # Stock clients never save `xspace`; this is the one field that all of them write.
        tools.insert(0, ("xplane.pb", pieces))
        return Delivered(profile_response(None, tools, is_empty=is_empty), tuple(metadata))

    def _kept(self, part: HostPart) -> str:
        name = f"split-{secrets.token_hex(8)}"
        try:
            self._spool.put(name, part.pieces)
        except SpoolError as error:
            raise RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)) from error
        return name
