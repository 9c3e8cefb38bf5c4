"""Requests for memory that really fail while they are profiled, and the report that is made."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podscope import profiler
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Scope

SPANS_ONLY = profiler.ProfilerOptions(python_tracer_level=0)


def report(logdir: Path) -> tuple[Any, int]:
    """The report of the only capture in a folder, and how many shortages it lists."""
    [file] = logdir.glob("plugins/profile/*/*.xplane.pb")
    result = run_tool("memory_profile", [analyze_host(file.read_bytes(), "h")], Scope(["h"]))
    return result.result["out_of_memory"], len(result.tables["shortages"].rows)


def fail_within_spans(logdir: Path, fail: Callable[[], object]) -> None:
    # Both of the nested spans see the error, and so does the profile.
    with (
        profiler.Profile(logdir, SPANS_ONLY),
        profiler.StepTrace("train", step_num=1),
        profiler.Trace("forward"),
    ):
        fail()


def fail_alone(logdir: Path, fail: Callable[[], object]) -> None:
    with profiler.Profile(logdir, SPANS_ONLY):
        fail()


@pytest.mark.parametrize("run", [fail_within_spans, fail_alone])
def test_an_array_of_jax_that_does_not_fit_is_reported(
    run: Callable[[Path, Callable[[], object]], None], tmp_path: Path
) -> None:
    jnp: Any = pytest.importorskip("jax.numpy")
    with pytest.raises(RuntimeError, match="Out of memory"):
        run(tmp_path, lambda: jnp.zeros(1 << 43, jnp.uint8).block_until_ready())
    found, count = report(tmp_path)
    assert (found["kind"], found["requested_bytes"]) == ("reported", 1 << 43)
    assert found["time_ms"] > 0
    assert found["advice"]
    assert count == 1


def test_an_array_of_the_input_that_does_not_fit_is_reported(tmp_path: Path) -> None:
    np: Any = pytest.importorskip("numpy")
    with pytest.raises(MemoryError):
        fail_alone(tmp_path, lambda: np.zeros(1 << 58, np.uint8))
    found, _ = report(tmp_path)
    assert found["requested_bytes"] == 1 << 58


def test_other_errors_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="secret"):
        fail_within_spans(tmp_path, lambda: int("a secret of no memory"))
    assert report(tmp_path) == (None, 0)
    [file] = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert b"a secret" not in file.read_bytes()


def test_every_try_with_less_memory_is_reported(tmp_path: Path) -> None:
    with profiler.Profile(tmp_path, SPANS_ONLY):
        for size in (7, 6, 5):
            with contextlib.suppress(MemoryError), profiler.Trace("try"):
                problem = f"Unable to allocate {size}.0 GiB for an array"
                raise MemoryError(problem)
    _, count = report(tmp_path)
    assert count == 3


class UnreadableError(Exception):
    """An error of the user's whose text fails."""

    def __str__(self) -> str:
        raise ValueError


def test_an_error_without_a_text_stays_the_users_and_ends_the_profile(tmp_path: Path) -> None:
    def fail() -> None:
        raise UnreadableError

    with pytest.raises(UnreadableError):
        fail_within_spans(tmp_path, fail)
    assert report(tmp_path) == (None, 0)
