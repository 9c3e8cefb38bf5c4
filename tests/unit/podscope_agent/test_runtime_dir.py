import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from podscope.registration import is_own, runtime_dirs
from podscope_agent.errors import RuntimeDirError
from podscope_agent.inventory import TargetInventory
from podscope_agent.registrations import RegistrationServer


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files that all users of a machine share."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("PODSCOPE_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path


def test_a_folder_that_is_ours_or_not_there_yet_is_looked_in(shared: Path) -> None:
    own = shared / f"podscope-{os.getuid()}"
    assert runtime_dirs()[-1] == own
    own.mkdir()
    assert is_own(own)
    assert runtime_dirs()[-1] == own


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_another_user_made_under_our_name_is_not_used(shared: Path) -> None:
    theirs = shared / f"podscope-{os.getuid()}"
    theirs.mkdir()
    os.chown(theirs, 65_534, 65_534)
    assert theirs not in runtime_dirs()
    with pytest.raises(RuntimeDirError, match="another user"):
        asyncio.run(RegistrationServer(theirs, TargetInventory()).start())
    assert list(theirs.iterdir()) == []
