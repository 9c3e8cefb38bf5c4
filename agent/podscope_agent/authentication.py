"""A bearer token that calls must carry, when the agent was given one."""

import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from podscope_agent.errors import TokenFileError
from podscope_agent.health import HEALTH_SERVICE

_MAX_TOKEN_BYTES: Final = 4096


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        TokenFileError: It cannot be read, or there is no token in it.
    """
    try:
        with path.open("rb") as file:
            token = file.read(_MAX_TOKEN_BYTES + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        msg = f"cannot read the token file {path}: {reason}"
        raise TokenFileError(msg) from error
    if not token or not token.isprintable() or len(token) > _MAX_TOKEN_BYTES:
        msg = f"the token file {path} holds no token; write one line of printable characters"
        raise TokenFileError(msg)
    return token


class TokenRequired(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # only in stubs
    """Refuses every call without the token, but health checks."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], "Awaitable[grpc.RpcMethodHandler[Any, Any]]"
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Pass the call on, or answer it here."""
        path = handler_call_details.method
        if path.startswith(f"/{HEALTH_SERVICE}/"):
            return await continuation(handler_call_details)
        for key, value in handler_call_details.invocation_metadata or ():
            given = value if isinstance(value, bytes) else str(value).encode()
            if key == "authorization" and hmac.compare_digest(given, self._expected):
                return await continuation(handler_call_details)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(_body: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> NoReturn:
    text = "this agent wants a bearer token: send the metadata 'authorization: Bearer …'"
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, text)
    raise AssertionError  # abort raises; this tells the type checker
