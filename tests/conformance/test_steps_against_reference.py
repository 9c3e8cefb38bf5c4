"""Step times and breakdowns of the reference captures, against the reference's results."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podscope_analyzers import open_xspace
from podscope_analyzers.prepare import prepare
from podscope_analyzers.steps import StepDatabase, combine_step_databases, host_step_database
from podscope_analyzers.steps.event_types import GENERIC_GROUPS

CAPTURES = (
    "jax_2mb",
    "jax_mh4",
    "tf_input_bound",
    "tf_jit",
    "gpu_multi_worker",
    "mi300_conv08",
    "tpu_inference_2",
)
STEP_TABLE_GROUPS = {
    "deviceComputeTimeMs": "Device compute",
    "deviceToDeviceTimeMs": "Device to device",
    "deviceCollectivesTimeMs": "Device collective communication",
    "hostComputeTimeMs": "Host compute",
    "kernelLaunchTimeMs": "Kernel launch",
    "infeedTimeMs": "Input",
    "outfeedTimeMs": "Output",
    "compileTimeMs": "Compilation",
    "otherTimeMs": "All others",
}


def databases(reference_dir: Path, capture: str) -> list[StepDatabase]:
    files = sorted((reference_dir / "profiles" / capture).rglob("*.xplane.pb"))
    return [host_step_database(prepare(open_xspace(file.read_bytes()))) for file in files]


def answer(reference_dir: Path, capture: str, tool: str) -> Any:
    with gzip.open(reference_dir / "golden" / capture / f"{tool}.json.gz") as file:
        return json.load(file)


def group_ps(database: StepDatabase, row: int, group: str) -> int:
    types = dict(GENERIC_GROUPS)[group]
    return int(database.time_ps(*(kind.name.lower() for kind in types))[row])


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_core_of_every_step_agrees_with_the_pod_viewer(
    reference_dir: Path, capture: str
) -> None:
    ours = combine_step_databases(databases(reference_dir, capture), keep_incomplete=True)
    maps = answer(reference_dir, capture, "pod_viewer")["podStatsSequence"].get("podStatsMap", [])
    assert [int(step["stepNum"]) for step in maps] == ours.step_numbers.tolist()
    for index, step in enumerate(maps):
        rows = range(ours.row_offsets[index], ours.row_offsets[index + 1])
        records = {int(core): record for core, record in step["podStatsPerCore"].items()}
        assert [int(ours.core_id[row]) for row in rows] == sorted(records)
        for row in rows:
            record = records[int(ours.core_id[row])]
            assert ours.duration_ps[row] / 1e6 == pytest.approx(record["totalDurationUs"], rel=1e-9)
            for number, (group, _) in enumerate(GENERIC_GROUPS, start=1):
                expected = record["stepBreakdownUs"].get(str(number), 0.0)
                assert group_ps(ours, row, group) / 1e6 == pytest.approx(
                    expected, rel=1e-9, abs=1e-9
                ), (index, row, group)


@pytest.mark.parametrize("capture", CAPTURES)
def test_complete_steps_agree_with_the_input_pipeline_analyzer(
    reference_dir: Path, capture: str
) -> None:
    ours = combine_step_databases(databases(reference_dir, capture))
    table = next(
        table
        for table in answer(reference_dir, capture, "input_pipeline_analyzer")
        if any(column["id"] == "stepnum" for column in table["cols"])
    )
    columns = [column["id"] for column in table["cols"]]
    rows = np.flatnonzero(ours.core_id == 1)
    assert len(rows) == len(table["rows"])
    for row, expected in zip(rows, table["rows"], strict=True):
        cells = dict(zip(columns, (cell["v"] for cell in expected["c"]), strict=True))
        number = str(ours.step_numbers[ours.row_step[row]])
        assert (ours.row_name(int(row)) or number) == cells["stepnum"]
        assert ours.duration_ps[row] / 1e9 == pytest.approx(cells["stepTimeMs"], rel=1e-9)
        for column, group in STEP_TABLE_GROUPS.items():
            assert group_ps(ours, int(row), group) / 1e9 == pytest.approx(
                cells[column], rel=1e-9, abs=1e-12
            ), (number, column)
