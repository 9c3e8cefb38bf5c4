"""A worker that is killed at any moment: every capture ends, nothing is captured twice at once."""

import runpy
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

BENCHMARK: dict[str, Any] = runpy.run_path(
    str(Path(__file__).resolve().parents[3] / "benchmarks/capture_kills.py")
)


def test_every_capture_ends_whenever_its_worker_is_killed() -> None:
    # Before, within, and about the end of a window of 1.5 s.
    for found, wrong in BENCHMARK["rounds"](6, [0.1, 1.2, 2.0]):
        assert wrong == []
        assert {host["state"] for host in found["hosts"]} == {"done"}, found
        assert found["capture"]["state"] == "complete"
