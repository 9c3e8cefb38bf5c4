"""Whether it is said in time, and with the reason, that profiles cannot be stored."""

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from podscope_collector.storage import Storage
from podscope_collector.storage_check import check_storage


@pytest.mark.parametrize(
    ("free", "state", "detail"),
    [
        (300 << 20, "warning", "can be written, 0.3 GiB free; free space there"),
        (1500 << 30, "ok", "can be written, 1,500.0 GiB free"),
    ],
)
def test_a_folder_that_can_be_written_tells_its_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str, detail: str
) -> None:
    monkeypatch.setattr(
        "podscope_collector.storage_check.shutil.disk_usage",
        lambda _: SimpleNamespace(free=free),
    )
    found = check_storage(Storage(str(tmp_path)))
    assert found["state"] == state
    assert found["detail"].startswith(detail)
    # What was written to try it is gone.
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_place_that_is_no_folder_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    found = check_storage(Storage(str(tmp_path / "file" / "logs")))
    assert found["state"] == "failed"
    assert "Not a directory" in found["detail"]


def test_a_store_that_takes_calls_and_never_answers_costs_no_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
        found = check_storage(Storage("s3://bucket/logs"), patience_s=0.5)
    assert found == {
        "root": "s3://bucket/logs",
        "state": "failed",
        "detail": "no answer within 0.5 s; check the address and the network between",
    }
