import hashlib
from pathlib import Path

import pytest

from podscope_agent.errors import SpoolError
from podscope_agent.pieces import Pieces
from podscope_agent.results import ResultSpool


def test_a_profile_is_kept_whole_and_private(tmp_path: Path) -> None:
    spool = ResultSpool(tmp_path / "spool", 100, 60)
    result = spool.put("a", Pieces([b"profile"]))
    assert spool.find("a") == result
    assert result.path.read_bytes() == b"profile"
    assert result.sha256 == hashlib.sha256(b"profile").hexdigest()
    assert (result.path.stat().st_mode & 0o777, result.size) == (0o600, 7)
    assert spool.find("b") is None


def test_the_oldest_make_room(tmp_path: Path) -> None:
    spool = ResultSpool(tmp_path, 10, 60)
    for name in "abc":
        spool.put(name, Pieces([b"1234"]))
    assert spool.find("a") is None
    assert spool.find("b") is not None
    assert spool.find("c") is not None
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_larger_than_the_spool_is_refused_and_costs_nothing_else(tmp_path: Path) -> None:
    spool = ResultSpool(tmp_path, 10, 60)
    spool.put("a", Pieces([b"1234"]))
    with pytest.raises(SpoolError, match="--spool-bytes"):
        spool.put("b", Pieces([b"x" * 11]))
    assert spool.find("a") is not None


def test_a_profile_expires(tmp_path: Path) -> None:
    spool = ResultSpool(tmp_path, 10, -1)
    spool.put("a", Pieces([b"1"]))
    assert spool.find("a") is None
    assert list(tmp_path.iterdir()) == []


def test_files_of_an_agent_that_was_killed_are_removed_and_others_left(tmp_path: Path) -> None:
    (tmp_path / "0123.xplane.pb").write_bytes(b"old")
    (tmp_path / "notes.txt").write_text("mine")
    ResultSpool(tmp_path, 10, 60)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_of_its_own_goes_with_the_spool() -> None:
    spool = ResultSpool(None, 10, 60)
    spool.put("a", Pieces([b"1"]))
    spool.close()
    assert not spool.folder.exists()


def test_a_folder_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="cannot use"):
        ResultSpool(tmp_path / "file", 10, 60)


def test_a_profile_that_cannot_be_written_is_not_half_there(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spool = ResultSpool(folder, 10, 60)
    folder.rmdir()
    with pytest.raises(SpoolError, match="cannot keep the profile"):
        spool.put("a", Pieces([b"1"]))
    assert spool.find("a") is None
