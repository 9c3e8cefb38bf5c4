"""What process and host use, and where Python collects garbage."""

import gc
import os
import threading
import time
from pathlib import Path

import pytest

from podscope import profiler
from podscope.profiler.counters import COUNTER_LINE, PROC, Counters
from podscope.profiler.garbage import PAUSE_NAME
from podscope_protos.v1.xplane_pb2 import XPlane, XSpace

NO_PYTHON = profiler.ProfilerOptions(python_tracer_level=0)


def host_plane(logdir: Path) -> XPlane:
    [file] = logdir.glob("plugins/profile/*/*.xplane.pb")
    space = XSpace.FromString(file.read_bytes())
    return next(plane for plane in space.planes if plane.name == "/host:CPU")


class Kernel:
    """A /proc of the test's own, and the two clocks beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "self").mkdir()
        self.now_ns = self.cpu_ns = 0
        self.says(busy=0, idle=0, resident_pages=0, available_kib=0)

    def says(self, *, busy: int, idle: int, resident_pages: int, available_kib: int) -> None:
        # Of the idle ticks, some waited for a disk: the fifth column.
        (self.folder / "stat").write_text(f"cpu {busy} 0 0 {idle - idle // 4} {idle // 4} 0 0 0\n")
        (self.folder / "self" / "statm").write_text(f"9999 {resident_pages} 0 0 0 0 0\n")
        (self.folder / "meminfo").write_text(
            f"MemTotal: 8192 kB\nMemFree: 1 kB\nMemAvailable: {available_kib} kB\n"
        )

    def counters(self) -> Counters:
        return Counters(self.folder, lambda: self.now_ns, lambda: self.cpu_ns)


def by_name(counters: Counters) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for reading in counters.readings:
        found.setdefault(reading.name, []).append(reading.value)
    return found


def test_cpu_use_is_that_of_the_time_between_readings(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    counters = kernel.counters()
    for now_s, cpu_s, busy, idle in [(1, 0.5, 30, 10), (3, 4.5, 90, 150)]:
        kernel.now_ns, kernel.cpu_ns = int(now_s * 1e9), int(cpu_s * 1e9)
        kernel.says(busy=busy, idle=idle, resident_pages=1, available_kib=0)
        counters.read()
    found = by_name(counters)
    assert found["process CPU (cores)"] == [0.5, 2]
    assert found["host CPU (%)"] == pytest.approx([75, 30])


def test_memory_is_that_of_the_process_and_of_its_host(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    counters = kernel.counters()
    pages_per_mib = 2**20 // os.sysconf("SC_PAGE_SIZE")
    for mib in (10, 74):
        kernel.says(busy=1, idle=1, resident_pages=mib * pages_per_mib, available_kib=2048)
        counters.read()
    found = by_name(counters)
    assert found["process memory (MiB)"] == [10, 74]
    assert found["host memory in use (MiB)"] == [6, 6]


def test_what_this_system_tells_is_read() -> None:
    counters = Counters()
    counters.start()
    counters.stop()
    found = by_name(counters)
    assert found["process CPU (cores)"][0] >= 0
    if PROC.is_dir():
        assert found["process memory (MiB)"][0] > 10


def test_without_proc_the_peak_is_told(tmp_path: Path) -> None:
    counters = Counters(tmp_path / "none")
    counters.read()
    found = by_name(counters)
    assert set(found) == {"process CPU (cores)", "process peak memory (MiB)"}
    assert found["process peak memory (MiB)"][0] > 10


def test_counters_are_on_the_line_that_viewers_draw(tmp_path: Path) -> None:
    began_ns = time.perf_counter_ns()
    with profiler.Profile(tmp_path, NO_PYTHON):
        pass
    took_ns = time.perf_counter_ns() - began_ns
    plane = host_plane(tmp_path)
    [line] = [line for line in plane.lines if line.name == COUNTER_LINE]
    names = {plane.event_metadata[event.metadata_id].name for event in line.events}
    assert names >= {"process CPU (cores)", "process memory (MiB)"}
    for event in line.events:
        [stat] = event.stats
        assert stat.WhichOneof("value") == "double_value"
        assert 0 < event.offset_ps <= took_ns * 1000


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
