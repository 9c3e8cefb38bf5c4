import uuid
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from podscope_collector.app import create_app
from podscope_collector.captures.models import Capture
from podscope_collector.captures.states import AnalysisState
from podscope_collector.db import Database
from podscope_collector.errors import InputNotFoundError, RequestError
from podscope_collector.runtime import Runtime
from podscope_collector.settings import CollectorSettings
from podscope_collector.work.queues import QUEUES
from podscope_collector.work.services import record_heartbeat

with warnings.catch_warnings():
    # It asks for a successor of httpx that is not published everywhere yet.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

# The same in every process that collects the tests.
NO_CAPTURE = "01a1fcf8-d4ac-7efa-984a-1a67e445c763"
TOKEN = "a-token-of-more-than-16-letters"


class Outgoing:
    """Takes messages as a broker does."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def send_task(self, name: str, *, args: list[str], queue: str) -> object:
        assert len(args) == 1
        self.sent.append((name, queue))
        return None


class NoBroker:
    """A broker that is away."""

    def send_task(self, name: str, *, args: list[str], queue: str) -> object:
        raise ConnectionRefusedError


def client_of(database: Database, folder: Path, sender: Any = None, **settings: Any) -> TestClient:
    chosen = CollectorSettings(data_dir=folder, **settings)
    app = create_app(chosen, runtime=Runtime(chosen, database), sender=sender or Outgoing())
    return TestClient(app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False)


@pytest.fixture
def client(database: Database, tmp_path: Path) -> Iterator[TestClient]:
    with client_of(database, tmp_path) as made:
        yield made


def test_a_capture_is_accepted_stored_and_sent_to_a_worker(
    database: Database, tmp_path: Path
) -> None:
    outgoing = Outgoing()
    client = client_of(database, tmp_path, outgoing)
    answer = client.post("/api/v1/captures", json={"targets": "w0:1,w1:1", "duration_ms": 100})
    assert answer.status_code == 202
    capture = answer.json()
    assert (capture["state"], capture["hosts_total"], capture["trigger"]) == ("pending", 2, "api")
    assert outgoing.sent == [("podscope.captures.run", "capture")]
    assert client.get(f"/api/v1/captures/{capture['id']}").json() == capture
    assert client.get("/api/v1/captures").json() == {"items": [capture], "next": None}
    hosts = client.get(f"/api/v1/captures/{capture['id']}/hosts").json()["items"]
    assert [host["target"] for host in hosts] == ["w0:1", "w1:1"]


def test_a_capture_is_accepted_while_the_broker_is_away(database: Database, tmp_path: Path) -> None:
    client = client_of(database, tmp_path, NoBroker())
    assert client.post("/api/v1/captures", json={"targets": "w0:1"}).status_code == 202
    outgoing = Outgoing()
    client = client_of(database, tmp_path, outgoing)
    client.post("/api/v1/captures", json={"targets": "w1:1"})
    assert len(outgoing.sent) == 2


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"targets": ""}, "target"),
        ({"targets": "w0:notaport"}, "w0:notaport"),
        ({"targets": "w0:1", "duration_ms": 0}, "duration_ms 0 is out of range"),
        ({"targets": "w0:1", "duration_ms": 36_000_000}, "duration_ms 36000000 is out of range"),
        ({"targets": "w0:1", "quorum": "most"}, "quorum 'most' is not understood"),
        ({"targets": "w0:1", "quorum": "5"}, "more hosts than the 1"),
        ({"targets": "w0:1", "duraton_ms": 5}, "duraton_ms"),
        ({}, "targets"),
        ([], "dictionary"),
    ],
)
def test_a_request_that_cannot_work_is_problem_json_in_one_line(
    client: TestClient, body: object, detail: str
) -> None:
    answer = client.post("/api/v1/captures", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail", "code"}
    assert detail in problem["detail"]
    assert "\n" not in problem["detail"]
    assert client.get("/api/v1/captures").json()["items"] == []


def test_a_synchronized_capture_that_cannot_start_together_is_refused_with_the_numbers(
    database: Database, tmp_path: Path
) -> None:
    client = client_of(database, tmp_path, capture_memory_bytes=64 << 20)
    body = {"targets": "w[1-9]:1", "synchronized": True, "expected_host_bytes": 8 << 20}
    answer = client.post("/api/v1/captures", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "does_not_fit")
    assert "at 8 MiB each they may bring 72 MiB, and 64 MiB" in answer.json()["detail"]
    assert client.get("/api/v1/captures").json()["items"] == []
    assert client.post("/api/v1/captures", json=body | {"targets": "w[1-8]:1"}).status_code == 202
    assert client.post("/api/v1/captures", json=body | {"synchronized": False}).status_code == 202


def test_a_cancelled_capture_says_how_many_hosts_were_analysed_before(
    client: TestClient, database: Database
) -> None:
    asked = client.post("/api/v1/captures", json={"targets": "w0:1,w1:1"}).json()
    with database.writing() as session:
        (host, _) = session.get_one(Capture, uuid.UUID(asked["id"])).hosts
        host.analysis_state = AnalysisState.DONE
    cancelled = client.post(f"/api/v1/captures/{asked['id']}/cancel").json()
    assert (cancelled["state"], cancelled["analysis"]["hosts_done"]) == ("cancelled", 1)
    assert client.get(f"/api/v1/captures/{asked['id']}").json() == cancelled


def test_who_asked_is_what_a_proxy_says_and_else_what_the_request_says(client: TestClient) -> None:
    body = {"targets": "w0:1", "requested_by": "ann"}
    assert client.post("/api/v1/captures", json=body).json()["requested_by"] == "ann"
    headers = {"X-Forwarded-User": "bob"}
    asked = client.post("/api/v1/captures", json=body, headers=headers).json()
    assert asked["requested_by"] == "bob"
    del body["requested_by"]
    answer = client.post("/api/v1/captures", json=body).json()
    assert (answer["requested_by"], answer["trigger"]) == (None, "api")
    body["trigger"] = "manual"
    assert client.post("/api/v1/captures", json=body).json()["trigger"] == "manual"


def test_a_number_of_steps_is_kept_with_the_capture(client: TestClient) -> None:
    body = {"targets": "agent://w0", "steps": 10}
    answer = client.post("/api/v1/captures", json=body).json()
    assert (answer["steps"], answer["duration_ms"]) == (10, 60_000)
    schedule = client.post("/api/v1/schedules", json=body | {"every_s": 120}).json()
    assert (schedule["steps"], schedule["duration_ms"]) == (10, 60_000)
    refused = client.post("/api/v1/schedules", json=body | {"every_s": 30})
    assert refused.status_code == 422
    assert "10 steps, for which 60000 ms are allowed" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"/api/v1/captures/{NO_CAPTURE}", 404, "not_found"),
        (f"/api/v1/captures/{NO_CAPTURE}/hosts", 404, "not_found"),
        (f"/api/v1/captures/{NO_CAPTURE}/events", 404, "not_found"),
        (f"/api/v1/captures/{NO_CAPTURE}/tools", 404, "not_found"),
        (f"/api/v1/captures/{NO_CAPTURE}/tools/overview_page", 404, "not_found"),
        (f"/api/v1/captures/{NO_CAPTURE}/hosts/x/xspace", 404, "not_found"),
        ("/api/v1/captures/not-an-id", 404, "not_found"),
        ("/api/v1/captures?limit=0", 422, "bad_request"),
        ("/api/v1/nothing", 404, "not_found"),
    ],
)
def test_what_is_not_there_is_problem_json(
    client: TestClient, path: str, status: int, code: str
) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_result_before_its_analysis_is_a_conflict(client: TestClient) -> None:
    capture = client.post("/api/v1/captures", json={"targets": "w0:1"}).json()
    tools = f"/api/v1/captures/{capture['id']}/tools"
    answer = client.get(f"{tools}/overview_page")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_analyzed")
    assert client.get(f"{tools}/nonsense").status_code == 404
    assert {t["state"] for t in client.get(tools).json()["items"]} == {"pending"}


def test_a_request_that_is_too_large_is_refused(database: Database, tmp_path: Path) -> None:
    client = client_of(database, tmp_path, max_request_bytes=2000)
    answer = client.post("/api/v1/captures", json={"targets": "w" * 2000})
    assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")


def test_a_request_that_does_not_say_its_size_is_bounded_too(
    database: Database, tmp_path: Path
) -> None:
    client = client_of(database, tmp_path, max_request_bytes=2000)
    pieces = iter([b'{"targets": "', b"w" * 2000, b'"}'])
    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/v1/captures", content=pieces, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")


def test_it_is_ready_when_every_queue_is_consumed(database: Database, tmp_path: Path) -> None:
    client = client_of(database, tmp_path)
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "no worker consumes capture, analyze, maintenance" in answer.json()["detail"]
    with database.writing() as session:
        for queue in QUEUES:
            record_heartbeat(session, queue, datetime.now(UTC))
    assert client.get("/readyz").status_code == 200


def test_it_is_not_ready_without_its_tables(empty_database: Database, tmp_path: Path) -> None:
    answer = client_of(empty_database, tmp_path).get("/readyz")
    assert answer.status_code == 503
    assert "podscope db upgrade" in answer.json()["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:8080"},
        {"Host": "[::1"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_cannot_start_a_capture(
    client: TestClient, headers: dict[str, str]
) -> None:
    answer = client.post("/api/v1/captures", json={"targets": "w0:1"}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "denied")
    assert client.get("/api/v1/captures").json()["items"] == []


def test_a_form_of_another_site_is_no_json(client: TestClient) -> None:
    answer = client.post(
        "/api/v1/captures", content='{"targets": "w0:1"}', headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 422


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "proxy.example"])
def test_its_own_names_are_let_in(database: Database, tmp_path: Path, host: str) -> None:
    client = client_of(database, tmp_path, allowed_hosts=("proxy.example",))
    headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    answer = client.post("/api/v1/captures", json={"targets": "w0:1"}, headers=headers)
    assert answer.status_code == 202


def test_every_answer_carries_security_headers_and_none_opens_the_origin(
    client: TestClient,
) -> None:
    for path in ("/", "/api/v1/captures", "/api/v1/nothing", "/readyz"):
        headers = client.get(path, headers={"Origin": "http://evil.example"}).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_with_a_token_everything_but_the_probes_and_pages_needs_it(
    database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    client = client_of(database, tmp_path, host="0.0.0.0", token_file=file)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
        for path in ("/api/v1/captures", "/metrics", "/api/v1/openapi.json"):
            answer = client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            assert answer.headers["www-authenticate"] == "Bearer"
    assert client.get("/healthz").status_code == 200
    right = {"Authorization": f"Bearer {TOKEN}", "Host": "podscope.example"}
    assert client.get("/api/v1/captures", headers=right).status_code == 200


def test_an_open_address_without_a_token_is_refused(tmp_path: Path) -> None:
    broker = SecretStr("redis://127.0.0.1:1")
    settings = CollectorSettings(host="0.0.0.0", data_dir=tmp_path, broker_url=broker)
    with pytest.raises(RequestError, match="--token-file FILE, or --insecure"):
        create_app(settings)
    create_app(
        settings.model_copy(update={"insecure": True})
    ).state.service.runtime.database.dispose()


def test_a_token_file_that_cannot_be_read_or_is_too_short_is_refused(tmp_path: Path) -> None:
    missing = CollectorSettings(data_dir=tmp_path, token_file=tmp_path / "none")
    with pytest.raises(InputNotFoundError, match="cannot read the token file"):
        create_app(missing)
    (tmp_path / "short").write_text("secret")
    with pytest.raises(RequestError, match="16 or more"):
        create_app(missing.model_copy(update={"token_file": tmp_path / "short"}))


def test_schedules_are_added_listed_and_removed(client: TestClient) -> None:
    body = {"targets": "w0:1", "every_minutes": 30, "name": "nightly"}
    answer = client.post("/api/v1/schedules", json=body)
    assert answer.status_code == 201
    schedule = answer.json()
    assert (schedule["name"], schedule["every_s"], schedule["targets"]) == (
        "nightly",
        1800,
        ["w0:1"],
    )
    assert client.get("/api/v1/schedules").json() == {"items": [schedule]}
    again = client.post("/api/v1/schedules", json=body)
    assert (again.status_code, again.json()["code"]) == (422, "bad_request")
    assert client.delete(f"/api/v1/schedules/{schedule['id']}").status_code == 204
    assert client.delete(f"/api/v1/schedules/{schedule['id']}").status_code == 404


def test_the_openapi_document_has_the_routes_and_metrics_have_the_build(
    client: TestClient,
) -> None:
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    assert "/api/v1/captures/{capture_id}/tools/{tool}" in paths
    text = client.get("/metrics").text
    assert "podscope_build_info{" in text
    assert 'podscope_queue_length{queue="capture"} 0.0' in text


def test_paths_outside_the_pages_are_not_served(client: TestClient) -> None:
    for path in ("/..%2f..%2fapp.py", "/%2e%2e/app.py", "/..%5capp.py", "/%00"):
        assert "create_app" not in client.get(path).text
