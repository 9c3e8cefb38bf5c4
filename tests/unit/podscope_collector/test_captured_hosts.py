import json
from pathlib import Path

import pytest

from podscope_collector.captured_hosts import (
    CapturedHost,
    captured_hosts,
    pack_hosts,
    unpack_hosts,
)
from podscope_collector.captures.keeping import Keeper
from podscope_collector.storage import Storage

HOSTS = (CapturedHost("h0", None, 5_000, 20), CapturedHost("h1", "deadline"))


def test_hosts_survive_their_file_in_the_order_of_their_names() -> None:
    assert unpack_hosts(pack_hosts(HOSTS[::-1])) == HOSTS


def test_a_host_that_is_captured_again_replaces_what_was_known_of_it() -> None:
    again = CapturedHost("h1", None, -7, 3)
    assert unpack_hosts(pack_hosts([again], before=HOSTS)) == (HOSTS[0], again)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"version": 2, "hosts": [{"host": "h0"}]}',
        b'{"version": 1}',
        b'{"version": 1, "hosts": [1, {}, {"host": 5}]}',
    ],
)
def test_what_is_damaged_or_newer_tells_of_no_host(raw: bytes) -> None:
    assert unpack_hosts(raw) == ()


def test_an_offset_without_an_error_is_no_clock() -> None:
    row = {"host": "h0", "reason": 5, "clock_offset_ns": 4, "clock_error_ns": None}
    assert unpack_hosts(json.dumps({"version": 1, "hosts": [row]}).encode()) == (
        CapturedHost("h0"),
    )


def test_a_run_folder_finds_what_its_capture_wrote_beside_the_profiles(tmp_path: Path) -> None:
    keeper = Keeper(Storage(str(tmp_path)), "2026_01_01_00_00_00_000")
    keeper.note_hosts(HOSTS)
    keeper.note_hosts([CapturedHost("h1", None, 1, 2)])
    run = tmp_path / "plugins" / "profile" / "2026_01_01_00_00_00_000"
    run.mkdir(parents=True)
    assert captured_hosts(run) == (HOSTS[0], CapturedHost("h1", None, 1, 2))
    assert list(run.iterdir()) == []
    elsewhere = tmp_path / "2026_01_01_00_00_00_000"
    elsewhere.mkdir()
    assert captured_hosts(elsewhere) == ()
    assert captured_hosts(run.with_name("another")) == ()
