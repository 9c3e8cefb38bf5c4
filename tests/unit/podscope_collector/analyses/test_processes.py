import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from podscope_collector.analyses.processes import AnalysisProcesses
from podscope_collector.errors import AnalysisFailedError

LONG = timedelta(seconds=60)
MEMORY_BYTES = 512 << 20

JOBS = """
import os, signal, time
from podscope_collector.errors import CollectorError
from podscope_analyzers.errors import XSpaceError

def fail(): 1 / 0
def corrupt(): raise XSpaceError("truncated", offset=7)
def busy(): raise CollectorError("the storage is away")
def allocate(size): return len(bytes(size))
def sleep(seconds): time.sleep(seconds)
def die(): os.kill(os.getpid(), signal.SIGSEGV)
def leave(): os._exit(3)
def niceness(): return os.nice(0)
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AnalysisProcesses]:
    (tmp_path / "jobs_of_the_test.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = AnalysisProcesses(1, memory_bytes=MEMORY_BYTES, tasks_per_process=3)
    yield made
    made.close()


def run(
    pool: AnalysisProcesses, job: str, timeout: timedelta = LONG, **arguments: object
) -> object:
    return pool.run(f"jobs_of_the_test:{job}", dict(arguments), timeout, threading.Event())


def pid(pool: AnalysisProcesses) -> int:
    found = pool.run("os:getpid", {}, LONG, threading.Event())
    assert isinstance(found, int)
    return found


def test_a_process_is_kept_warm_and_replaced_after_its_tasks(pool: AnalysisProcesses) -> None:
    pids = [pid(pool) for _ in range(4)]
    assert pids[0] == pids[1] == pids[2] != pids[3]
    assert os.getpid() not in pids
    assert not psutil.pid_exists(pids[0])


@pytest.mark.parametrize(
    ("job", "message", "is_final"),
    [
        ("fail", r"^ZeroDivisionError: division by zero \(jobs_of_the_test.py:6\)$", False),
        ("busy", r"^the storage is away$", False),
        # What is wrong with the input stays wrong: it is not tried again.
        ("corrupt", r"^not a valid XSpace: truncated at byte 7$", True),
    ],
)
def test_an_error_in_the_process_is_one_line_and_the_process_lives_on(
    pool: AnalysisProcesses, job: str, message: str, is_final: bool
) -> None:
    before = pid(pool)
    with pytest.raises(AnalysisFailedError, match=message) as caught:
        run(pool, job)
    assert caught.value.is_final is is_final
    assert pid(pool) == before


@pytest.mark.parametrize(
    ("job", "message"),
    [("die", "ended by SIGSEGV"), ("leave", "ended by itself with exit code 3")],
)
def test_a_process_that_dies_costs_one_attempt(
    pool: AnalysisProcesses, job: str, message: str
) -> None:
    before = pid(pool)
    with pytest.raises(AnalysisFailedError, match=message):
        run(pool, job)
    assert pid(pool) != before


def test_an_endless_analysis_is_killed(pool: AnalysisProcesses) -> None:
    before = pid(pool)
    with pytest.raises(AnalysisFailedError, match=r"longer than 0\.5 s; raise .*_TIMEOUT"):
        run(pool, "sleep", timedelta(seconds=0.5), seconds=3600)
    assert not psutil.pid_exists(before)
    assert pid(pool) != before


def test_an_analysis_without_bounds_runs_into_its_memory_limit(pool: AnalysisProcesses) -> None:
    assert run(pool, "allocate", size=100 << 20) == 100 << 20
    with pytest.raises(AnalysisFailedError, match=r"needs more than 0\.5 GiB of memory"):
        run(pool, "allocate", size=MEMORY_BYTES)


def test_an_analysis_whose_work_was_taken_away_is_abandoned(pool: AnalysisProcesses) -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(AnalysisFailedError, match="abandoned"):
        pool.run("jobs_of_the_test:sleep", {"seconds": 3600}, LONG, stop)


def test_closing_the_pool_ends_its_processes(pool: AnalysisProcesses) -> None:
    before = pid(pool)
    pool.close()
    assert not psutil.pid_exists(before)
    with pytest.raises(AnalysisFailedError, match="stopping"):
        pid(pool)


def test_analyses_leave_the_processor_to_captures(pool: AnalysisProcesses) -> None:
    assert run(pool, "niceness") == min(19, os.nice(0) + 5)
