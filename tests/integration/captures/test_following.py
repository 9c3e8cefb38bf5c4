"""How the command line follows a capture of a service: by its events, or by asking."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.states import CaptureState, HostState
from podscope_collector.cli.capture_remote import follow
from podscope_collector.client import ServiceClient
from podscope_collector.errors import InputNotFoundError

Event = tuple[str, dict[str, Any]]


def host(name: str, state: str, attempts: int = 1) -> dict[str, Any]:
    return {"target": f"{name}:1", "host": name, "state": state, "attempts": attempts}


def capture(state: str, hosts: int) -> dict[str, Any]:
    return {
        "session": "s1",
        "state": state,
        "hosts_total": hosts,
        "left_out": [],
        "alignment": None,
    }


class Service:
    """Sends ``events``, then breaks off; when it is asked, the capture goes on by ``asked``."""

    def __init__(self, events: list[Event], asked: list[tuple[dict[str, Any], list[Any]]]) -> None:
        self.events = events
        self.asked = asked
        self.paths: list[str] = []
        self.content_type = "text/event-stream"
        self.status = 200

    def answer(self, path: str) -> dict[str, Any]:
        view, hosts = self.asked[0]
        if path.endswith("/hosts"):
            if len(self.asked) > 1:
                self.asked.pop(0)
            return {"items": hosts}
        return view


@contextmanager
def served(service: Service) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.rpartition("/captures/1")[2]
            service.paths.append(path)
            is_missing = service.status == 404
            self.send_response(service.status if path == "/events" or is_missing else 200)
            if path == "/events" and not is_missing:
                self.send_header("Content-Type", service.content_type)
                # More than will come: the end of the connection is a break.
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                for name, told in service.events:
                    self.wfile.write(f"event: {name}\ndata: {json.dumps(told)}\n\n".encode())
                    self.wfile.write(b": still here\n\n")
                return
            body = json.dumps(service.answer(path)).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()
            thread.join()


class Told:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, HostState]] = []
        self.kept: set[str] = set()

    def update(self, update: HostUpdate) -> None:
        self.changes.append((update.target, update.state))

    def keep_only(self, targets: set[str]) -> None:
        self.kept = targets


def test_events_tell_every_change_and_the_service_is_asked_once_at_the_end() -> None:
    ended = (capture("complete", 2), [host("a", "done"), host("b", "done")])
    service = Service(
        [
            ("host", host("a", "capturing")),
            ("host", host("b", "connecting")),
            ("capture", capture("capturing", 2)),
            ("host", host("a", "done")),
            ("capture", capture("capturing", 2)),
            ("host", host("b", "done")),
            ("capture", capture("complete", 2)),
        ],
        [ended],
    )
    told = Told()
    with served(service) as url:
        remote = follow("1", ServiceClient(url), told)
    assert remote.state is CaptureState.COMPLETE
    assert [update.state for update in remote.hosts] == [HostState.DONE, HostState.DONE]
    assert told.changes == [
        ("a:1", HostState.CAPTURING),
        ("b:1", HostState.CONNECTING),
        ("a:1", HostState.DONE),
        ("b:1", HostState.DONE),
    ]
    assert service.paths == ["/events", "", "/hosts"]


def test_lookups_become_hosts_while_events_come() -> None:
    ended = (capture("complete", 2), [host("a", "done"), host("b", "done")])
    service = Service(
        [
            ("host", host("k8s", "pending", 0)),
            ("capture", capture("pending", 1)),
            ("host", host("a", "capturing")),
            ("host", host("b", "capturing")),
            ("capture", capture("capturing", 2)),
            ("capture", capture("complete", 2)),
        ],
        [(capture("capturing", 2), [host("a", "capturing"), host("b", "capturing")]), ended],
    )
    told = Told()
    with served(service) as url:
        follow("1", ServiceClient(url), told)
    assert told.kept == {"a:1", "b:1"}
    assert service.paths == ["/events", "/hosts", "", "/hosts"]


@pytest.mark.parametrize("trouble", ["break", "no events", "not found here", "nonsense"])
def test_a_capture_is_asked_for_when_its_events_end_early(trouble: str) -> None:
    running = (capture("capturing", 1), [host("a", "capturing")])
    ended = (capture("failed", 1), [host("a", "failed")])
    service = Service([("host", host("a", "connecting"))], [running, running, ended])
    if trouble == "no events":
        service.content_type = "text/html"
    elif trouble == "not found here":
        # A proxy that knows nothing of event streams.
        service.status = 502
    elif trouble == "nonsense":
        service.events = [("host", {"target": "a:1"})]
    told = Told()
    with served(service) as url:
        remote = follow("1", ServiceClient(url), told)
    assert remote.state is CaptureState.FAILED
    assert told.changes[-2:] == [("a:1", HostState.CAPTURING), ("a:1", HostState.FAILED)]


def test_a_capture_that_is_not_there_is_said_to_be_missing() -> None:
    service = Service([], [({"code": "not_found", "detail": "no capture 1"}, [])])
    service.status = 404
    with served(service) as url, pytest.raises(InputNotFoundError):
        follow("1", ServiceClient(url), Told())
