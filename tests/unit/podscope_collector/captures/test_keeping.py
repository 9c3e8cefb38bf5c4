"""What is ready before the first profile is there."""

import subprocess
import sys
from pathlib import Path

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_collector.captures.keeping import Keeper, Kept, unchecked
from podscope_collector.captures.reasons import Failure
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


def test_what_arrives_while_kernels_are_compiled_is_stored_at_once(tmp_path: Path) -> None:
    keeper = Keeper(Storage(str(tmp_path)), "s")
    profile = build_xspace(Pod("cpu", 1, 2), 0)
    with unchecked():
        whole = keeper.keep_xspace(profile, "whole", "h:1")
        # Its analysis finds out, and sets it aside.
        damaged = keeper.keep_xspace(profile[:-1], "damaged", "h:1")
    assert isinstance(whole, Kept)
    assert whole.window_ns == (None, None)
    assert isinstance(damaged, Kept)
    assert isinstance(keeper.keep_xspace(profile[:-1], "damaged", "h:1"), Failure)
    checked = keeper.keep_xspace(profile, "whole", "h:1")
    assert isinstance(checked, Kept)
    assert checked.window_ns[0] is not None
