"""Steps of plain loops and of Keras."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podscope import profiler
from podscope.profiler import step_times
from podscope.profiler.garbage import PAUSE_NAME
from podscope.profiler.keras import batch_range
from podscope_protos.v1.xplane_pb2 import XSpace

NO_PYTHON = profiler.ProfilerOptions(python_tracer_level=0)


def recorded(logdir: Path) -> list[tuple[str, int | None]]:
    """Name and step number of the spans, in the order in which they began."""
    [file] = logdir.glob("plugins/profile/*/*.xplane.pb")
    space = XSpace.FromString(file.read_bytes())
    plane = next(plane for plane in space.planes if plane.name == "/host:CPU")
    found = []
    for line in plane.lines:
        if line.name == "_counters_":
            continue
        for event in line.events:
            numbers = [
                stat.int64_value
                for stat in event.stats
                if plane.stat_metadata[stat.metadata_id].name == "step_num"
            ]
            name = plane.event_metadata[event.metadata_id].name
            # When the interpreter collects is its own affair.
            if name != PAUSE_NAME:
                found.append((name, numbers[0] if numbers else None))
    return found


def test_a_step_is_the_loading_and_the_body_and_there_is_none_without_a_batch(
    tmp_path: Path,
) -> None:
    def batches() -> Iterator[int]:
        for number in range(3):
            with profiler.Trace("load"):
                pass
            yield number

    seen = []
    with profiler.Profile(tmp_path, NO_PYTHON):
        for batch in profiler.steps(batches(), first=10):
            with profiler.Trace("body"):
                seen.append(batch)
    assert seen == [0, 1, 2]
    assert recorded(tmp_path) == [
        (name, number)
        for step in (10, 11, 12)
        for name, number in (("train", step), ("load", None), ("body", None))
    ]


def test_a_loop_that_is_left_ends_its_step(tmp_path: Path) -> None:
    with profiler.Profile(tmp_path, NO_PYTHON):
        for batch in profiler.steps(range(5), name="eval"):
            if batch == 1:
                break
        with profiler.Trace("after"):
            pass
    assert recorded(tmp_path) == [("eval", 0), ("eval", 1), ("after", None)]


def test_the_time_of_a_step_is_the_median_from_start_to_start() -> None:
    moments = [0.0, 60.0, 60.25, 60.5, 60.75, 70.0, 70.25]
    steps = step_times.StepTimes(iter(moments).__next__)
    told = []
    for _ in moments:
        steps.begin()
        told.append(steps.seconds)
    assert told == [None, 60.0, 30.125, 0.25, 0.25, 0.25, 0.25]
    assert steps.count == 7


def test_a_loop_counts_its_batches_as_steps_whether_a_capture_runs_or_not() -> None:
    before = step_times.of_process.count
    assert list(profiler.steps(range(3))) == [0, 1, 2]
    with profiler.StepTrace("train", 3):
        pass
    assert step_times.of_process.count == before + 4
    assert step_times.of_process.seconds is not None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, (5, 5)),
        ((10, 20), (10, 20)),
        ([10, 20], (10, 20)),
        ("10,20", (10, 20)),
        (0, (0, 0)),
        ((0, 3), (1, 3)),
    ],
)
def test_the_forms_of_profile_batch(
    given: int | str | tuple[int, int], expected: tuple[int, int]
) -> None:
    assert batch_range(given) == expected


@pytest.mark.parametrize("given", ["5", "", "a,b", "1,2,3", (3, 1), -1, (1,), ("x", "y"), None])
def test_what_is_no_batch_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="profile_batch must be"):
        batch_range(given)


def test_keras_is_asked_for_by_name() -> None:
    code = "from podscope import profiler; profiler.keras_callback('x', 1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "import keras before" in done.stderr


KERAS = """
import sys
from pathlib import Path
from typing import Any
import keras, numpy as np
from podscope import profiler
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(loss="mse", optimizer="sgd")
folder = Path(sys.argv[1])
callbacks = [
    profiler.keras_callback(folder / "range", "3,5"),
    profiler.keras_callback(folder / "one", 7),
    profiler.keras_callback(folder / "busy", (3, 4)),
    profiler.keras_callback(folder / "late", (9, 100)),
    profiler.keras_callback(folder / "never", 0),
]
# Four batches an epoch: the count goes on over epochs.
model.fit(np.ones((32, 4)), np.ones((32, 1)), batch_size=8, epochs=3, verbose=0,
          callbacks=callbacks)
"""


@pytest.mark.interop
@pytest.mark.slow
def test_keras_trains_on_whatever_becomes_of_the_profile(tmp_path: Path) -> None:
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed")
    done = subprocess.run(
        [sys.executable, "-c", KERAS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    batches = {
        folder: [number for name, number in recorded(tmp_path / folder) if name == "Profiled batch"]
        for folder in ("range", "one", "late")
    }
    assert batches == {"range": [3, 4, 5], "one": [7], "late": [9, 10, 11, 12]}
    assert "batch 3 is not profiled: another profiler is running" in done.stderr
    assert not (tmp_path / "busy").exists()
    assert not (tmp_path / "never").exists()
