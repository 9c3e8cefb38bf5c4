"""Storage on S3 and GCS servers."""

import hashlib
import os
import socket
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.integration.object_server import PAGE, ObjectServer, serving

from podscope_agent.simulator import Pod, build_xspace
from podscope_collector import schema
from podscope_collector.app import create_app
from podscope_collector.captures import services
from podscope_collector.captures.keeping import Keeper, Kept
from podscope_collector.captures.models import Trigger
from podscope_collector.captures.reasons import Failure
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.states import HostState, ReasonCode
from podscope_collector.db import Database
from podscope_collector.errors import InputNotFoundError
from podscope_collector.runtime import Runtime
from podscope_collector.settings import CollectorSettings
from podscope_collector.storage import Storage, StorageError

with warnings.catch_warnings():
    # It asks for a successor of httpx that is not published everywhere yet.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient


@pytest.fixture(params=["s3", "gs"])
def cloud(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[ObjectServer]:
    with serving(request.param, tmp_path) as server:
        for name, text in server.variables.items():
            monkeypatch.setenv(name, text)
        yield server


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
    cloud.silent_until = answered = threading.Event()
    try:
        with pytest.raises(StorageError, match="check the address of the store"):
            Storage(cloud.url).new_session()
    finally:
        answered.set()


def test_a_bucket_that_is_not_there_is_said_to_be_missing(cloud: ObjectServer) -> None:
    cloud.is_missing = True
    storage = Storage(cloud.url)
    for ask in (storage.list_sessions, storage.new_session, storage.check_writable):
        with pytest.raises(StorageError, match="there is no such bucket; check its name"):
            ask()


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


def test_a_damaged_profile_is_moved_out_of_its_session(cloud: ObjectServer) -> None:
    storage = Storage(f"{cloud.url}/team")
    storage.put_xspace("s1", "w0", b"abc")
    storage.set_aside("s1", "w0")
    storage.set_aside("s1", "w1")
    assert cloud.objects == {"team/.podscope/rejected/s1/w0": b"abc"}


def test_more_hosts_than_one_answer_lists_are_all_found(cloud: ObjectServer) -> None:
    storage = Storage(cloud.url)
    hosts = [f"w{number:02d}" for number in range(3 * PAGE + 1)]
    for host in hosts:
        storage.put_xspace("s1", host, b"abc")
        storage.put_xspace(f"t{host}", host, b"abc")
    assert storage.list_hosts("s1") == hosts
    assert storage.list_sessions() == sorted(["s1", *(f"t{host}" for host in hosts)], reverse=True)


@pytest.mark.parametrize(
    ("url", "variable"),
    [("s3://bucket/x", "AWS_ACCESS_KEY_ID"), ("gs://bucket", "GOOGLE_APPLICATION_CREDENTIALS")],
)
def test_a_bucket_without_credentials_says_which_variables_name_them(
    url: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_")):
            monkeypatch.delenv(name)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://{place}")
        monkeypatch.setenv("GCE_METADATA_HOST", place)
        storage = Storage(url, is_prompt=True)
        with pytest.raises(StorageError, match=variable) as caught:
            storage.list_sessions()
    assert "\n" not in str(caught.value)


def test_what_a_server_wrote_to_the_bucket_itself_is_picked_up_checked_and_counted(
    cloud: ObjectServer,
) -> None:
    keeper = Keeper(Storage(f"{cloud.url}/team"), "s1")
    assert keeper.repository_root == f"{cloud.url}/team/plugins/profile"
    folder = "team/plugins/profile/s1"
    profile = build_xspace(Pod("cpu", 1, 2), 0)
    # An address as it is sent to servers, and what these make a file name of.
    cloud.objects[f"{folder}/w0_9999.xplane.pb"] = profile
    cloud.objects[f"{folder}/w1_9999.xplane.pb"] = profile[:-1]
    kept = keeper.keep(b"", host="w0_9999", address="w0:9999")
    lost = keeper.keep(b"", host="w1_9999", address="w1:9999")
    absent = keeper.keep(b"", host="w2_9999", address="w2:9999")
    assert isinstance(kept, Kept)
    assert (kept.file.size, kept.file.sha256) == (
        len(profile),
        hashlib.sha256(profile).hexdigest(),
    )
    assert isinstance(lost, Failure)
    assert lost.reason is ReasonCode.CORRUPT
    assert isinstance(absent, Failure)
    assert absent.reason is ReasonCode.UNIMPLEMENTED
    assert cloud.objects == {
        f"{folder}/w0_9999.xplane.pb": profile,
        "team/.podscope/rejected/s1/w1_9999": profile[:-1],
    }
