"""Host threads of a trace: stable ids, names and call nesting."""

from podscope_agent.simulator.encoding import LineWriter, PlaneWriter
from podscope_agent.simulator.program import SOURCE_FILE
from podscope_agent.simulator.timeline import standard_normal

HOST_TIMESTAMP_NS = 13_300
"""Timestamp of host lines: tracers start a few microseconds into the profile."""

US = 1_000_000
"""Picoseconds of a microsecond."""


_SCRIPT = SOURCE_FILE.rpartition("/")[2]
_PYTHON_CALLS = (
    f"${_SCRIPT}:160 next_batch",
    "$<unknown> astype",
    "$profiler.py:385 __init__",
    "$array.py:252 shape",
    "$builtins isinstance",
)


def record_python_calls(plane: PlaneWriter, line: LineWriter, start_ps: int) -> None:
    """What the Python tracer leaves on a thread, ``$file:line function``; takes 5 µs."""
    for index, name in enumerate(_PYTHON_CALLS):
        line.add(plane.event_head(name), start_ps + index * US, US - US // 4)


class Threads:
    """The lines of a host plane, made on first use and kept in that order.

    Args:
        plane: The host's plane.
        seed: Chooses the thread ids.
    """

    def __init__(self, plane: PlaneWriter, seed: int) -> None:
        self._plane = plane
        self._seed = seed
        self._lines: dict[str, LineWriter] = {}

    def line(self, pool: str, index: int = 0) -> LineWriter:
        """The line of thread ``index`` of a pool; the main thread has no number in its name."""
        key = f"{pool}/{index}"
        if key not in self._lines:
            number = len(self._lines)
            thread_id = 3_116_817 + number * 7 + int(abs(standard_normal(self._seed, 6)) * 1000)
            name = pool if pool == "python" else f"{pool}/{thread_id}"
            self._lines[key] = LineWriter(thread_id, name, HOST_TIMESTAMP_NS)
        return self._lines[key]

    def finish(self) -> None:
        """Put all lines into the plane."""
        for line in self._lines.values():
            self._plane.add_line(line)
