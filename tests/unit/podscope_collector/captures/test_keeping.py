"""What is ready before the first profile is there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from podscope_collector.captures.keeping import Keeper
from podscope_collector.captures.reasons import Failure
from podscope_collector.captures.states import ReasonCode
from podscope_collector.storage import Storage

_PROGRAM = """
import sys
from podscope_agent.simulator import Pod, build_xspace
from podscope_collector.captures.keeping import Keeper
{warm}
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from podscope_collector.storage import Storage
kept = Keeper(Storage({root!r}), "s").keep_xspace(build_xspace(Pod("cpu", 1, 2), 0), "h", "h:1")
print(any(path.endswith(".kernels") for path in opened), kept.window_ns[0] is not None)
"""
_WARM = "from podscope_collector.processes import load_kernels; load_kernels()"


@pytest.mark.parametrize(("warm", "loads"), [("", "True"), (_WARM, "False")])
def test_a_worker_has_its_kernels_before_the_first_profile(
    tmp_path_factory: pytest.TempPathFactory, warm: str, loads: str
) -> None:
    root = str(tmp_path_factory.mktemp("root"))
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(warm=warm, root=root)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{loads} True"


_WITHOUT_KERNELS = """
import sys
from podscope_agent.simulator import Pod, build_xspace
from podscope_collector.captures.keeping import Keeper, warm_up
from podscope_collector.storage import Storage
from podscope_protos.v1 import xplane_pb2

warm_up()
storage = Storage({root!r})
keeper = Keeper(storage, "s")
profile = build_xspace(Pod("cpu", 1, 2), 0)
whole = keeper.keep_xspace(profile, "whole", "h:1")
print(type(whole).__name__, whole.window_ns[0] is not None)
for cut in (1, 1000, len(profile) // 2):
    print(type(keeper.keep_xspace(profile[:-cut], f"cut{{cut}}", "h:1")).__name__)
space = xplane_pb2.XSpace.FromString(profile)
# The last line's last event reaches one byte beyond the line.
line = max((line for plane in space.planes for line in plane.lines), key=xplane_pb2.XLine.ByteSize)
last = line.events[-1].SerializeToString()
where = profile.rindex(last) - 1
broken = bytearray(profile)
broken[where] += 120
print(type(keeper.keep_xspace(bytes(broken), "broken", "h:1")).__name__)
print(sorted(storage.list_hosts("s")), "numba" in sys.modules)
"""


def test_without_kernels_a_profile_is_checked_as_with_them_and_nothing_is_compiled(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_KERNELS.format(root=str(tmp_path / "root"))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        # A folder without kernels, which a process that compiled some would leave there.
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "none")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [
        "Kept True",
        *["Failure"] * 4,
        "['whole'] False",
        "",
    ]
    assert not (tmp_path / "none").exists()


def test_what_a_server_wrote_and_cannot_be_set_aside_is_not_lost(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    for name in ("h_1", "other_1"):
        storage.put_xspace("s", name, b"\xff" * 9)
    keeper = Keeper(storage, "s")
    moved = keeper.keep(b"", host="other_1", address="other:1")
    assert isinstance(moved, Failure)
    assert "they are kept in .podscope/rejected/s/other_1" in moved.message
    assert storage.read(storage.rejected_path("s", "other_1")) == b"\xff" * 9
    shutil.rmtree(tmp_path / ".podscope" / "rejected")
    (tmp_path / ".podscope" / "rejected").write_bytes(b"")
    # Its name of old servers: the file is not the host's own.
    stays = keeper.keep(b"", host="w0", address="h:1")
    assert isinstance(stays, Failure)
    assert stays.reason is ReasonCode.CORRUPT
    assert "they are still in plugins/profile/s/h_1.xplane.pb" in stays.message
    assert storage.read_xspace("s", "h_1") == b"\xff" * 9
