"""Lookups against servers on loopback that answer as the real APIs do."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from podscope_collector.captures.resolving.found import Resolution
from podscope_collector.captures.resolving.resolver import Resolver
from podscope_collector.captures.targets import parse_targets
from podscope_collector.settings import CollectorSettings

Answer = Callable[[str, dict[str, str], dict[str, str]], tuple[int, object]]


class FakeApi:
    """An HTTP server; ``answer(path, query, headers)`` gives status and JSON, or text."""

    def __init__(self) -> None:
        self.answer: Answer = lambda path, query, headers: (404, {})
        self.asked: list[str] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                fake.asked.append(parts.path)
                query = {name: given[0] for name, given in parse_qs(parts.query).items()}
                status, body = fake.answer(parts.path, query, dict(self.headers.items()))
                content = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    yield fake
    fake.close()


@pytest.fixture
def settings(api: FakeApi, tmp_path: Path) -> CollectorSettings:
    (tmp_path / "token").write_text("pod-token\n")
    (tmp_path / "namespace").write_text("home")
    return CollectorSettings(
        kubernetes_url=api.url,
        kubernetes_token_file=tmp_path / "token",
        kubernetes_ca_file=tmp_path / "absent.crt",
        metadata_url=api.url,
        tpu_url=f"{api.url}/v1",
        resolve_timeout=timedelta(seconds=5),
    )


def resolve(settings: CollectorSettings, text: str) -> Resolution:
    return Resolver(settings).resolve(parse_targets(text))


def addresses(found: Resolution) -> list[str]:
    return [target.address for target in found.targets]


def pod(name: str, ip: str | None, phase: str = "Running", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": more.get("annotations", {})}
        | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if more.get("dying") else {}),
        "spec": {"hostname": more["hostname"]} if "hostname" in more else {},
        "status": {"phase": phase} | ({"podIP": ip} if ip else {}),
    }


def test_a_dns_name_stands_for_its_addresses(settings: CollectorSettings) -> None:
    assert addresses(resolve(settings, "dns:///localhost:9999")) == ["127.0.0.1:9999"]


def test_a_name_that_does_not_resolve_costs_only_itself(settings: CollectorSettings) -> None:
    found = resolve(settings, "w0:1 dns:///no-such-name.invalid:9999")
    assert addresses(found) == ["w0:1"]
    (lost,) = found.unresolved
    assert lost.given == "dns:///no-such-name.invalid:9999"
    assert "does not resolve" in lost.message


def test_pods_come_page_by_page_in_the_order_of_their_numbers(
    api: FakeApi, settings: CollectorSettings
) -> None:
    pages = {
        "": ([pod("w-10", "10.0.0.10"), pod("w-9", "10.0.0.9")], "next"),
        "next": ([pod("w-2", "fd00::2"), pod("w-1", None), pod("w-3", "10.0.0.3", "Pending")], ""),
    }

    def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, object]:
        assert path == "/api/v1/namespaces/train/pods"
        assert query["labelSelector"] == "app=llm,role=worker"
        assert headers["Authorization"] == "Bearer pod-token"
        items, more = pages[query.get("continue", "")]
        return 200, {"items": items, "metadata": {"continue": more}}

    api.answer = answer
    found = resolve(settings, "k8s:train/app=llm&role=worker:9999")
    assert addresses(found) == ["[fd00::2]:9999", "10.0.0.9:9999", "10.0.0.10:9999"]
    assert [t.shown_name for t in found.targets] == ["w-2:9999", "w-9:9999", "w-10:9999"]
    assert [(one.name, one.message) for one in found.left_out] == [
        ("w-1", "pod w-1 has no address yet"),
        ("w-3", "pod w-3 is not running (Pending)"),
    ]


def test_the_pods_of_a_jobset_are_called_by_their_host_name_and_tell_their_port(
    api: FakeApi, settings: CollectorSettings
) -> None:
    annotations = {"podscope.dev/port": "9012"}
    items = [
        pod("j-w-0-1-xk2p9", "10.0.0.1", hostname="j-w-0-1", annotations=annotations),
        pod("j-w-0-0-aaaaa", "10.0.0.2", hostname="j-w-0-0", annotations=annotations),
        pod("j-w-0-2-bbbbb", "10.0.0.3", hostname="j-w-0-2"),
        pod("j-w-0-3-ccccc", "10.0.0.4", hostname="j-w-0-3", dying=True),
    ]
    seen = {}

    def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, object]:
        seen[path] = query["labelSelector"]
        return 200, {"items": items}

    api.answer = answer
    found = resolve(settings, "jobset:llm")
    assert seen == {"/api/v1/namespaces/home/pods": "jobset.sigs.k8s.io/jobset-name=llm"}
    assert [(t.shown_name, t.address) for t in found.targets] == [
        ("j-w-0-0:9012", "10.0.0.2:9012"),
        ("j-w-0-1:9012", "10.0.0.1:9012"),
    ]
    assert "podscope.dev/port" in found.left_out[0].message
    assert found.left_out[1].message == "pod j-w-0-3 is being deleted"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, {"message": "pods is forbidden"}, "right to list pods in train"),
        (401, {"message": "Unauthorized"}, "right to list pods in train"),
        (200, {"items": []}, "no running pod in namespace train matches a=b"),
        (200, "<html>", "does not answer in JSON"),
        (200, [], "JSON object"),
        (500, "oops", "answers 500"),
    ],
)
def test_an_api_that_refuses_or_talks_nonsense_is_one_clear_line(
    api: FakeApi, settings: CollectorSettings, status: int, body: object, words: str
) -> None:
    api.answer = lambda path, query, headers: (status, body)
    (lost,) = resolve(settings, "k8s:train/a=b:1").unresolved
    assert words in lost.message
    assert "\n" not in lost.message
    assert "pod-token" not in lost.message


def test_an_answer_that_nobody_expected_costs_only_its_own_lookup(
    api: FakeApi, settings: CollectorSettings
) -> None:
    api.answer = lambda path, query, headers: (200, {"items": [{"metadata": ["no", "object"]}]})
    found = resolve(settings, "k8s:train/app=llm:9999, dns:///localhost:9999")
    assert addresses(found) == ["127.0.0.1:9999"]
    [lost] = found.unresolved
    assert "unexpected AttributeError" in lost.message


def test_outside_a_cluster_the_way_in_is_named(settings: CollectorSettings) -> None:
    away = settings.model_copy(update={"kubernetes_url": "http://127.0.0.1:1"})
    (lost,) = resolve(away, "k8s:train/a=b:1").unresolved
    assert "kubectl proxy" in lost.message


class Tpu:
    """Metadata server and TPU API in one."""

    def __init__(self, node: dict[str, Any] | None) -> None:
        self.node = node

    def __call__(
        self, path: str, query: dict[str, str], headers: dict[str, str]
    ) -> tuple[int, object]:
        if path.startswith("/computeMetadata/v1/"):
            assert headers["Metadata-Flavor"] == "Google"
            return 200, {
                "project/project-id": "my-project",
                "instance/zone": "projects/1/zones/us-east1-c",
                "instance/service-accounts/default/token": {"access_token": "t0p"},
            }[path.removeprefix("/computeMetadata/v1/")]
        assert headers["Authorization"] == "Bearer t0p"
        if self.node is None:
            return 404, {"error": {"message": "not found"}}
        assert path == "/v1/projects/my-project/locations/us-east1-c/nodes/v5e"
        return 200, self.node


def test_the_workers_of_a_tpu_are_profiled_on_the_port_beside_their_runtime(
    api: FakeApi, settings: CollectorSettings
) -> None:
    endpoints = [
        {"ipAddress": "10.1.0.2", "port": 8470},
        {"ipAddress": "10.1.0.1"},
        {"ipAddress": "10.1.0.3", "port": 9000},
    ]
    api.answer = Tpu({"state": "READY", "networkEndpoints": endpoints})
    found = resolve(settings, "tpu:v5e")
    assert addresses(found) == ["10.1.0.2:8466", "10.1.0.1:8466", "10.1.0.3:9000"]
    assert found.targets[1].shown_name == "v5e-w1:8466"
    assert addresses(resolve(settings, "tpu:v5e:9012")) == [
        "10.1.0.2:9012",
        "10.1.0.1:9012",
        "10.1.0.3:9012",
    ]


def test_a_tpu_with_one_address_needs_no_list(api: FakeApi, settings: CollectorSettings) -> None:
    api.answer = Tpu({"state": "READY", "ipAddress": "10.2.0.1", "port": "8470"})
    assert addresses(resolve(settings, "tpu:us-east1-c/v5e")) == ["10.2.0.1:8466"]
    assert not any(path.endswith("/zone") for path in api.asked)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"state": "CREATING"}, "not ready (its state is CREATING)"),
        ({"state": "READY", "networkEndpoints": [{"ipAddress": "evil.example"}]}, "no address"),
        ({"state": "READY", "networkEndpoints": ["x"]}, "no address"),
        (None, "has no TPU v5e in zone us-east1-c"),
    ],
)
def test_a_tpu_that_cannot_be_profiled_says_why(
    api: FakeApi, settings: CollectorSettings, node: dict[str, Any] | None, words: str
) -> None:
    api.answer = Tpu(node)
    (lost,) = resolve(settings, "tpu:v5e").unresolved
    assert words in lost.message
    assert "t0p" not in lost.message


def test_outside_google_cloud_the_settings_to_make_are_named(settings: CollectorSettings) -> None:
    away = settings.model_copy(update={"metadata_url": "http://127.0.0.1:1"})
    (lost,) = resolve(away, "tpu:v5e").unresolved
    assert "PODSCOPE_COLLECTOR_TPU_PROJECT" in lost.message


def test_a_lookup_that_hangs_is_given_up_and_the_others_are_kept(
    api: FakeApi, settings: CollectorSettings
) -> None:
    release, answered = threading.Event(), threading.Event()

    def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, object]:
        release.wait(60)
        answered.set()
        return 200, {"items": []}

    api.answer = answer
    hasty = settings.model_copy(update={"resolve_timeout": timedelta(seconds=0.3)})
    found = resolve(hasty, "k8s:train/a=b:1 w0:1")
    assert not answered.is_set()
    release.set()
    assert addresses(found) == ["w0:1"]
    assert len(found.unresolved) == 1


def test_what_was_found_is_remembered_for_a_while(
    api: FakeApi, settings: CollectorSettings
) -> None:
    api.answer = lambda path, query, headers: (200, {"items": [pod("w", "10.0.0.1")]})
    resolver = Resolver(settings)
    wanted = parse_targets("k8s:train/a=b:1")
    assert addresses(resolver.resolve(wanted)) == addresses(resolver.resolve(wanted))
    assert len(api.asked) == 1
    assert addresses(Resolver(settings).resolve(wanted)) == ["10.0.0.1:1"]
    assert len(api.asked) == 2


def test_two_lookups_of_one_server_capture_it_once(
    api: FakeApi, settings: CollectorSettings
) -> None:
    api.answer = lambda path, query, headers: (200, {"items": [pod("w", "10.0.0.1")]})
    found = resolve(settings, "10.0.0.1:7 k8s:a/a=b:7 k8s:b/a=b:7")
    assert addresses(found) == ["10.0.0.1:7"]
