"""The agent's HTTP pages: ``/metrics`` for Prometheus, ``/targets`` in JSON, ``/healthz``."""

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

from podscope_agent.errors import PortInUseError
from podscope_agent.inventory import KnownTarget
from podscope_agent.listening import check_bind, family_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

log = structlog.get_logger()

_ANSWER_S: Final = 10.0
_SILENCE_S: Final = 30.0
_JSON: Final = ("Content-Type", "application/json")


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that hang up or fall silent; the base class prints their stack."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.error("page_failed", client=str(client_address), exc_info=error)


class _Handler(WSGIRequestHandler):
    # Each connection holds a thread: one that says nothing must not hold it for ever.
    timeout = _SILENCE_S

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: scrapes come every few seconds."""


class StatusPages:
    """Serves the pages in threads of its own, so that a busy event loop never hides metrics.

    Args:
        host: Address to listen on.
        port: Port; 0 picks a free one.
        registry: What ``/metrics`` shows.
        targets: Tells the targets; runs on the event loop that ``start`` was called on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        targets: Callable[[], Awaitable[Sequence[KnownTarget]]],
    ) -> None:
        self._host = host
        self.port = port
        self._metrics = make_wsgi_app(registry)
        self._targets = targets
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            PortInUseError: The port is taken.
            ListenError: The address is none of this host's.
        """
        # By hand first: with port 0 or a foreign address the reason is not a taken port.
        check_bind(self._host, self.port, "--metrics-port")
        kind = type("_Bound", (_Server,), {"address_family": family_of(self._host)})
        try:
            self._server = make_server(self._host, self.port, self._answer, kind, _Handler)
        except OSError as error:
            raise PortInUseError(self.port, "--metrics-port") from error
        self.port = self._server.server_port
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="status-pages", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None and self._thread is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()
            self._thread.join()

    def _answer(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/targets":
                return self._answer_targets(start_response)
            case "/healthz":
                start_response("200 OK", [_JSON])
                return [b'{"status": "ok"}\n']
            case "/" | "/metrics":
                pages: Iterable[bytes] = self._metrics(environ, start_response)
                return pages
            case _:
                start_response("404 Not Found", [_JSON])
                return [b'{"error": "there are /metrics, /targets and /healthz"}\n']

    def _answer_targets(self, start_response: "StartResponse") -> Iterable[bytes]:
        async def ask() -> Sequence[KnownTarget]:
            return await self._targets()

        if self._loop is None:
            raise RuntimeError
        asked = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        try:
            targets = asked.result(_ANSWER_S)
        except FutureTimeoutError:
            asked.cancel()
            start_response("503 Service Unavailable", [_JSON])
            return [b'{"error": "the targets take too long to answer"}\n']
        start_response("200 OK", [_JSON])
        body = {"items": [target.to_json() for target in targets]}
        return [json.dumps(body).encode() + b"\n"]
