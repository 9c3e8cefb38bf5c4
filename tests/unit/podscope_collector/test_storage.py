import hashlib
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from podscope_collector.errors import InputNotFoundError, RequestError
from podscope_collector.storage import Storage, StorageError

NOW = datetime(2026, 11, 21, 9, 0, 0, 123_456, UTC)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "log dir"))


def test_a_session_id_shows_its_time_to_the_millisecond(storage: Storage) -> None:
    assert storage.new_session(NOW) == "2026_11_21_09_00_00_123"


def test_ids_of_one_instant_differ_also_between_services(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        services = [Storage(storage.root) for _ in range(8)]
        found = list(pool.map(lambda index: services[index % 8].new_session(NOW), range(64)))
    assert len(set(found)) == 64
    assert all(re.fullmatch(r"2026_11_21_09_00_00_\d{3}", session) for session in found)


def test_a_profile_lies_where_tensorboard_looks(storage: Storage, tmp_path: Path) -> None:
    stored = storage.put_xspace("s1", "w0_9999", memoryview(b"abc"))
    assert stored.path == "plugins/profile/s1/w0_9999.xplane.pb"
    assert (tmp_path / "log dir" / stored.path).read_bytes() == b"abc"
    assert (stored.size, stored.sha256) == (3, hashlib.sha256(b"abc").hexdigest())
    assert storage.read_xspace("s1", "w0_9999") == b"abc"
    assert storage.local_path(stored.path) == tmp_path / "log dir" / stored.path


def test_sessions_are_listed_newest_first_and_hosts_in_order(storage: Storage) -> None:
    assert storage.list_sessions() == []
    assert storage.list_hosts("s1") == []
    for session, host in (("s1", "b"), ("s1", "a"), ("s2", "a.x")):
        storage.put_xspace(session, host, b"x")
    storage.put_derived("partials", "s3", "a", b"x")
    assert storage.list_sessions() == ["s2", "s1"]
    assert storage.list_hosts("s1") == ["a", "b"]
    assert storage.list_hosts("s2") == ["a.x"]


def test_files_of_others_in_a_session_are_no_hosts(storage: Storage, tmp_path: Path) -> None:
    storage.put_xspace("s1", "a", b"x")
    folder = tmp_path / "log dir" / "plugins" / "profile" / "s1"
    for name in ("a.op_stats_v2.pb", ".tmp-b.xplane.pb", ".xplane.pb", "a.trace.json.gz"):
        (folder / name).write_bytes(b"x")
    assert storage.list_hosts("s1") == ["a"]


def test_a_reader_sees_the_whole_file_or_none(storage: Storage) -> None:
    first, second = bytes(4_000_000), b"\x01" * 4_000_000
    storage.put_xspace("s1", "a", first)
    stop = threading.Event()
    torn: list[int] = []

    def read() -> None:
        while not stop.is_set():
            content = storage.read_xspace("s1", "a")
            if content not in (first, second):
                torn.append(len(content))

    reader = threading.Thread(target=read)
    reader.start()
    for index in range(20):
        storage.put_xspace("s1", "a", second if index % 2 else first)
    stop.set()
    reader.join()
    assert torn == []


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", "a\nb", "x" * 300])
def test_a_name_that_is_a_path_is_rejected(storage: Storage, name: str) -> None:
    with pytest.raises(RequestError):
        storage.put_xspace("s1", name, b"")
    with pytest.raises(RequestError):
        storage.read_xspace(name, "a")
    with pytest.raises(RequestError):
        storage.put_derived("results", "s1", name, b"")


def test_a_missing_file_is_not_found(storage: Storage) -> None:
    with pytest.raises(InputNotFoundError, match=r"a\.xplane\.pb"):
        storage.read_xspace("s1", "a")
    assert not storage.has_xspace("s1", "a")
    storage.delete(["plugins/profile/s1/a.xplane.pb"])


@pytest.mark.parametrize("root", ["/dev/null/x", "/proc/podscope-cannot"])
def test_an_unwritable_root_is_one_clear_line(root: str) -> None:
    for action in (Storage(root).check_writable, Storage(root).new_session):
        with pytest.raises(StorageError, match=f"cannot write to {root}") as caught:
            action()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("root", ["", "ftp://x", "http://bucket"])
def test_a_root_that_is_no_storage_is_refused_at_once(root: str) -> None:
    with pytest.raises(RequestError, match="s3://bucket"):
        Storage(root)


def test_nothing_temporary_is_left_behind(storage: Storage, tmp_path: Path) -> None:
    storage.check_writable()
    storage.put_xspace("s1", "a", b"x")
    storage.put_derived("rejected", "s1", "a", b"x")
    assert list((tmp_path / "log dir" / ".podscope" / "tmp").iterdir()) == []


def test_a_profile_that_is_set_aside_is_no_profile_of_its_session_any_more(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.put_derived("rejected", "s", "h", b"older")
    storage.put_xspace("s", "h", b"damaged")
    storage.set_aside("s", "h")
    assert storage.list_hosts("s") == []
    assert storage.read(storage.rejected_path("s", "h")) == b"damaged"
    storage.set_aside("s", "h")


def test_a_file_of_many_blocks_is_whole_and_its_digest_right(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    stored = Storage(str(tmp_path)).put_xspace("s", "h", memoryview(content)[7:])
    assert stored.sha256 == hashlib.sha256(content[7:]).hexdigest()
    assert (tmp_path / stored.path).read_bytes() == content[7:]
    assert list((tmp_path / ".podscope" / "tmp").iterdir()) == []


_FULL_DISK = """
import resource, sys
from podscope_collector.captures.keeping import Keeper
from podscope_collector.captures.reasons import Failure
from podscope_collector.storage import Storage, StorageError

# As on a full disk, a file takes some of the bytes and no more.
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
storage = Storage(sys.argv[1])
storage.put_xspace("s", "small", bytes(1 << 20))
try:
    storage.put_xspace("s", "large", bytes((1 << 20) + 1))
except StorageError as error:
    print(error)
result = Keeper(storage, "s").keep_xspace(b"\\x0a" + bytes(2 << 20), "damaged", "h:1")
assert isinstance(result, Failure)
print(result.reason, result.message)
"""


def test_a_disk_that_fills_up_leaves_what_is_whole_and_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    full, damaged = done.stdout.splitlines()
    assert full.startswith("cannot write plugins/profile/s/large.xplane.pb to")
    assert damaged.startswith("corrupt h:1 sent bytes that are no profile")
    assert "they are not kept: cannot write .podscope/rejected/s/damaged" in damaged
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [(file.name, file.stat().st_size) for file in files] == [("small.xplane.pb", 1 << 20)]
