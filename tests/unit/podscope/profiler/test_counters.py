"""What process and host use, and where Python collects garbage."""

import gc
import threading
import time
from pathlib import Path

import pytest

from podscope import profiler
from podscope.profiler import counters
from podscope.profiler.counters import COUNTER_LINE, Counters
from podscope.profiler.garbage import PAUSE_NAME
from podscope_protos.v1.xplane_pb2 import XPlane, XSpace

NO_PYTHON = profiler.ProfilerOptions(python_tracer_level=0)


def host_plane(logdir: Path) -> XPlane:
    [file] = logdir.glob("plugins/profile/*/*.xplane.pb")
    space = XSpace.FromString(file.read_bytes())
    return next(plane for plane in space.planes if plane.name == "/host:CPU")


def read_for(seconds: float, work: threading.Thread | None = None) -> dict[str, list[float]]:
    taken = Counters()
    taken.start()
    if work is not None:
        work.start()
    time.sleep(seconds)
    taken.stop()
    if work is not None:
        work.join()
    found: dict[str, list[float]] = {}
    for reading in taken.readings:
        found.setdefault(reading.name, []).append(reading.value)
    return found


def test_cpu_use_is_that_of_the_time_between_readings() -> None:
    def spin() -> None:
        began = time.thread_time()
        while time.thread_time() - began < 0.2:
            pass

    began_s, began_cpu_s = time.monotonic(), time.process_time()
    found = read_for(0.6, threading.Thread(target=spin))
    mean = (time.process_time() - began_cpu_s) / (time.monotonic() - began_s)
    cores = found["process CPU (cores)"]
    assert 0.5 * mean < sum(cores) / len(cores) < 2 * mean
    assert all(0 <= share <= 100 for share in found["host CPU (%)"])


def test_memory_follows_what_the_process_takes() -> None:
    before = read_for(0.05)["process memory (MiB)"][-1]
    taken = b"x" * (64 << 20)
    after = read_for(0.05)["process memory (MiB)"][-1]
    assert 60 < after - before < 80
    assert len(taken) == 64 << 20


def test_without_proc_the_peak_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(counters, "_PROC", tmp_path)
    found = read_for(0.05)
    assert set(found) == {"process CPU (cores)", "process peak memory (MiB)"}
    assert found["process peak memory (MiB)"][0] > 10


def test_counters_are_on_the_line_that_viewers_draw(tmp_path: Path) -> None:
    with profiler.Profile(tmp_path, NO_PYTHON):
        time.sleep(0.35)
    plane = host_plane(tmp_path)
    [line] = [line for line in plane.lines if line.name == COUNTER_LINE]
    names = {plane.event_metadata[event.metadata_id].name for event in line.events}
    assert names >= {"process CPU (cores)", "process memory (MiB)"}
    for event in line.events:
        [stat] = event.stats
        assert stat.WhichOneof("value") == "double_value"
    times = sorted({event.offset_ps for event in line.events})
    assert len(times) >= 3
    assert 0 < times[0] < times[-1] < 2e12


def test_a_long_collection_is_a_span_of_the_thread_that_paused(tmp_path: Path) -> None:
    kept: list[object] = []
    for _ in range(200_000):
        kept.append([kept])

    def collect() -> None:
        with profiler.Trace("around"):
            gc.collect()

    with profiler.Profile(tmp_path, NO_PYTHON):
        worker = threading.Thread(target=collect, name="collector")
        worker.start()
        worker.join()
    plane = host_plane(tmp_path)
    [line] = [line for line in plane.lines if line.name == "collector"]
    found = {plane.event_metadata[event.metadata_id].name: event for event in line.events}
    around, pause = found["around"], found[PAUSE_NAME]
    assert around.offset_ps <= pause.offset_ps
    assert pause.duration_ps <= around.duration_ps
    stats = {plane.stat_metadata[stat.metadata_id].name: stat for stat in pause.stats}
    assert stats["generation"].int64_value == 2
    assert pause.duration_ps > 1e8


def test_no_callback_stays_behind(tmp_path: Path) -> None:
    before = list(gc.callbacks)
    with profiler.Profile(tmp_path, NO_PYTHON):
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before
