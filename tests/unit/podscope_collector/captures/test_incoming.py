import resource
from pathlib import Path

import pytest

from podscope_collector.captures.incoming import IncomingProfile
from podscope_collector.storage import Storage, StorageError


def test_what_arrives_in_pieces_is_digested_on_the_way_and_discarded_in_the_end(
    tmp_path: Path,
) -> None:
    incoming = IncomingProfile(Storage(str(tmp_path)))
    for piece in (b"one", b"", b"two"):
        incoming.write(piece)
    incoming.close()
    assert bytes(incoming.content()) == b"onetwo"
    assert incoming.size == 6
    incoming.discard()
    assert not incoming.path.exists()


def test_a_file_that_cannot_grow_is_the_storages_failure_and_leaves_nothing(tmp_path: Path) -> None:
    incoming = IncomingProfile(Storage(str(tmp_path)))
    _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(StorageError, match="cannot receive a profile"):
            incoming.write(bytes(1 << 20))
        incoming.discard()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not incoming.path.exists()


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    (tmp_path / ".podscope").write_text("in the way")
    with pytest.raises(StorageError, match="cannot write"):
        IncomingProfile(storage)
