"""A capture through the REST API of a podscope service."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.request import CaptureRequest
from podscope_collector.captures.states import CaptureState, HostState, ReasonCode
from podscope_collector.client import ServiceClient, as_of_podscope
from podscope_collector.errors import CollectorError, ServiceUnreachableError

POLL_S: Final = 0.4
PATIENCE_S: Final = 30
"""How long a service that restarts is waited for."""
SILENCE_S: Final = 20
"""How long a stream of events may say nothing; the service says something every 15 s."""

_ENDED = {
    CaptureState.COMPLETE,
    CaptureState.PARTIAL,
    CaptureState.FAILED,
    CaptureState.CANCELLED,
}


class Watcher(Protocol):
    """Who is told how a capture goes, see ``Progress``."""

    def update(self, update: HostUpdate) -> None:
        """Take in a change of one host."""

    def keep_only(self, targets: set[str]) -> None:
        """Forget the hosts that are not among these; lookups become hosts."""


@dataclass(frozen=True, slots=True)
class RemoteCapture:
    """A capture of a service that has ended.

    Attributes:
        id: Its id in the service.
        session: Its folder in the service's storage.
        state: How it ended.
        host_objects: The hosts as the service tells them.
        hosts: The same, typed.
        left_out: What its lookups found and could not be captured.
        alignment: How well the hosts started together, as the service tells it.
    """

    id: str
    session: str
    state: CaptureState
    host_objects: list[dict[str, Any]]
    left_out: tuple[str, ...] = ()
    alignment: dict[str, Any] | None = None

    @property
    def hosts(self) -> list[HostUpdate]:
        """The hosts in their final states."""
        return [_host(found) for found in self.host_objects]


def capture_remotely(
    request: CaptureRequest, client: ServiceClient, watcher: Watcher
) -> RemoteCapture:
    """Ask the service for a capture and follow it to its end; an interrupt cancels it there too.

    Raises:
        ServiceUnreachableError: Nothing answers at the URL, or no podscope does.
        RequestError: The service rejects the request.
        DeniedError: The service wants another token.
    """
    created = client.ask("POST", "/captures", body=request.model_dump(mode="json"))
    with as_of_podscope(client.url):
        capture_id = str(created["id"])
    return follow(capture_id, client, watcher)


def follow(capture_id: str, client: ServiceClient, watcher: Watcher) -> RemoteCapture:
    """Watch a capture to its end.

    Raises:
        ServiceUnreachableError: The service is away for longer than ``PATIENCE_S``.
        KeyboardInterrupt: After the service was asked to cancel.
    """
    try:
        return _follow(capture_id, client, watcher)
    except KeyboardInterrupt:
        # Nobody waits for it any more: its hosts are to be free at once.
        with contextlib.suppress(CollectorError):
            client.ask("POST", f"/captures/{capture_id}/cancel")
        raise


def _follow(capture_id: str, client: ServiceClient, watcher: Watcher) -> RemoteCapture:
    watched = _Watched(capture_id, client, watcher)
    try:
        for event, told in client.events(f"/captures/{capture_id}/events", SILENCE_S):
            if watched.hears(event, told):
                break
    except ServiceUnreachableError:
        # Broken off, or a proxy between holds events back: asking works through all of them.
        pass
    return watched.asked_until_ended()


class _Watched:
    """What is known of a capture that goes on at the service."""

    def __init__(self, capture_id: str, client: ServiceClient, watcher: Watcher) -> None:
        self._id = capture_id
        self._client = client
        self._watcher = watcher
        self._hosts: dict[str, tuple[str, str, int]] = {}

    def hears(self, event: str, told: dict[str, Any]) -> bool:
        """Take in an event; whether the capture has ended with it.

        Raises:
            ServiceUnreachableError: The event is not one of podscope's.
        """
        with as_of_podscope(self._client.url):
            if event == "host":
                self._take(_host(told))
            if event != "capture":
                return False
            skipped = sum(seen[1] == HostState.SKIPPED for seen in self._hosts.values())
            if len(self._hosts) - skipped != int(told["hosts_total"]):
                # Lookups became hosts, and the stream does not tell of rows that are gone.
                self._look_at_hosts()
            return CaptureState(told["state"]) in _ENDED

    def asked_until_ended(self) -> RemoteCapture:
        """Ask again and again; at once over for a capture that has ended.

        Raises:
            ServiceUnreachableError: The service is away for longer than ``PATIENCE_S``.
        """
        patience_until = 0.0
        while True:
            try:
                found = self._client.ask("GET", f"/captures/{self._id}")
                items = self._look_at_hosts()
                patience_until = 0.0
            except ServiceUnreachableError:
                # The capture goes on without us; a service that restarts comes back.
                now = time.monotonic()
                patience_until = patience_until or now + PATIENCE_S
                if now > patience_until:
                    raise
                time.sleep(1)
                continue
            with as_of_podscope(self._client.url):
                state = CaptureState(found["state"])
                if state in _ENDED:
                    left_out = tuple(str(line) for line in found["left_out"])
                    session = str(found["session"])
                    return RemoteCapture(
                        self._id, session, state, items, left_out, found["alignment"]
                    )
            time.sleep(POLL_S)

    def _look_at_hosts(self) -> list[dict[str, Any]]:
        listed = self._client.ask("GET", f"/captures/{self._id}/hosts")
        with as_of_podscope(self._client.url):
            items: list[dict[str, Any]] = listed["items"]
            hosts = [_host(item) for item in items]
        self._watcher.keep_only({host.target for host in hosts})
        names = {host.host for host in hosts}
        self._hosts = {name: seen for name, seen in self._hosts.items() if name in names}
        for host in hosts:
            self._take(host)
        return items

    def _take(self, host: HostUpdate) -> None:
        seen = (host.target, str(host.state), host.attempts)
        if self._hosts.get(host.host) != seen:
            self._hosts[host.host] = seen
            self._watcher.update(host)


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
