"""Fixtures that every kind of test shares."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _reference_dir() -> Path | None:
    """The folder of reference captures, when there is one on this machine."""
    configured = os.environ.get("PODSCOPE_REFERENCE_DIR")
    folder = Path(configured) if configured else ROOT.parent / "shared"
    return folder if (folder / "golden").is_dir() else None


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """Folder with ``profiles/`` (real captures) and ``golden/`` (the reference's results)."""
    folder = _reference_dir()
    if folder is None:
        pytest.skip("no reference captures here; set PODSCOPE_REFERENCE_DIR to their folder")
    return folder
