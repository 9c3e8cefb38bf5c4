"""``podscope capture`` against a simulated pod in which everything goes wrong at once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from podscope_agent.simulator import Fault, Pod, serve
from podscope_protos.v1.xplane_pb2 import XSpace

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
FAULTS = {
    1: Fault("refuse"),
    2: Fault("busy", 1),
    3: Fault("empty"),
    4: Fault("corrupt"),
    5: Fault("reset"),
    6: Fault("slow", 400_000),
    7: Fault("busy"),
}
STATES: dict[int, tuple[str, int | None, str | None]] = {
    0: ("done", 1, None),
    1: ("failed", 2, "refused"),
    2: ("done", 2, None),
    3: ("empty", 1, "empty_trace"),
    4: ("failed", 2, "corrupt"),
    5: ("failed", 2, "reset"),
    6: ("done", 1, None),
    # Asked until its time was over, however often that was.
    7: ("failed", None, "busy"),
    8: ("done", 1, None),
}


def capture(addresses: tuple[str, ...], logdir: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "podscope", "capture", ",".join(addresses)]
    command += ["--duration", "300ms", "--attempts", "2", "--quorum", "any", "--delay", "500ms"]
    command += ["--timeout", "20s"]
    done = subprocess.run(
        [*command, "--logdir", str(logdir), "--json"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_every_host_ends_in_the_state_that_its_fault_gives(tmp_path: Path) -> None:
    pod = Pod("tpu-v5e", hosts=9, steps=4)
    with serve(pod, faults=FAULTS) as running:
        code, result = capture(running.addresses, tmp_path)
    assert code == 5
    found = {
        running.addresses.index(host["target"]): (
            host["state"],
            None if host["reason"] == "busy" else host["attempts"],
            (host["reason"] or "").partition(":")[0] or None,
        )
        for host in result["hosts"]
    }
    assert found == STATES
    stored = {
        XSpace.FromString(path.read_bytes()).hostnames[0]
        for path in tmp_path.glob("plugins/profile/*/*.xplane.pb")
    }
    assert stored == {pod.hostname(i) for i, (state, _, _) in STATES.items() if state == "done"}


def test_a_healthy_pod_is_captured_whole_and_on_the_same_steps(tmp_path: Path) -> None:
    pod = Pod("tpu-v5e", hosts=6, steps=4, slow_host=3)
    with serve(pod) as running:
        code, result = capture(running.addresses, tmp_path)
    assert (code, result["state"]) == (0, "complete")
    steps = []
    for path in tmp_path.glob("plugins/profile/*/*.xplane.pb"):
        space = XSpace.FromString(path.read_bytes())
        plane = next(plane for plane in space.planes if plane.name == "/device:TPU:0")
        line = next(line for line in plane.lines if line.name == "Steps")
        steps.append(tuple(plane.event_metadata[e.metadata_id].name for e in line.events))
    assert len(steps) == 6
    assert len(set(steps)) == 1, "hosts that start together see the same steps"
