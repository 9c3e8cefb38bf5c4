"""Allocators equal an installed XProf's on random events: several of them, odd stats."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_protos.v1 import xplane_pb2

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ALLOCATORS = ("GPU_0_bfc", "GPU_10_bfc", "cpu", "0", "1", "10")


class Host:
    """A host's plane, of which no two events have one time: equal ones XProf orders by chance."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.space = xplane_pb2.XSpace(hostnames=["vm"])
        self.plane = self.space.planes.add(id=1, name="/host:CPU")
        self._ids: dict[str, int] = {}
        self._events: dict[str, int] = {}
        self._times = self.rng.sample(range(10**7), 10**4)

    def event(self, line: Any, name: str, stats: list[tuple[str, Any]], **times: int) -> None:
        key = self._events.setdefault(name, len(self._events) + 1)
        self.plane.event_metadata[key].id, self.plane.event_metadata[key].name = key, name
        event = line.events.add(metadata_id=key, **times)
        for stat, value in stats:
            at = self._ids.setdefault(stat, len(self._ids) + 1)
            self.plane.stat_metadata[at].id, self.plane.stat_metadata[at].name = at, stat
            match value:
                case str():
                    event.stats.add(metadata_id=at, str_value=value)
                case float():
                    event.stats.add(metadata_id=at, double_value=value)
                case _:
                    event.stats.add(metadata_id=at, int64_value=value)

    def fill(self) -> None:
        """Steps on one thread, and events of allocators on it and on others."""
        rng, names = self.rng, self.rng.sample(ALLOCATORS, self.rng.randint(1, 4))
        thread = self.plane.lines.add(id=99, name="python")
        for step in range(rng.choice((0, 4))):
            begin = step * 2_500_000
            about = [("step_num", step), ("_r", 1)]
            self.event(thread, "train", about, offset_ps=begin, duration_ps=2_000_000)
        for number in range(rng.randint(1, 3)):
            line = self.plane.lines.add(id=number + 1, name=f"thread {number}")
            for _ in range(rng.choice((3, 20, 20, 1500))):
                self._memory_event(rng.choice((line, thread)), names)

    def _memory_event(self, line: Any, names: list[str]) -> None:
        rng = self.rng
        chosen = rng.choice(names)
        stats: list[tuple[str, Any]] = [("allocator_name", chosen)]
        if chosen.isdecimal():
            stats = [(rng.choice(("index_on_host", "device_ordinal")), int(chosen))]
        if rng.random() < 0.05:
            other = {"index_on_host", "device_ordinal", "allocator_name"} - {stats[0][0]}
            name = rng.choice(sorted(other))
            stats.append((name, "cpu" if name == "allocator_name" else rng.randint(0, 2)))
        most = rng.choice((4, 4, 4, 10**9))
        more: list[tuple[str, Any]] = [
            ("bytes_reserved", rng.choice((0, rng.randint(0, most)))),
            *((name, rng.randint(0, most)) for name in ("bytes_allocated", "bytes_available")),
            ("fragmentation", rng.random()),
            ("peak_bytes_in_use", rng.randint(0, most)),
            *((name, rng.randint(0, 3)) for name in ("requested_bytes", "allocation_bytes")),
            ("addr", rng.randint(0, 5)),
            ("group_id", rng.randint(0, 4)),
        ]
        is_allocation = rng.random() < 0.6
        if is_allocation or rng.random() < 0.2:
            more += [
                ("tf_op", rng.choice(("a/b", "c", ""))),
                ("region_type", rng.choice(("temp", "output", "persist/dynamic"))),
                ("data_type", rng.choice((-1, 0, 1, 14, 99, 101, 130))),
                ("shape", rng.choice(("[1]", "[2,3]", ""))),
            ]
        dropped = {"group_id": 0.9}
        stats += [one for one in more if rng.random() > dropped.get(one[0], 0.08)]
        if rng.random() < 0.3:
            rng.shuffle(stats)
        name = "MemoryAllocation" if is_allocation else "MemoryDeallocation"
        self.event(line, name, stats, offset_ps=self._times.pop(), duration_ps=0)


def with_what_is_defined(profile: Any) -> Any:
    """Of equal allocations it is free which one is named: its time and address."""
    for allocator in profile["memoryProfilePerAllocator"].values():
        for snapshot in allocator["memoryProfileSnapshots"]:
            del snapshot["timeOffsetPs"], snapshot["aggregationStats"]
            del snapshot["activityMetadata"]["address"]
    return profile


@pytest.mark.parametrize("seed", range(16))
def test_allocators_equal_xprofs(
    seed: int, tmp_path: Path, compare: Callable[..., list[str]]
) -> None:
    plugin = pytest.importorskip("xprof.convert._pywrap_profiler_plugin")
    host = Host(seed)
    host.fill()
    file = tmp_path / "h0.xplane.pb"
    file.write_bytes(host.space.SerializeToString())
    answer, is_good = plugin.xspace_to_tools_data([str(file)], "memory_profile", {})
    assert is_good, answer
    partial = analyze_host(file.read_bytes(), "h0")
    got = json.loads(json.dumps(run_tool_xprof("memory_profile", [partial])))
    assert got["memoryIds"]
    expected = json.loads(answer)
    assert compare(with_what_is_defined(expected), with_what_is_defined(got)) == []
