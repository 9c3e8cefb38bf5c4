"""A small S3 and GCS server that knows what podscope uses of both."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PAGE = 5
"""Entries of one answer to a listing, where a test says no other; the clouds' is 1,000."""


class ObjectServer(ThreadingHTTPServer):
    """Objects of one bucket in memory; speaks S3 and the XML API of GCS, which follows it.

    Attributes:
        url: The bucket as the storage is told.
        variables: For the environment of a process that is to find it.
        objects: Key -> content.
        denied: Whether every request is answered with 403.
        is_missing: Whether every request is answered with 404, as where there is no such bucket.
        away_for: So many requests to write are still answered with 503.
        writes: Requests to write so far.
        silent_until: Requests to write are answered only when this is set; None for at once.
        reads: Keys of which content was asked for, in order.
        page: Entries of one answer to a listing.
        listed: Prefixes that were listed, each once.
        parts: Pieces of uploads that are not complete, by upload and number.
    """

    url: str

    def __init__(self, scheme: str, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.denied = False
        self.is_missing = False
        self.away_for = 0
        self.writes = 0
        self.silent_until: threading.Event | None = None
        self.reads: list[str] = []
        self.page = PAGE
        self.listed: set[str] = set()
        self.parts: dict[str, dict[int, bytes]] = {}
        self.url = f"{scheme}://bucket"
        base = f"http://127.0.0.1:{self.server_port}"
        key = folder / "key.json"
        names = ("client_email", "private_key", "private_key_id")
        key.write_text(
            json.dumps(dict.fromkeys(names, "") | {"gcs_base_url": base, "disable_oauth": True})
        )
        self.variables = {
            "AWS_ENDPOINT_URL": base,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "GOOGLE_SERVICE_ACCOUNT": str(key),
        }


@contextmanager
def serving(scheme: str, folder: Path) -> Iterator[ObjectServer]:
    """A server that answers while the context is open; its key file lies in the folder."""
    server = ObjectServer(scheme, folder)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


_CHANGED = "2026-11-21T09:00:00.000Z"


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
        content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.writes += 1
        if self.server.silent_until is not None:
            self.server.silent_until.wait(60)
        if self.server.denied:
            return self._error(403, "AccessDenied")
        if self.server.is_missing:
            return self._error(404, "NoSuchBucket")
        if self.server.away_for > 0:
            self.server.away_for -= 1
            return self._error(503, "SlowDown")
        query = self._query()
        if "partNumber" in query:
            self.server.parts[query["uploadId"]][int(query["partNumber"])] = content
            return self._answer(200, ETag=_etag(content))
        source = self.headers["x-amz-copy-source"] or self.headers["x-goog-copy-source"]
        if source:
            return self._copy(unquote(source).lstrip("/").removeprefix("bucket/"))
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
        if self.server.is_missing:
            return self._error(404, "NoSuchBucket")
        if query.get("list-type") == "2":
            return self._list(query)
        content = self.server.objects.get(self._key())
        if content is None:
            return self._error(404, "NoSuchKey")
        if self.command == "GET":
            self.server.reads.append(self._key())
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
            upload = f"u{len(self.server.parts)}"
            self.server.parts[upload] = {}
            told = f"<UploadId>{upload}</UploadId>"
            return self._answer(
                200,
                f"<InitiateMultipartUploadResult>{told}</InitiateMultipartUploadResult>".encode(),
            )
        if "uploadId" in query:
            parts = self.server.parts[query["uploadId"]]
            self.server.objects[self._key()] = b"".join(parts[n] for n in sorted(parts))
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

    def _copy(self, source: str) -> None:
        content = self.server.objects.get(source)
        if content is None:
            return self._error(404, "NoSuchKey")
        self.server.objects[self._key()] = content
        told = f"<ETag>{_etag(content)}</ETag><LastModified>{_CHANGED}</LastModified>"
        return self._answer(200, f"<CopyObjectResult>{told}</CopyObjectResult>".encode())

    def _list(self, query: dict[str, str]) -> None:
        self.server.listed.add(query.get("prefix", ""))
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        found: dict[str, str] = {}
        for key, content in sorted(self.server.objects.items()):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folder = prefix + rest.partition(delimiter)[0] + delimiter
                found[folder] = (
                    f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
                )
            else:
                found[key] = (
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
                    f"<LastModified>{_CHANGED}</LastModified><ETag>{_etag(content)}</ETag></Contents>"
                )
        begin = int(query.get("continuation-token", "0"))
        end = begin + self.server.page
        rows = list(found.values())[begin:end]
        is_cut = end < len(found)
        more = f"<NextContinuationToken>{end}</NextContinuationToken>" if is_cut else ""
        told = f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{more}"
        body = f"<ListBucketResult>{told}{''.join(rows)}</ListBucketResult>"
        self._answer(200, body.encode())


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'
