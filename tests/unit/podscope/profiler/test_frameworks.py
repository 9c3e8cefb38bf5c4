"""The frameworks' own sessions beside the library's, in processes of their own."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from podscope_protos.v1.xplane_pb2 import XLine, XPlane, XSpace

pytestmark = [pytest.mark.interop, pytest.mark.slow]

_LOADED = {
    "jax": """
import jax, jax.numpy as jnp
work = jax.jit(lambda: jnp.ones((64, 64)) @ jnp.ones((64, 64)))
work()
""",
    "tensorflow": """
import tensorflow as tf
work = lambda: tf.constant(1) + 2
work()
""",
    "torch": """
import torch
ones = torch.ones(64, 64, requires_grad=True)
work = lambda: (ones @ ones).sum().backward()
work()
""",
}
_OP = {"jax": "PjitFunction(<lambda>)", "tensorflow": "EagerExecute", "torch": "aten::mm"}

STEPS = """
import sys, threading, time
from pathlib import Path
from podscope import profiler
folder = Path(sys.argv[1])
def steps(first):
    for number in range(first, first + 5):
        with profiler.StepTrace("train", step_num=number):
            work()
"""
LOCAL = """
with profiler.Profile(folder):
    worker = threading.Thread(target=steps, args=(100,), name="second")
    worker.start(); worker.join()
    steps(0)
"""
REMOTE = """
port = profiler.server.start(0)
worker = threading.Thread(target=profiler.client.trace, args=(f"127.0.0.1:{port}", folder, 1500))
worker.start()
first = 0
while worker.is_alive():
    steps(first)
    first += 5
    # A hundred thousand steps show no more than some hundred, and take minutes to write down.
    time.sleep(0.02)
worker.join()
profiler.server.stop()
"""


def run(framework: str, code: str, folder: Path) -> tuple[XSpace, str]:
    """The profile that a process wrote, and what it printed."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", _LOADED[framework] + STEPS + code, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    [file] = folder.glob("plugins/profile/*/*.xplane.pb")
    return XSpace.FromString(file.read_bytes()), done.stdout


def host_plane(space: XSpace) -> XPlane:
    [plane] = [plane for plane in space.planes if plane.name == "/host:CPU"]
    return plane


def named(plane: XPlane, line: XLine, name: str) -> list[tuple[int, int]]:
    """When the events of a name were, in picoseconds."""
    return [
        (event.offset_ps, event.offset_ps + event.duration_ps)
        for event in line.events
        if plane.event_metadata[event.metadata_id].name == name
    ]


def lines_with_steps(space: XSpace) -> list[XLine]:
    plane = host_plane(space)
    return [line for line in plane.lines if named(plane, line, "train")]


def nested(space: XSpace, line: XLine, framework: str) -> int:
    """How many steps of a line have an operation of the framework inside."""
    plane = host_plane(space)
    ops = named(plane, line, _OP[framework])
    return sum(
        any(begin <= op_begin and op_end <= end for op_begin, op_end in ops)
        for begin, end in named(plane, line, "train")
    )


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_a_local_capture_nests_the_frameworks_events_in_our_steps(
    framework: str, tmp_path: Path
) -> None:
    space, _ = run(framework, LOCAL, tmp_path)
    assert [text for text in space.warnings if framework in text.lower()] == []
    first, second = lines_with_steps(space)
    assert nested(space, first, framework) == nested(space, second, framework) == 5
    plane = host_plane(space)
    assert "podscope thread" not in {kept.name for kept in plane.event_metadata.values()}
    for line in (first, second):
        offsets = [(event.offset_ps, -event.duration_ps) for event in line.events]
        assert offsets == sorted(offsets)


@pytest.mark.parametrize("framework", ["jax", "tensorflow", "torch"])
def test_a_remote_capture_runs_the_frameworks_session_too(framework: str, tmp_path: Path) -> None:
    space, _ = run(framework, REMOTE, tmp_path)
    [line] = lines_with_steps(space)
    steps = named(host_plane(space), line, "train")
    # The first may have begun before the framework's session was ready.
    assert nested(space, line, framework) >= len(steps) - 2 > 0


def test_jax_loses_no_programs_to_the_join(tmp_path: Path) -> None:
    space, _ = run("jax", LOCAL, tmp_path)
    [metadata] = [plane for plane in space.planes if plane.name == "/host:metadata"]
    assert metadata.event_metadata
    [task] = [plane for plane in space.planes if plane.name == "Task Environment"]
    names = {kept.name for kept in task.stat_metadata.values()}
    assert {"profile_start_time", "profile_stop_time", "profile_options"} <= names


JAX_BUSY = """
import json
jax.profiler.start_trace(str(folder / "job"))
with profiler.Profile(folder):
    steps(0)
jax.profiler.stop_trace()
written = [str(file) for file in (folder / "job").rglob("*.xplane.pb")]
print(json.dumps(len(written)))
"""

JAX_REFUSED = """
refusals = []
with profiler.Profile(folder):
    for attempt in (lambda: jax.profiler.start_trace(str(folder / "job")), jax.profiler.stop_trace):
        try:
            attempt()
        except RuntimeError as error:
            refusals.append(str(error).split(".")[0])
    steps(0)
jax.profiler.start_trace(str(folder / "job"))
steps(0)
jax.profiler.stop_trace()
import json
print(json.dumps(refusals))
"""

TENSORFLOW_BUSY = """
import json
tf.profiler.experimental.start(str(folder / "job"))
with profiler.Profile(folder):
    steps(0)
tf.profiler.experimental.stop()
print(json.dumps(len([str(file) for file in (folder / "job").rglob("*.xplane.pb")])))
"""

TENSORFLOW_REFUSED = """
refusals = []
start, stop = tf.profiler.experimental.start, tf.profiler.experimental.stop
with profiler.Profile(folder):
    for attempt in (lambda: start(str(folder / "job")), stop):
        try:
            attempt()
        except tf.errors.OpError as error:
            refusals.append(type(error).__name__)
    steps(0)
tf.profiler.experimental.start(str(folder / "job"))
steps(0)
tf.profiler.experimental.stop()
import json
print(json.dumps(refusals))
"""

TORCH_BUSY = """
import json
job = torch.profiler.profile()
job.start()
with profiler.Profile(folder):
    steps(0)
job.stop()
print(json.dumps(int(any(event.name == "aten::mm" for event in job.events()))))
"""


@pytest.mark.parametrize(
    ("framework", "code"),
    [("jax", JAX_BUSY), ("tensorflow", TENSORFLOW_BUSY), ("torch", TORCH_BUSY)],
)
def test_a_program_that_profiles_itself_keeps_its_profile_and_we_keep_our_part(
    framework: str, code: str, tmp_path: Path
) -> None:
    space, printed = run(framework, code, tmp_path)
    assert json.loads(printed.splitlines()[-1]) == 1
    [warning] = [text for text in space.warnings if "part is missing" in text]
    assert warning.lower().startswith({"torch": "pytorch"}.get(framework, framework))
    assert len(named(host_plane(space), lines_with_steps(space)[0], "train")) == 5


@pytest.mark.parametrize(
    ("framework", "code", "refusals"),
    [
        ("jax", JAX_REFUSED, ["Profile has already been started", "No profile started"]),
        ("tensorflow", TENSORFLOW_REFUSED, ["AlreadyExistsError", "UnavailableError"]),
    ],
)
def test_a_program_that_starts_during_our_capture_is_refused_and_works_after(
    framework: str, code: str, refusals: list[str], tmp_path: Path
) -> None:
    """Stock servers leave such a program unable to profile itself ever again."""
    space, printed = run(framework, code, tmp_path)
    assert json.loads(printed.splitlines()[-1]) == refusals
    assert nested(space, lines_with_steps(space)[0], framework) == 5
    assert len(list((tmp_path / "job").rglob("*.xplane.pb"))) == 1
