"""The pods of a node, from a server on loopback that answers as the Kubernetes API does."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from podscope_agent.inventory import KnownTarget, TargetInventory
from podscope_agent.pods import PodsError, PodWatcher


@contextmanager
def api(
    pages: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serves pages by their ``continue``; yields the URL and the queries that came."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: given[0] for name, given in parse_qs(parts.query).items()}
            query["path"] = parts.path
            query["authorization"] = self.headers.get("Authorization", "")
            asked.append(query)
            body = pages[query.get("continue", "")]
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for header in (headers or {}).items():
                self.send_header(*header)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}", asked
        finally:
            http.shutdown()
            thread.join()


def pod(name: str, ip: str | None, port: str | None = "9999", **status: Any) -> dict[str, Any]:
    annotations = {} if port is None else {"podscope.dev/port": port}
    labels = {"jobset.sigs.k8s.io/jobset-name": "llm", "secret": "not kept"}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "train",
        "annotations": annotations,
        "labels": labels,
    }
    if status.pop("dying", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "status": {"phase": "Running", "podIP": ip, **status}}


def watcher(url: str, folder: Path, selector: str = "") -> PodWatcher:
    (folder / "token").write_text("s3cret\n")
    inventory = TargetInventory()
    return PodWatcher(url, "node-7", selector, folder / "token", folder / "absent", inventory)


def test_the_annotated_pods_of_the_node_are_targets(tmp_path: Path) -> None:
    first = {"items": [pod("a", "10.0.0.1"), pod("b", "fd00::1", "9012")]}
    pages = {
        "": {**first, "metadata": {"continue": "2"}},
        "2": {
            "items": [
                pod("no-port", "10.0.0.2", None),
                pod("bad-port", "10.0.0.3", "99999"),
                pod("pending", "10.0.0.4", phase="Pending"),
                pod("dying", "10.0.0.5", dying=True),
                pod("no-ip", None),
                "nonsense",
            ]
        },
    }
    with api(pages) as (url, asked):
        found = watcher(url, tmp_path, "app=llm").look()
    assert found == [
        KnownTarget(
            address,
            source="kubernetes",
            labels={
                "jobset.sigs.k8s.io/jobset-name": "llm",
                "pod": name,
                "namespace": "train",
            },
        )
        for name, address in (("a", "10.0.0.1:9999"), ("b", "[fd00::1]:9012"))
    ]
    assert [query["path"] for query in asked] == ["/api/v1/pods"] * 2
    assert asked[0]["fieldSelector"] == "spec.nodeName=node-7"
    assert asked[0]["labelSelector"] == "app=llm"
    assert asked[1]["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, {}, "right to list pods"),
        (200, b"<html>", "cannot be asked"),
        (200, [], "list of pods"),
    ],
)
def test_a_server_that_refuses_is_one_clear_line(
    tmp_path: Path, status: int, body: Any, words: str
) -> None:
    with api({"": body}, status) as (url, _), pytest.raises(PodsError) as failure:
        watcher(url, tmp_path).look()
    assert words in str(failure.value)
    assert "s3cret" not in str(failure.value)


def test_a_server_that_does_not_speak_http_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def babble() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"no HTTP at all\r\n\r\n")

        thread = threading.Thread(target=babble)
        thread.start()
        with pytest.raises(PodsError, match="cannot be asked"):
            watcher(f"http://127.0.0.1:{listener.getsockname()[1]}", tmp_path).look()
        thread.join()


@pytest.mark.parametrize("port", ["0", "65536", "0012345678", "99999999", "-1", "99 99", "٩٩٩"])
def test_an_annotation_that_is_no_port_makes_no_target(tmp_path: Path, port: str) -> None:
    with api({"": {"items": [pod("w0", "10.0.0.1", port)]}}) as (url, _):
        assert watcher(url, tmp_path).look() == []


def test_the_token_goes_to_no_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with api({"": {"items": []}}) as (proxy, proxied), api({"": {"items": []}}) as (url, asked):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.setenv("no_proxy", "")
        assert watcher(url, tmp_path).look() == []
    assert [query["authorization"] for query in asked] == ["Bearer s3cret"]
    assert proxied == []


def test_the_token_does_not_follow_where_an_answer_leads(tmp_path: Path) -> None:
    with api({"": {"items": []}}) as (elsewhere, followed):
        with api({"": {}}, 302, {"Location": f"{elsewhere}/api/v1/pods"}) as (url, _):
            with pytest.raises(PodsError, match="302"):
                watcher(url, tmp_path).look()
    assert followed == []


def test_a_server_that_is_away_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(PodsError, match="cannot be asked"):
        watcher("http://127.0.0.1:1", tmp_path).look()
    with pytest.raises(PodsError, match="is no URL"):
        watcher("file:///etc/passwd", tmp_path).look()


def test_a_process_that_two_sources_name_is_one_target() -> None:
    inventory = TargetInventory(["localhost:9999", "other:9999"])
    inventory.replace_all("kubernetes", [KnownTarget("127.0.0.1:9999", source="kubernetes")])
    assert [t.source for t in inventory.targets] == ["kubernetes", "static"]
    inventory.put("1", KnownTarget("localhost:9999", source="registered", pid=7))
    assert [(t.address, t.pid) for t in inventory.targets] == [
        ("localhost:9999", 7),
        ("other:9999", 0),
    ]
    inventory.drop("registered", "1")
    inventory.replace_all("kubernetes", [])
    assert inventory.addresses == ("localhost:9999", "other:9999")
