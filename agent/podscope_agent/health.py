"""The standard health service: a check, and a stream that tells when the agent stops."""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Final

import grpc

from podscope_agent.errors import MalformedXSpaceError
from podscope_agent.rpc import RpcFailure
from podscope_agent.wire_format import LENGTH_DELIMITED, fields, tagged_varint

HEALTH_SERVICE: Final = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING, _UNKNOWN = 1, 2, 3


class Health:
    """Says that the server and its services work, until it is told that they end.

    Args:
        services: Full names.
    """

    def __init__(self, services: Collection[str]) -> None:
        self._services = frozenset(services)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """The server takes no new calls; who watches is told, and let go."""
        self._stopping.set()

    def check(self, request: bytes) -> bytes:
        """A HealthCheckResponse.

        Raises:
            RpcFailure: NOT_FOUND, no such service.
        """
        asked = _service(request)
        if asked and asked not in self._services:
            raise RpcFailure(grpc.StatusCode.NOT_FOUND, f"no service '{asked[:80]}'")
        return _response(_NOT_SERVING if self._stopping.is_set() else _SERVING)

    async def watch(self, request: bytes) -> AsyncIterator[bytes]:
        """The status now and at the end."""
        asked = _service(request)
        is_known = not asked or asked in self._services
        yield _response(_SERVING if is_known else _UNKNOWN)
        await self._stopping.wait()
        if is_known:
            yield _response(_NOT_SERVING)


def _service(request: bytes) -> str:
    """The one field of a HealthCheckRequest; a name that none has when it is no such request."""
    buffer = memoryview(request)
    asked = ""
    try:
        for item in fields(buffer):
            if item.number == 1 and item.wire_type == LENGTH_DELIMITED:
                asked = str(buffer[item.value : item.end], "utf-8", "replace")
    except MalformedXSpaceError:
        return "?"
    return asked


def _response(status: int) -> bytes:
    return tagged_varint(1, status)
