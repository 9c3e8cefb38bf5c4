import hashlib
from pathlib import Path

import pytest

from podscope_agent.errors import RepositoryError
from podscope_agent.pieces import Pieces
from podscope_agent.repository import Repository, file_stem
from podscope_protos.v1 import profiler_service_pb2 as wire


def test_a_profile_lands_where_a_stock_server_writes_it(tmp_path: Path) -> None:
    repository = Repository([str(tmp_path)])
    root = str(tmp_path / "logs" / "plugins" / "profile")
    written = repository.write(root, "2026_01_02", "w0_9999", Pieces([b"abc"]))
    assert written.path == f"{root}/2026_01_02/w0_9999.xplane.pb"
    assert Path(written.path).read_bytes() == b"abc"
    assert (written.size, written.sha256) == (3, hashlib.sha256(b"abc").hexdigest())
    assert [path.name for path in Path(written.path).parent.iterdir()] == ["w0_9999.xplane.pb"]


def test_only_what_is_allowed_is_written_to(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "allowed-not"
    allowed.mkdir()
    other.mkdir()
    (allowed / "link").symlink_to(other)
    repository = Repository([str(allowed), "s3://bucket/team"])
    assert repository.allows(str(allowed))
    assert repository.allows("s3://bucket/team/runs")
    for root in (
        str(other),
        f"{allowed}/../allowed-not",
        str(allowed / "link"),
        "",
        "relative",
        "s3://bucket/teammate",
        "s3://bucket/team/../other",
        "gs://bucket/team",
    ):
        assert not repository.allows(root), root
        with pytest.raises(RepositoryError, match="--allow-root"):
            repository.write(root, "s", "h", Pieces([b""]))


def test_a_session_that_is_a_link_leads_nowhere(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.mkdir()
    (allowed / "s").symlink_to(other)
    with pytest.raises(RepositoryError, match="is a link"):
        Repository([str(allowed)]).write(str(allowed), "s", "h", Pieces([b"x"]))
    assert list(other.iterdir()) == []


def test_a_host_that_is_called_by_an_ipv6_address_has_a_file(tmp_path: Path) -> None:
    stem = file_stem(wire.ProfileRequest(host_name="[::1]:8466"))
    Repository([str(tmp_path)]).write(str(tmp_path), "s", stem, Pieces([b"x"]))
    assert (tmp_path / "s" / "[__1]_8466.xplane.pb").read_bytes() == b"x"


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a\n", "x" * 300])
def test_a_name_is_one_component(tmp_path: Path, name: str) -> None:
    repository = Repository([str(tmp_path)])
    for session, host in ((name, "h"), ("s", name)):
        with pytest.raises(RepositoryError, match="no name"):
            repository.write(str(tmp_path), session, host, Pieces([b""]))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a file")
    with pytest.raises(RepositoryError, match="cannot write"):
        Repository([str(tmp_path)]).write(str(tmp_path), "s", "h", Pieces([b""]))


def test_without_an_allowed_root_nothing_is_allowed(tmp_path: Path) -> None:
    assert not Repository([" ", "/"]).allows("/")
    assert not Repository([]).allows(str(tmp_path))
