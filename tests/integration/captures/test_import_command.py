"""``podscope import`` of folders that others made, some of them to do harm."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_collector.storage import Storage

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture(scope="module")
def profiles() -> list[bytes]:
    """Of a job of four hosts."""
    pod = Pod(device="cpu", hosts=4, steps=5)
    return [build_xspace(pod, host) for host in range(4)]


def run_folder(logs: Path, run: str) -> Path:
    folder = logs / "plugins" / "profile" / run
    folder.mkdir(parents=True)
    return folder


def bring(logs: Path, data: Path, *more: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "podscope", "import", str(logs), "--data-dir", str(data)]
    ended = subprocess.run(
        [*command, "--json", *more],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=300,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


@pytest.mark.interop
def test_folders_of_one_capture_become_one_that_xprof_reads(
    tmp_path: Path, profiles: list[bytes]
) -> None:
    raw_to_tool_data = pytest.importorskip("xprof.convert.raw_to_tool_data")
    logs = tmp_path / "logs"
    for number, second in enumerate((5, 7, 30)):
        folder = run_folder(logs, f"2026_01_02_03_04_{second:02d}")
        (folder / f"w{number}.xplane.pb").write_bytes(profiles[number])
    packed = run_folder(logs, "2026_01_02_03_05_00") / "w3.xplane.pb.gz"
    packed.write_bytes(gzip.compress(profiles[3]))
    code, found = bring(logs, tmp_path / "data", "--merge-window", "30s")
    assert code == 0
    assert [(one["session"], one["hosts_done"]) for one in found] == [("2026_01_02_03_04_05", 4)]
    storage = Storage(str(tmp_path / "data" / "profiles"))
    assert storage.list_sessions() == ["2026_01_02_03_04_05"]
    hosts = storage.list_hosts("2026_01_02_03_04_05")
    assert hosts == ["w0", "w1", "w2", "w3"]
    files = []
    for host, profile in zip(hosts, profiles, strict=True):
        path = storage.local_path(storage.xspace_path("2026_01_02_03_04_05", host))
        assert path is not None
        assert path.read_bytes() == profile
        files.append(str(path))
    content, _ = raw_to_tool_data.xspace_to_tool_data(files, "overview_page", {})
    assert len(json.loads(content)[1]["rows"]) > 0

    code, again = bring(logs, tmp_path / "data", "--merge-window", "30s")
    assert code == 0
    assert again[0]["problem"] == f"is there already, as capture {found[0]['capture']}"


def test_a_hostile_folder_costs_nothing_but_itself(tmp_path: Path, profiles: list[bytes]) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not for others")
    logs = tmp_path / "logs"
    folder = run_folder(logs, "2026_01_02_03_04_05")
    names = ("w0", "ünï 名", "a:b?*", "CON", "n" * 240)
    for name in names:
        (folder / f"{name}.xplane.pb").write_bytes(profiles[0])
    odd = os.path.join(os.fsencode(folder), b"odd\xff.xplane.pb")  # noqa: PTH118 - no text names it
    Path(os.fsdecode(odd)).write_bytes(profiles[0])
    (folder / "inside.xplane.pb").symlink_to("w0.xplane.pb")
    # None of these is a profile to be had.
    (folder / "outside.xplane.pb").symlink_to(secret)
    (folder / "endless.xplane.pb").symlink_to("/dev/zero")
    (folder / "circle.xplane.pb").symlink_to("circle.xplane.pb")
    (folder / "empty.xplane.pb").touch()
    os.mkfifo(folder / "pipe.xplane.pb")
    with (folder / "huge.xplane.pb").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "folder.xplane.pb").mkdir()
    (folder.parent / "loop").symlink_to(folder.parent)
    (run_folder(logs, "new\nline") / "w0.xplane.pb").write_bytes(profiles[0])

    code, found = bring(logs, tmp_path / "data")
    assert code == 5
    by_session = {one["session"]: one for one in found}
    assert set(by_session) == {"2026_01_02_03_04_05", "new_line"}
    assert by_session["new_line"]["hosts_done"] == 1
    hostile = by_session["2026_01_02_03_04_05"]
    assert (hostile["hosts_done"], hostile["hosts_total"]) == (7, 13)
    for words in ("is empty", "is a link out of", "1,099,511,627,776 bytes", "and 1 more"):
        assert words in hostile["problem"]
    stored = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert sum(path.name.endswith(".xplane.pb") for path in stored) == 8
    assert all(path.name.isascii() for path in stored)
    assert not any(b"not for others" in path.read_bytes() for path in stored)
    assert sum(path.stat().st_size for path in stored) < 16 << 20
