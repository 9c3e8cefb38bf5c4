"""What only the user can put right is one line and its exit code, before anything is started."""

import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def podscope(*args: str) -> tuple[int, str]:
    parts = ("agent", "analyzers", "collector", "protos")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PODSCOPE_")}
    env = {**kept, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in parts)}
    done = subprocess.run(
        [sys.executable, "-m", "podscope", *args],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        code, text = podscope("up", "--port", port, "--data-dir", str(tmp_path))
    assert (code, text.count("\n")) == (1, 1)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another" in text


def test_a_data_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, text = podscope("up", "--port", "0", "--data-dir", str(tmp_path / "file" / "data"))
    assert (code, text.count("\n")) == (7, 1)
    assert "cannot write to the data folder" in text
    assert "--data-dir" in text


def test_a_database_of_a_newer_version(tmp_path: Path) -> None:
    assert podscope("db", "upgrade", "--data-dir", str(tmp_path))[0] == 0
    database = sqlite3.connect(tmp_path / "podscope.db")
    with database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    code, text = podscope("up", "--port", "0", "--data-dir", str(tmp_path))
    assert (code, text.count("\n")) == (4, 1)
    assert "was written by a newer podscope (revision 9999); upgrade podscope" in text


def test_an_open_address_without_a_token() -> None:
    code, text = podscope("up", "--host", "0.0.0.0")
    assert (code, text.count("\n")) == (2, 1)
    assert "--token-file FILE, or --insecure" in text


def test_no_service_at_the_url() -> None:
    code, text = podscope("captures", "list", "--url", "http://127.0.0.1:1")
    assert (code, text.count("\n")) == (6, 1)
    assert "podscope up" in text
