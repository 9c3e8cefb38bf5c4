"""A capture through the REST API of a podscope service."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.request import CaptureRequest
from podscope_collector.captures.states import CaptureState, HostState, ReasonCode
from podscope_collector.client import as_of_podscope
from podscope_collector.errors import (
    CollectorError,
    DeniedError,
    InputNotFoundError,
    RequestError,
    ServiceUnreachableError,
)

POLL_S: Final = 0.4
_ENDED = {
    CaptureState.COMPLETE,
    CaptureState.PARTIAL,
    CaptureState.FAILED,
    CaptureState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class RemoteCapture:
    """A capture of a service that has ended.

    Attributes:
        id: Its id in the service.
        session: Its folder in the service's storage.
        state: How it ended.
        host_objects: The hosts as the service tells them.
        hosts: The same, typed.
    """

    id: str
    session: str
    state: CaptureState
    host_objects: list[dict[str, Any]]

    @property
    def hosts(self) -> list[HostUpdate]:
        """The hosts in their final states."""
        return [_host(found) for found in self.host_objects]


def capture_remotely(
    request: CaptureRequest,
    url: str,
    token_file: Path | None,
    on_update: Callable[[HostUpdate], None],
) -> RemoteCapture:
    """Ask the service for a capture and follow it to its end.

    Raises:
        ServiceUnreachableError: Nothing answers at the URL, or no podscope does.
        RequestError: The service rejects the request.
        DeniedError: The service wants another token.
    """
    if not url.startswith(("http://", "https://")):
        msg = f"--url '{url[:80]}' is no URL; write http://127.0.0.1:8080"
        raise RequestError(msg)
    headers = {}
    if token_file is not None:
        headers["Authorization"] = f"Bearer {_token(token_file)}"
    base = url.rstrip("/") + "/api/v1"
    try:
        httpx.URL(base)
    except httpx.InvalidURL as error:
        msg = f"--url '{url[:80]}' is no URL ({error}); write http://127.0.0.1:8080"
        raise RequestError(msg) from error
    with httpx.Client(base_url=base, headers=headers, timeout=30, trust_env=False) as client:
        created = _ask(client, url, "POST", "/captures", request.model_dump(mode="json"))
        with as_of_podscope(url):
            capture_id = str(created["id"])
        seen: dict[str, tuple[str, int]] = {}
        patience_until = 0.0
        while True:
            try:
                found = _ask(client, url, "GET", f"/captures/{capture_id}")
                listed = _ask(client, url, "GET", f"/captures/{capture_id}/hosts")
                patience_until = 0.0
            except ServiceUnreachableError:
                # The capture goes on without us; a service that restarts comes back.
                now = time.monotonic()
                patience_until = patience_until or now + 30
                if now > patience_until:
                    raise
                time.sleep(1)
                continue
            with as_of_podscope(url):
                hosts = listed["items"]
                state = CaptureState(found["state"])
                ended = RemoteCapture(capture_id, str(found["session"]), state, hosts)
                updates = ended.hosts
            for update in updates:
                key = (str(update.state), update.attempts)
                if seen.get(update.target) != key:
                    seen[update.target] = key
                    on_update(update)
            if state in _ENDED:
                return ended
            time.sleep(POLL_S)


def _token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        msg = f"cannot read the token file {path}: {error.strerror}"
        raise InputNotFoundError(msg) from error


def _ask(
    client: httpx.Client, url: str, method: str, path: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    try:
        answer = client.request(method, path, json=body)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        msg = f"no podscope service answers at {url} ({error}); start one with: podscope up"
        raise ServiceUnreachableError(msg) from error
    try:
        found = answer.json()
    except ValueError:
        found = None
    if answer.is_success and isinstance(found, dict):
        return found
    detail = ""
    if isinstance(found, dict):
        detail = str(found.get("detail") or found.get("title") or "")
    if answer.status_code in {401, 403}:
        raise DeniedError(detail or "the service wants a token; pass --token-file")
    if answer.status_code in {400, 409, 413, 422} and detail:
        raise RequestError(detail)
    if answer.status_code >= 500 and detail:
        msg = f"the service at {url} cannot: {detail}"
        if answer.status_code == 503:
            raise ServiceUnreachableError(msg)
        raise CollectorError(msg)
    msg = f"{url} answers with HTTP {answer.status_code}, not as a podscope service; check --url"
    raise ServiceUnreachableError(msg)


def _host(found: Mapping[str, Any]) -> HostUpdate:
    reason = found.get("reason")
    return HostUpdate(
        target=str(found["target"]),
        host=str(found["host"]),
        state=HostState(found["state"]),
        attempts=int(found.get("attempts") or 0),
        reason=ReasonCode(reason) if reason else None,
        message=found.get("message"),
        grpc_code=found.get("grpc_code"),
        bytes=int(found.get("bytes") or 0),
        sha256=found.get("sha256"),
        file=found.get("file"),
    )
