"""The clients of the REST API in front of servers that are no podscope, or cannot serve now."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from tests.integration.answering import answering

from podscope_collector.captures.request import parse_request
from podscope_collector.cli import captures, schedules
from podscope_collector.cli.capture_progress import Progress
from podscope_collector.cli.capture_remote import capture_remotely
from podscope_collector.client import ServiceClient
from podscope_collector.errors import (
    DeniedError,
    InputNotFoundError,
    RequestError,
    ServiceUnreachableError,
)

ANYTHING = json.dumps({"id": "1", "session": "s", "state": "odd", "items": [{"target": "t"}]})


def server(status: int, body: str) -> AbstractContextManager[str]:
    """Answers every request alike; gives its URL."""
    return answering(lambda path, asked: (status, body.encode()))


def capture(url: str) -> None:
    with Progress([], 0, quiet=True) as progress:
        capture_remotely(parse_request({"targets": "w0:1"}), ServiceClient(url), progress)


def list_captures(url: str) -> None:
    captures.app(["list", "--url", url], standalone_mode=False)


def show_capture(url: str) -> None:
    captures.app(["show", "1", "--url", url], standalone_mode=False)


def list_schedules(url: str) -> None:
    schedules.app(["list", "--url", url], standalone_mode=False)


CLIENTS = pytest.mark.parametrize("ask", [capture, list_captures, show_capture, list_schedules])


@CLIENTS
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, "<html>welcome</html>"),
        (200, '{"x": 1}'),
        (200, "[]"),
        (200, ANYTHING),
        (404, '{"detail": "Not Found"}'),
        (501, "<html>unsupported</html>"),
        (302, ""),
    ],
)
def test_a_foreign_server_is_told_from_podscope(
    ask: Callable[[str], None], status: int, body: str
) -> None:
    with server(status, body) as url, pytest.raises(ServiceUnreachableError) as failure:
        ask(url)
    assert "check --url" in str(failure.value)
    assert url in str(failure.value)


@CLIENTS
def test_a_service_that_is_not_ready_says_why_and_is_not_told_to_start(
    ask: Callable[[str], None],
) -> None:
    body = json.dumps({"code": "not_ready", "detail": "no worker consumes the queues"})
    with server(503, body) as url, pytest.raises(ServiceUnreachableError) as failure:
        ask(url)
    assert "no worker consumes the queues" in str(failure.value)
    assert "podscope up" not in str(failure.value)


@CLIENTS
def test_a_proxy_that_wants_to_know_who_asks_is_a_denial(ask: Callable[[str], None]) -> None:
    with server(401, "<html>who are you</html>") as url, pytest.raises(DeniedError, match="token"):
        ask(url)


def test_a_capture_that_podscope_does_not_have_is_not_found() -> None:
    body = json.dumps({"code": "not_found", "detail": "no capture 1"})
    with server(404, body) as url, pytest.raises(InputNotFoundError, match="no capture 1"):
        show_capture(url)


@CLIENTS
@pytest.mark.parametrize("url", ["http://[::1", "http://a:b", "http://a\x00b", "ftp://a", ""])
def test_what_is_no_url_is_wrong_usage(ask: Callable[[str], None], url: str) -> None:
    with pytest.raises(RequestError, match="is no URL"):
        ask(url)


def test_labels_that_look_like_markup_are_printed_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    item = {
        "id": "1",
        "run": "[/bold] [red]x",
        "created_at": "2026-01-01T00:00:00",
        "state": "complete",
        "hosts_done": 1,
        "hosts_total": 1,
        "summary": None,
        "analysis": {"state": "done"},
    }
    with server(200, json.dumps({"items": [item]})) as url:
        list_captures(url)
    assert "[/bold] [red]x" in capsys.readouterr().out
