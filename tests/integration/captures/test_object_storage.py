"""Storage on S3 and GCS servers: a small one of the tests' own that knows what the storage uses."""

import hashlib
import json
import re
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

import pytest

from podscope_collector import schema
from podscope_collector.app import create_app
from podscope_collector.captures import services
from podscope_collector.captures.models import Trigger
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.states import HostState
from podscope_collector.db import Database
from podscope_collector.errors import InputNotFoundError
from podscope_collector.runtime import Runtime
from podscope_collector.settings import CollectorSettings
from podscope_collector.storage import Storage, StorageError

with warnings.catch_warnings():
    # It asks for a successor of httpx that is not published everywhere yet.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient


class ObjectServer(ThreadingHTTPServer):
    """Objects of one bucket in memory; speaks S3 and the XML API of GCS, which follows it.

    Attributes:
        url: The bucket as the storage is told.
        objects: Key -> content.
        denied: Whether every request is answered with 403.
        away_for: So many requests to write are still answered with 503.
        writes: Requests to write so far.
        parts: Pieces of uploads that are not complete, by their number.
    """

    url: str

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.denied = False
        self.away_for = 0
        self.writes = 0
        self.parts: dict[int, bytes] = {}


class _Handler(BaseHTTPRequestHandler):
    server: ObjectServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/bucket").lstrip("/")

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _query(self) -> dict[str, str]:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: found[0] for name, found in query.items()}

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.writes += 1
        if self.server.denied:
            return self._error(403, "AccessDenied")
        if self.server.away_for > 0:
            self.server.away_for -= 1
            return self._error(503, "SlowDown")
        query = self._query()
        if "partNumber" in query:
            self.server.parts[int(query["partNumber"])] = content
            return self._answer(200, ETag=_etag(content))
        must_be_new = (
            self.headers["If-None-Match"] == "*"
            or self.headers["x-goog-if-generation-match"] == "0"
        )
        if must_be_new and self._key() in self.server.objects:
            return self._error(412, "PreconditionFailed")
        self.server.objects[self._key()] = content
        return self._answer(200, ETag=_etag(content))

    def do_GET(self) -> None:
        query = self._query()
        if self.server.denied:
            return self._error(403, "AccessDenied")
        if query.get("list-type") == "2":
            return self._list(query.get("prefix", ""))
        content = self.server.objects.get(self._key())
        if content is None:
            return self._error(404, "NoSuchKey")
        return self._answer(
            200,
            content,
            ETag=_etag(content),
            Last_Modified="Sat, 21 Nov 2026 09:00:00 GMT",
            x_goog_generation="1",
            Content_Length=str(len(content)),
        )

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        if self.server.objects.pop(self._key(), None) is None:
            return self._error(404, "NoSuchKey")
        return self._answer(204)

    def do_POST(self) -> None:
        """Uploads in parts, and bulk deletion."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        query = self._query()
        if "uploads" in query:
            told = "<UploadId>u1</UploadId>"
            return self._answer(
                200,
                f"<InitiateMultipartUploadResult>{told}</InitiateMultipartUploadResult>".encode(),
            )
        if "uploadId" in query:
            parts = self.server.parts
            self.server.objects[self._key()] = b"".join(parts[n] for n in sorted(parts))
            parts.clear()
            told = f"<ETag>{_etag(b'')}</ETag>"
            return self._answer(
                200,
                f"<CompleteMultipartUploadResult>{told}</CompleteMultipartUploadResult>".encode(),
                ETag=_etag(b""),
            )
        keys = re.findall("<Key>(.*?)</Key>", body)
        for key in keys:
            self.server.objects.pop(unescape(key), None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _list(self, prefix: str) -> None:
        rows, folders = [], set()
        for key, content in sorted(self.server.objects.items()):
            if not key.startswith(prefix):
                continue
            rest = key[len(prefix) :]
            if "/" in rest:
                folders.add(prefix + rest.partition("/")[0] + "/")
                continue
            rows.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
                f"<LastModified>2026-11-21T09:00:00.000Z</LastModified>"
                f"<ETag>{_etag(content)}</ETag></Contents>"
            )
        rows += [
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        ]
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(rows)}"
        self._answer(200, f"{body}</ListBucketResult>".encode())


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


@pytest.fixture(params=["s3", "gs"])
def cloud(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[ObjectServer]:
    server = ObjectServer()
    server.url = f"{request.param}://bucket"
    base = f"http://127.0.0.1:{server.server_port}"
    key = tmp_path / "key.json"
    key.write_text(
        json.dumps(
            {
                "gcs_base_url": base,
                "disable_oauth": True,
                "client_email": "",
                "private_key": "",
                "private_key_id": "",
            }
        )
    )
    for name, text in {
        "AWS_ENDPOINT_URL": base,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "GOOGLE_SERVICE_ACCOUNT": str(key),
    }.items():
        monkeypatch.setenv(name, text)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_profiles_and_what_is_derived_lie_below_the_prefix(cloud: ObjectServer) -> None:
    storage = Storage(f"{cloud.url}/team/a")
    stored = storage.put_xspace("s1", "w0_9999", b"abc")
    storage.put_derived("partials", "s1", "w0_9999", b"def")
    assert cloud.objects == {
        "team/a/plugins/profile/s1/w0_9999.xplane.pb": b"abc",
        "team/a/.podscope/partials/s1/w0_9999": b"def",
    }
    assert storage.read(stored.path) == b"abc"
    assert storage.read_derived("partials", "s1", "w0_9999") == b"def"
    assert storage.list_sessions() == ["s1"]
    assert storage.list_hosts("s1") == ["w0_9999"]
    assert storage.list_hosts("s2") == []
    assert storage.local_path(stored.path) is None
    storage.delete([stored.path, "plugins/profile/s1/none.xplane.pb"])
    assert not storage.exists(stored.path)
    with pytest.raises(InputNotFoundError):
        storage.read(stored.path)


def test_two_services_on_one_bucket_never_share_a_session(cloud: ObjectServer) -> None:
    now = datetime(2026, 11, 21, 9, 0, 0, 123_000, UTC)
    ids = [Storage(cloud.url).new_session(now) for _ in range(3)]
    assert ids == [f"2026_11_21_09_00_00_{ms}" for ms in (123, 124, 125)]


def test_a_denied_bucket_is_one_clear_line(cloud: ObjectServer) -> None:
    cloud.denied = True
    with pytest.raises(StorageError, match="permission denied") as caught:
        Storage(cloud.url).put_xspace("s1", "a", b"x")
    assert "\n" not in str(caught.value)


def test_a_store_that_is_away_is_given_up_soon_before_a_capture(cloud: ObjectServer) -> None:
    cloud.away_for = 1000
    storage = Storage(cloud.url)
    for ask in (storage.new_session, storage.check_writable):
        cloud.writes = 0
        with pytest.raises(StorageError, match=f"cannot write to {cloud.url}"):
            ask()
        assert cloud.writes == 4


def test_a_profile_outlives_a_store_that_is_away_for_a_moment(cloud: ObjectServer) -> None:
    storage = Storage(cloud.url)
    cloud.away_for = 6
    stored = storage.put_xspace("s1", "w0", b"abc")
    assert (cloud.objects, cloud.writes) == ({stored.path: b"abc"}, 7)


def test_a_store_that_takes_calls_and_never_answers_is_given_up_by_its_silence(
    monkeypatch: pytest.MonkeyPatch, cloud: ObjectServer
) -> None:
    prefix = "AWS" if cloud.url.startswith("s3:") else "GOOGLE"
    # What the environment says goes before our own limits.
    monkeypatch.setenv(f"{prefix}_READ_TIMEOUT", "200ms")
    answered = threading.Event()
    monkeypatch.setattr(_Handler, "do_PUT", lambda _: answered.wait(60))
    try:
        with pytest.raises(StorageError, match="check the address of the store"):
            Storage(cloud.url).new_session()
    finally:
        answered.set()


def test_a_received_file_is_uploaded_in_parts_and_digested_in_pieces(
    cloud: ObjectServer, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 60_000
    storage = Storage(cloud.url)
    received = storage.incoming_path()
    received.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    stored = storage.adopt_xspace("s1", "w0", received, len(content), digest)
    received.unlink()
    assert cloud.objects == {stored.path: content}
    assert storage.size_of(stored.path) == len(content)
    assert storage.size_of("plugins/profile/s1/none.xplane.pb") is None
    assert storage.stat_xspace("s1", "w0") == stored


class _Nobody:
    """A broker without workers."""

    def send_task(self, name: str, *, args: list[str], queue: str) -> object:
        return None


def test_a_profile_is_downloaded_in_pieces(
    cloud: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 100_000
    storage = Storage(cloud.url)
    stored = storage.put_xspace("s1", "w0", content)
    settings = CollectorSettings(data_dir=tmp_path, storage_root=cloud.url)
    database = Database(f"sqlite:///{tmp_path / 'podscope.db'}")
    schema.upgrade(database)
    request = parse_request({"targets": "w0:1,w1:1"})
    now = datetime(2026, 11, 21, 9, 0, 0, 0, UTC)
    with database.writing() as session:
        capture = services.create_capture(session, request, Trigger.API, now, name="s1")
        for host in capture.hosts:
            host.state = HostState.DONE
            host.file = stored.path if host.position == 0 else f"{stored.path}.gone"
        hosts = [host.host for host in capture.hosts]
        base = f"/api/v1/captures/{capture.id}/hosts"
    app = create_app(settings, runtime=Runtime(settings, database), sender=_Nobody())
    monkeypatch.setattr(Storage, "read", lambda *_: pytest.fail("it was read at once"))
    client = TestClient(app, base_url="http://127.0.0.1:8080")
    answer = client.get(f"{base}/{hosts[0]}/xspace")
    assert (answer.status_code, answer.content) == (200, content)
    assert answer.headers["content-length"] == str(len(content))
    assert client.get(f"{base}/{hosts[1]}/xspace").status_code == 404
    database.dispose()
