"""Fixtures that every kind of test shares."""

import os
import re
from collections.abc import Generator
from pathlib import Path

import pytest

# What a machine may lack; a laptop skips such a test with its reason, CI must not.
_LACKING = re.compile(
    r"could not import|^(Skipped: )?"
    r"(no (PostgreSQL|Redis|empty Redis|Chromium)\b|the web pages are not built)"
)
ROOT = Path(__file__).resolve().parents[1]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, fail where a test would be skipped for want of a service or a framework."""
    report = yield
    if report.skipped and os.environ.get("CI") and call.excinfo is not None:
        reason = str(call.excinfo.value)
        if _LACKING.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} needs what CI must have: {reason}"
    return report


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
