"""What the process and its host use, read several times a second from the kernel."""

import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from podscope.profiler.planes import PS_PER_NS, PlaneBuilder

READINGS_PER_SECOND: Final = 10
MAX_READINGS: Final = 36_000
COUNTER_LINE: Final = "_counters_"
VALUE: Final = "value"

PROC: Final = Path("/proc")


class Reading(NamedTuple):
    """One counter at one time, of `time.perf_counter_ns`."""

    time_ns: int
    name: str
    value: float


class Counters:
    """Readings until stopped; CPU use is that since the reading before.

    Args:
        proc: Where the kernel tells of processes and memory.
        clock_ns: Nanoseconds since any moment.
        cpu_clock_ns: Nanoseconds of CPU that the process has used.
    """

    def __init__(
        self,
        proc: Path = PROC,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        cpu_clock_ns: Callable[[], int] = time.process_time_ns,
    ) -> None:
        self.readings: list[Reading] = []
        self._proc = proc
        self._clock_ns = clock_ns
        self._cpu_clock_ns = cpu_clock_ns
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="podscope-counters", daemon=True)
        self._last_process = (clock_ns(), cpu_clock_ns())
        self._last_host = _host_ticks(proc)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Take the last reading."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(1 / READINGS_PER_SECOND):
            self.read()
        self.read()

    def read(self) -> None:
        """Take a reading of every counter."""
        if len(self.readings) >= MAX_READINGS:
            return
        now_ns = self._clock_ns()
        for name, value in (*self._cpu(now_ns), *_memory(self._proc)):
            self.readings.append(Reading(now_ns, name, value))

    def _cpu(self, now_ns: int) -> list[tuple[str, float]]:
        used_ns = self._cpu_clock_ns()
        before_ns, before_used_ns = self._last_process
        self._last_process = (now_ns, used_ns)
        elapsed_ns = max(1, now_ns - before_ns)
        found = [("process CPU (cores)", (used_ns - before_used_ns) / elapsed_ns)]
        ticks = _host_ticks(self._proc)
        if ticks is not None and self._last_host is not None:
            total = ticks[0] - self._last_host[0]
            if total > 0:
                idle = ticks[1] - self._last_host[1]
                found.append(("host CPU (%)", 100 * (1 - idle / total)))
                self._last_host = ticks
        return found


def counter_line(plane: PlaneBuilder, readings: list[Reading], start_ns: int) -> None:
    """Add readings to a plane, in the form that trace viewers draw as counters."""
    if not readings:
        return
    line = plane.message.lines.add(id=-1, name=COUNTER_LINE)
    for reading in readings:
        event = line.events.add(
            metadata_id=plane.event_id(reading.name),
            offset_ps=max(0, reading.time_ns - start_ns) * PS_PER_NS,
        )
        plane.add_stat(event, VALUE, float(reading.value))


def _host_ticks(proc: Path) -> tuple[int, int] | None:
    """Ticks of all cores: all, and idle ones; None where the kernel does not tell."""
    try:
        with (proc / "stat").open() as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(ticks), ticks[3] + ticks[4]


def _memory(proc: Path) -> list[tuple[str, float]]:
    try:
        pages = int((proc / "self" / "statm").read_text().split()[1])
        found = [("process memory (MiB)", pages * os.sysconf("SC_PAGE_SIZE") / 2**20)]
        kib = {}
        for row in (proc / "meminfo").read_text().splitlines()[:3]:
            key, _, rest = row.partition(":")
            kib[key] = int(rest.split()[0])
        found.append(("host memory in use (MiB)", (kib["MemTotal"] - kib["MemAvailable"]) / 2**10))
    except (OSError, ValueError, KeyError, IndexError):
        # Systems without /proc tell the peak alone: bytes on macOS, KiB elsewhere.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return [
            ("process peak memory (MiB)", peak / (2**20 if sys.platform == "darwin" else 2**10))
        ]
    return found
