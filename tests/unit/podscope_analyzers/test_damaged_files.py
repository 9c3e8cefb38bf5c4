"""Whole analyses of damaged files; ``make fuzz`` runs a hundred thousand of them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers import XSpaceError
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Scope
from podscope_protos.v1 import xplane_pb2

ROOT = Path(__file__).resolve().parents[3]


def _fuzz(*arguments: str, **environment: str) -> re.Match[str]:
    paths = [str(ROOT / folder) for folder in ("", "agent", "analyzers", "collector", "protos")]
    found = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    said = re.search(
        r"([\d,]+) files of seed \d+: .*result ([\d,]+).*; (\d+) wrong\n", found.stdout
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert said is not None, found.stdout
    return said


@pytest.mark.slow
def test_a_minute_of_damaged_files_neither_crashes_nor_hangs_nor_swells() -> None:
    files, results, wrong = _fuzz("--seconds", "60", "--jobs", "2", "--seed", "2").groups()
    assert int(wrong) == 0
    # Enough of them, and enough that are still read.
    assert int(files.replace(",", "")) >= 100
    assert int(results.replace(",", "")) >= 20


@pytest.mark.slow
def test_kernels_with_bounds_checking_stay_inside_their_arrays(tmp_path: Path) -> None:
    environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    files, _, wrong = _fuzz("--files", "400", "--jobs", "2", "--seed", "3", **environment).groups()
    assert (int(files), int(wrong)) == (400, 0)


def _small() -> bytes:
    """A step with two operations and an annotated batch on a host, and a TPU core's run."""
    space = xplane_pb2.XSpace(hostnames=["h"])
    host = space.planes.add(name="/host:CPU")
    for key, name in enumerate(("train 1", "MatMul:MatMul", "load_batch"), start=1):
        host.event_metadata[key].name = name
    for key, name in enumerate(("_r", "step_num", "tf_op"), start=1):
        host.stat_metadata[key].name = name
    line = host.lines.add(name="main", timestamp_ns=1)
    for at in range(2):
        step = line.events.add(metadata_id=1, offset_ps=9000 * at, duration_ps=8000)
        step.stats.add(metadata_id=1, int64_value=1)
        step.stats.add(metadata_id=2, int64_value=at)
        line.events.add(metadata_id=3, offset_ps=9000 * at + 1, duration_ps=900)
        run = line.events.add(metadata_id=2, offset_ps=9000 * at + 1000, duration_ps=5000)
        run.stats.add(metadata_id=3, str_value="a/b:Dot")
    core = space.planes.add(name="/device:TPU:0")
    for key, name in enumerate(("program_id", "symbol_id", "hlo_category"), start=1):
        core.stat_metadata[key].name = name
    core.event_metadata[1].name = "fusion.1"
    core.event_metadata[1].stats.add(metadata_id=1, uint64_value=7)
    core.event_metadata[1].stats.add(metadata_id=2, uint64_value=3)
    core.event_metadata[1].stats.add(metadata_id=3, str_value="loop fusion")
    for name in ("Steps", "XLA Ops"):
        events = core.lines.add(name=name).events
        events.add(metadata_id=1, offset_ps=1000, duration_ps=5000)
    return space.SerializeToString()


def test_a_file_cut_at_any_byte_is_analyzed_or_refused_with_its_place() -> None:
    raw = _small()
    whole = analyze_host(raw, "h")
    assert (len(whole.device_ops), len(whole.host_ops)) == (2, 2)
    analyzed, places = 0, []
    for end in range(1, len(raw)):
        try:
            partial = analyze_host(raw[:end], "h")
        except XSpaceError as error:
            places.append(0 <= error.offset <= end)
            continue
        analyzed += 1
        for name in TOOLS:
            if name != "memory_viewer":
                run_tool(name, [partial], Scope(hosts=["h"]))
    # The planes come first in a space, so it is whole up to the end of either of them.
    assert analyzed == 2
    assert all(places)


@pytest.mark.parametrize("name", [name for name in TOOLS if name != "memory_viewer"])
def test_cores_that_ran_for_ages_have_a_result(name: str) -> None:
    space = xplane_pb2.XSpace()
    space.ParseFromString(_small())
    core = space.planes[1]
    for line in core.lines:
        line.events[0].duration_ps = (1 << 63) - 1
    for number in range(1, 8):
        space.planes.add().CopyFrom(core)
        space.planes[-1].name, space.planes[-1].id = f"/device:TPU:{number}", number
    partial = analyze_host(space.SerializeToString(), "h")
    assert run_tool(name, [partial], Scope(hosts=["h"])).to_json()["tool"] == name


@pytest.mark.parametrize(
    ("stat", "value"), [("device_offset_ps", 2**63 + 5), ("bytes_accessed", 2**62)]
)
def test_numbers_beyond_what_a_column_holds_are_no_error(stat: str, value: int) -> None:
    space = xplane_pb2.XSpace.FromString(build_xspace(Pod(device="tpu-v5e", steps=3, seed=1)))
    core = next(plane for plane in space.planes if plane.name == "/device:TPU:0")
    key = next(number for number, one in core.stat_metadata.items() if one.name == stat)
    carriers: list[xplane_pb2.XEventMetadata | xplane_pb2.XEvent] = [
        *core.event_metadata.values(),
        *(event for line in core.lines for event in line.events),
    ]
    told = [one for carrier in carriers for one in carrier.stats if one.metadata_id == key]
    for one in told[:: 2 if stat == "device_offset_ps" else 1]:
        one.uint64_value = value
    host = analyze_host(space.SerializeToString(), "h0")
    for tool in TOOLS:
        json.dumps(run_tool(tool, [host], Scope(["h0"])).to_json())
