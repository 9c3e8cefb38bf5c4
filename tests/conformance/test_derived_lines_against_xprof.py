"""Derived lines equal those that XProf's trace viewer shows: names, times, groups, statistics."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from podscope_agent.simulator import Pod, write_pod
from podscope_analyzers import open_xspace
from podscope_analyzers.planes import HOST_PLANE
from podscope_analyzers.prepare import prepare
from podscope_analyzers.prepared import PreparedLine

Row = tuple[str, int, int, int | None, dict[str, str]]
Lines = dict[tuple[str, str, int], Counter[str]]

_DERIVED = (
    "Framework ",
    "XLA Modules - ",
    "XLA Ops - ",
    "Source code",
    "Command Buffers",
    "Launch Stats",
    "Host Offload",
    "Steps",
)
_OFFLOADS = "Host Offload Ops row "
_TOLD_ELSEWHERE = ("group_id", "long_name", "step_name")
_OWN_OF_STEPS = ("device_offset_ps", "device_duration_ps", "step_idle_time_ps")


def _row(name: str, start: int, duration: int, group: object, stats: dict[str, Any]) -> str:
    told = {
        key: f"{float(value):.9g}" if key.endswith("_us") else str(value)
        for key, value in sorted(stats.items())
        if key not in (*_TOLD_ELSEWHERE, *_OWN_OF_STEPS)
    }
    return json.dumps([name, start, duration, str(group), told])


def _key(plane: str, line: str, resource: int) -> tuple[str, str, int]:
    # Transfers that begin at one moment: their rows are left to the sort's chance.
    return (plane, _OFFLOADS, 0) if line.startswith(_OFFLOADS) else (plane, line, resource)


def shown_by_xprof(path: Path) -> Lines:
    """Events of the derived lines of a file; those without duration are not shown."""
    convert = pytest.importorskip("xprof.convert.raw_to_tool_data")
    answer, _ = convert.xspace_to_tool_data([str(path)], "trace_viewer", {})
    planes: dict[int, str] = {}
    lines: dict[tuple[int, int], str] = {}
    found: Lines = {}
    events = json.loads(answer)["traceEvents"]
    for event in events:
        if event.get("name") == "process_name":
            planes[event["pid"]] = event["args"]["name"]
        elif event.get("name") == "thread_name":
            lines[event["pid"], event["tid"]] = event["args"]["name"]
    for event in events:
        if event.get("ph") != "X":
            continue
        plane, line = planes[event["pid"]], lines[event["pid"], event["tid"]]
        if not line.startswith(_DERIVED) or not plane.startswith("/device"):
            continue
        stats = event.get("args", {})
        row = _row(
            event["name"],
            round(event["ts"] * 1e6),
            round(event["dur"] * 1e6),
            stats.get("group_id"),
            stats,
        )
        found.setdefault(_key(plane, line, event["tid"]), Counter())[row] += 1
    return found


def shown_by_us(path: Path) -> Lines:
    """The same of our own lines."""
    found: Lines = {}
    for plane in prepare(open_xspace(path.read_bytes())).planes:
        if plane.name == HOST_PLANE:
            continue
        for line in (*plane.lines, *plane.derived_lines):
            if line.event_count and line.name.startswith(_DERIVED):
                rows = _rows(line)
                resource = line.display_id or line.id & 0xFFFF_FFFF
                if rows:
                    found.setdefault(_key(plane.name, line.name, resource), Counter()).update(rows)
    return found


def _rows(line: PreparedLine) -> list[str]:
    columns, table = line.columns(), line.plane.event_metadata
    codes, steps = line.step_names()
    rows = []
    for event, row in enumerate(columns.metadata.tolist()):
        if not columns.duration_ps[event]:
            continue
        name = table.display_names[row] or table.names[row]
        if codes[event] >= 0:
            name = steps[codes[event]]
        group = int(line.group_id[event])
        rows.append(
            _row(
                name,
                int(columns.start_ps[event]),
                int(columns.duration_ps[event]),
                group if group >= 0 else None,
                {**table.stats(row), **line.event_stats(event)},
            )
        )
    return rows


def _differences(path: Path) -> list[str]:
    theirs, ours = shown_by_xprof(path), shown_by_us(path)
    found = []
    for key in sorted(theirs.keys() | ours.keys()):
        one, other = theirs.get(key, Counter()), ours.get(key, Counter())
        if one != other:
            found.append(f"{key}: only theirs {list(one - other)[:3]}")
            found.append(f"{key}: only ours {list(other - one)[:3]}")
    return found


PODS = {
    "tpu-v5e": (Pod("tpu-v5e", hosts=1, steps=3), 3),
    "tpu-v6e": (Pod("tpu-v6e", hosts=1, steps=2, seed=4, input_bound=0.3), 3),
    "gpu-h100": (Pod("gpu-h100", hosts=1, steps=3, seed=2), 10),
}


@pytest.mark.interop
@pytest.mark.parametrize("device", sorted(PODS))
def test_derived_lines_of_a_simulated_host_are_those_of_xprof(device: str, tmp_path: Path) -> None:
    pod, lines_of_a_device = PODS[device]
    for _ in write_pod(pod, tmp_path):
        pass
    (path,) = tmp_path.rglob("*.xplane.pb")
    assert _differences(path) == []
    derived = [key for key in shown_by_us(path) if key[0].endswith(":0") and key[1] != "Steps"]
    assert len(derived) == lines_of_a_device


CAPTURES = ("gpu_multi_worker", "mi300_conv08", "tpu_inference_2")


@pytest.mark.interop
@pytest.mark.parametrize("capture", CAPTURES)
def test_derived_lines_of_a_real_capture_are_those_of_xprof(
    capture: str, reference_dir: Path, tmp_path: Path
) -> None:
    source = sorted((reference_dir / "profiles" / capture).rglob("*.xplane.pb"))[0]
    # XProf writes beside the file.
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes())
    assert _differences(path) == []
    assert shown_by_us(path)
