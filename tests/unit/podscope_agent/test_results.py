import hashlib
from pathlib import Path

import pytest

from podscope_agent.errors import SpoolError
from podscope_agent.pieces import Pieces
from podscope_agent.results import ResultSpool


def test_a_profile_is_kept_whole_and_private(tmp_path: Path) -> None:
    spool = ResultSpool(tmp_path / "spool", 100, 60)
    (result,) = spool.put("a", Pieces([b"profile"]))
    assert spool.find("a") == (result,)
    assert result.path.read_bytes() == b"profile"
    assert result.sha256 == hashlib.sha256(b"profile").hexdigest()
    assert (result.path.stat().st_mode & 0o777, result.size) == (0o600, 7)
    assert spool.find("b") == ()


def test_the_parts_of_a_profile_come_and_go_together(tmp_path: Path) -> None:
    spool = ResultSpool(tmp_path, 10, 60)
    parts = spool.put("a", Pieces([b"one"]), Pieces([b"three"]))
    assert [part.path.read_bytes() for part in parts] == [b"one", b"three"]
    with pytest.raises(SpoolError, match="11 bytes"):
        spool.put("b", Pieces([b"123456"]), Pieces([b"12345"]))
    assert spool.find("a") == parts
    spool.put("c", Pieces([b"123"]))
    assert spool.find("a") == ()
    assert len(list(tmp_path.iterdir())) == 1


def test_the_oldest_make_room(tmp_path: Path) -> None:
    spool = ResultSpool(tmp_path, 10, 60)
    for name in "abc":
        spool.put(name, Pieces([b"1234"]))
    assert spool.find("a") == ()
    assert spool.find("b")
    assert spool.find("c")
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_larger_than_the_spool_is_refused_and_costs_nothing_else(tmp_path: Path) -> None:
    spool = ResultSpool(tmp_path, 10, 60)
    spool.put("a", Pieces([b"1234"]))
    with pytest.raises(SpoolError, match="--spool-bytes"):
        spool.put("b", Pieces([b"x" * 11]))
    assert spool.find("a")


def test_a_profile_expires(tmp_path: Path) -> None:
    spool = ResultSpool(tmp_path, 10, -1)
    spool.put("a", Pieces([b"1"]))
    assert spool.find("a") == ()
    assert list(tmp_path.iterdir()) == []


def test_files_of_an_agent_that_was_killed_are_removed_and_others_left(tmp_path: Path) -> None:
    killed = ResultSpool(tmp_path, 10, 60)
    killed.put("a", Pieces([b"old"]))
    left = next(tmp_path.iterdir())
    left.with_suffix(".tmp").write_bytes(b"half")
    mine = {"notes.txt", "saved_model.pb", "worker-0.xplane.pb", "work.tmp"}
    for name in mine:
        (tmp_path / name).write_text("mine")
    ResultSpool(tmp_path, 10, 60)
    assert {path.name for path in tmp_path.iterdir()} == mine


def test_a_folder_that_was_cleaned_away_is_made_again() -> None:
    spool = ResultSpool(None, 10, 60)
    spool.folder.rmdir()
    assert spool.free_bytes() > 0
    spool.folder.rmdir()
    (result,) = spool.put("a", Pieces([b"1"]))
    assert result.path.read_bytes() == b"1"
    spool.close()


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
    folder.write_text("in the way")
    with pytest.raises(SpoolError, match="cannot keep the profile"):
        spool.put("a", Pieces([b"1"]))
    assert spool.find("a") == ()
