"""Who may use the service, and from where: tokens, hosts, origins, sizes, headers.

A service on loopback asks for no login, so any web page that the user visits could try to use
it. Two checks close this: the name that the browser called must be a loopback name (DNS
rebinding), and a request that changes something must come from the service's own pages.
"""

import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podscope_collector.errors import (
    CollectorError,
    DeniedError,
    NotAuthenticatedError,
    RequestError,
)
from podscope_collector.problems import problem, problem_of
from podscope_collector.settings import CollectorSettings
from podscope_collector.tokens import read_token

_GUARDED_PREFIXES = ("/api/", "/data/", "/metrics")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; worker-src 'self'; manifest-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def is_loopback(host: str) -> bool:
    """Whether an address or name stays on this machine."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def token_for(settings: CollectorSettings) -> SecretStr | None:
    """The token that requests must carry; None when none is asked for.

    Raises:
        RequestError: the address is not loopback, and there is neither token nor --insecure.
    """
    if settings.token_file is not None:
        return read_token(settings.token_file)
    if not is_loopback(settings.host) and not settings.insecure:
        message = (
            f"{settings.host} can be reached from other machines; give --token-file FILE, "
            "or --insecure to let everyone in"
        )
        raise RequestError(message)
    return None


class Gate:
    """ASGI middleware that lets in what may come in, and puts security headers on answers."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: SecretStr | None,
        loopback_only: bool,
        allowed_hosts: Iterable[str],
        max_request_bytes: int,
    ) -> None:
        self._app = app
        self._token = token.get_secret_value().encode() if token is not None else None
        self._loopback_only = loopback_only
        self._allowed_hosts = {name.lower() for name in allowed_hosts}
        self._max_request_bytes = max_request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in SECURITY_HEADERS.items():
                    headers.setdefault(name, text)
                if scope["path"].startswith(("/api/", "/data/")):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        try:
            self._check(scope["method"], scope["path"], headers)
        except CollectorError as error:
            await problem_of(error)(scope, receive, send_with_headers)
            return
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._max_request_bytes:
            refusal = problem(413, "request_too_large", self._too_large)
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(scope, self._bounded(receive), send_with_headers)

    @property
    def _too_large(self) -> str:
        return f"the request is larger than {self._max_request_bytes:,} bytes"

    def _bounded(self, receive: Receive) -> Receive:
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_request_bytes:
                # The framework takes any other error for a body that it cannot parse.
                raise HTTPException(413, self._too_large)
            return message

        return bounded

    def _check(self, method: str, path: str, headers: Headers) -> None:
        host = headers.get("host", "")
        name = _name_in(host)
        is_known = name in self._allowed_hosts or is_loopback(name)
        if self._loopback_only and not is_known:
            message = (
                f"this service answers to loopback names only, not to '{name[:80]}'; "
                "set PODSCOPE_COLLECTOR_ALLOWED_HOSTS for a proxy's name"
            )
            raise DeniedError(message)
        if method not in _SAFE_METHODS:
            self._check_origin(host, headers)
        if self._token is not None and path.startswith(_GUARDED_PREFIXES):
            scheme, _, given = headers.get("authorization", "").partition(" ")
            is_right = hmac.compare_digest(given.strip().encode(), self._token)
            if scheme.lower() != "bearer" or not is_right:
                message = "this service needs its token: send 'Authorization: Bearer TOKEN'"
                raise NotAuthenticatedError(message)

    def _check_origin(self, host: str, headers: Headers) -> None:
        site = headers.get("sec-fetch-site")
        origin = headers.get("origin")
        is_foreign_site = site is not None and site not in {"same-origin", "none"}
        is_foreign_origin = origin is not None and _netloc_of(origin) != host
        if is_foreign_site or is_foreign_origin:
            message = "requests from pages of other sites are refused"
            raise DeniedError(message)


def _name_in(host: str) -> str:
    """The name in a Host header, or nothing if it is malformed, which is no name we answer to."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _netloc_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
