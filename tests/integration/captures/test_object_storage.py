"""Storage on an S3 server: a small one of the tests' own that knows what the storage uses."""

import hashlib
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

import pytest

from podscope_collector.errors import InputNotFoundError
from podscope_collector.storage import Storage, StorageError


class S3Server(ThreadingHTTPServer):
    """Objects of one bucket in memory.

    Attributes:
        objects: Key -> content.
        denied: Whether every request is answered with 403.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.denied = False


class _Handler(BaseHTTPRequestHandler):
    server: S3Server
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

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.denied:
            return self._error(403, "AccessDenied")
        if self.headers["If-None-Match"] == "*" and self._key() in self.server.objects:
            return self._error(412, "PreconditionFailed")
        self.server.objects[self._key()] = content
        return self._answer(200, ETag=_etag(content))

    def do_GET(self) -> None:
        query = {name: found[0] for name, found in parse_qs(urlsplit(self.path).query).items()}
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
            Content_Length=str(len(content)),
        )

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        """Bulk deletion, the only POST that the storage makes."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall("<Key>(.*?)</Key>", body)
        for key in keys:
            self.server.objects.pop(unescape(key), None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

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


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    server = S3Server()
    for name, text in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
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


def test_profiles_and_what_is_derived_lie_below_the_prefix(s3: S3Server) -> None:
    storage = Storage("s3://bucket/team/a")
    stored = storage.put_xspace("s1", "w0_9999", b"abc")
    storage.put_derived("partials", "s1", "w0_9999", b"def")
    assert s3.objects == {
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


def test_two_services_on_one_bucket_never_share_a_session(s3: S3Server) -> None:
    now = datetime(2026, 11, 21, 9, 0, 0, 123_000, UTC)
    ids = [Storage("s3://bucket").new_session(now) for _ in range(3)]
    assert ids == [f"2026_11_21_09_00_00_{ms}" for ms in (123, 124, 125)]


def test_a_denied_bucket_is_one_clear_line(s3: S3Server) -> None:
    s3.denied = True
    with pytest.raises(StorageError, match="permission denied") as caught:
        Storage("s3://bucket").put_xspace("s1", "a", b"x")
    assert "\n" not in str(caught.value)
