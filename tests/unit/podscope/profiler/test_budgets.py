"""What keeps the library cheap to import and per span; `benchmarks/library.py` has the seconds."""

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from podscope import profiler

FRAMEWORKS = {"jax", "keras", "numpy", "tensorflow", "torch"}
SERVICES = {"fastapi", "httpx", "podscope_agent", "podscope_collector", "psutil", "typer"}


@pytest.mark.parametrize(
    ("module", "dear"),
    [
        # Programs that name spans alone need no gRPC, and none of what gRPC brings.
        ("podscope.profiler", {"asyncio", "ctypes", "grpc", "ssl", "subprocess"}),
        ("podscope.profiler.server", {"ctypes", "multiprocessing"}),
    ],
)
def test_importing_it_brings_nothing_that_takes_long(module: str, dear: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not (dear | FRAMEWORKS | SERVICES) & set(done.stdout.split())


def span() -> None:
    with profiler.Trace("span"):
        pass


def calls_of(work: Callable[[], None]) -> int:
    """How many calls of Python and of C `work` makes."""
    calls = 0

    def told(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    # A collection in between would count too.
    gc.disable()
    sys.setprofile(told)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    # But for `work` itself, and what ends the counting.
    return calls - 2


def test_a_span_is_three_calls_idle_and_ten_recorded(tmp_path: Path) -> None:
    assert calls_of(span) == 3
    with profiler.Profile(tmp_path, profiler.ProfilerOptions(python_tracer_level=0)):
        # The thread's first span is also its introduction.
        span()
        assert calls_of(span) <= 10
