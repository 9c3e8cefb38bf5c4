"""Folders of this machine that profiles are looked for in."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from podscope_collector.errors import InputNotFoundError
from podscope_collector.profiles import find_run

_NOBODY = 65534


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may enter every folder: be somebody else meanwhile."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("below", ["", "plugins/profile"])
def test_a_folder_that_may_be_listed_and_not_entered_is_one_clear_line(below: str) -> None:
    # Not tmp_path: its parents are closed to others.
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / below
        (folder / "run").mkdir(parents=True)
        Path(root).chmod(0o755)
        folder.chmod(0o444)
        try:
            with without_privileges(), pytest.raises(InputNotFoundError) as caught:
                find_run(root)
        finally:
            folder.chmod(0o755)
    assert str(caught.value) == f"cannot read {folder}: Permission denied"
