"""Which files' pages are given back when a large capture is written."""

import os
from pathlib import Path

import pytest

from podscope_collector.page_cache import RecentPages
from podscope_collector.storage import Storage

MIB = 1 << 20


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def advise(file: int, offset: int, length: int, advice: int) -> None:
        assert (offset, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        names.append(Path(f"/proc/self/fd/{file}").readlink().name)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    return names


def test_the_oldest_files_pages_go_when_the_newer_ones_fill_what_may_stay(
    tmp_path: Path, advised: list[str]
) -> None:
    recent = RecentPages(keep_bytes=2 * MIB)
    for name in "abcd":
        path = tmp_path / name
        path.write_bytes(b"x")
        recent.add(path, MIB)
    # Each once when it is written, so that its way to the disk begins.
    assert advised == ["a", "b", "c", "a", "d", "b"]


def test_small_files_and_files_that_are_gone_are_no_matter(
    tmp_path: Path, advised: list[str]
) -> None:
    recent = RecentPages(keep_bytes=MIB)
    recent.add(tmp_path / "small", MIB - 1)
    for name in "abc":
        recent.add(tmp_path / name, MIB)
    assert advised == []


def test_profiles_are_whole_after_their_pages_were_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(str(tmp_path))
    monkeypatch.setattr(storage, "_recent", RecentPages(keep_bytes=0))
    content = os.urandom(MIB + 5)
    stored = storage.put_xspace("s", "w0", content)
    received = storage.incoming_path()
    received.write_bytes(content)
    storage.adopt_xspace("s", "w1", received, len(content), stored.sha256)
    assert storage.read_xspace("s", "w0") == storage.read_xspace("s", "w1") == content
