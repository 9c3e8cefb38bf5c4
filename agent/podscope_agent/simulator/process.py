"""A served pod in a process of its own, for callers without an event loop."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from podscope_agent.errors import SimulationError
from podscope_agent.simulator.faults import Fault
from podscope_agent.simulator.pod import Pod

_STOP_SECONDS = 10


@dataclass(frozen=True)
class RunningPod:
    """A pod that is being served.

    Attributes:
        addresses: ``host:port`` of every host, by index.
        hostnames: Names that the traces carry, by index.
        process_id: The serving process.
    """

    addresses: tuple[str, ...]
    hostnames: tuple[str, ...]
    process_id: int


@contextlib.contextmanager
def serve(
    pod: Pod,
    host: str = "127.0.0.1",
    port_base: int = 0,
    faults: Mapping[int, Fault] | None = None,
    truth: Path | None = None,
    journal: Path | None = None,
) -> Iterator[RunningPod]:
    """Serve a pod from a child process for as long as the block lasts.

    Args:
        pod: What to simulate; its step 0 starts when the child does.
        host: Address to listen on.
        port_base: Port of host 0; 0 takes free ports.
        faults: Host index -> what goes wrong there.
        truth: File that gets what was planted.
        journal: File that gets what was asked of the hosts.

    Raises:
        SimulationError: The child could not serve; the message is the child's.
    """
    command = [sys.executable, "-m", "podscope", "simulate", *_arguments(pod, faults or {})]
    command += ["--host", host, "--port-base", str(port_base), "--json"]
    command += [] if truth is None else ["--truth", str(truth)]
    command += [] if journal is None else ["--journal", str(journal)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(  # noqa: S603 (our own command line)
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as child:
        try:
            assert child.stdout is not None and child.stderr is not None  # noqa: S101, PT018 - for the type checker
            line = child.stdout.readline()
            if not line:
                raise SimulationError(child.stderr.read().strip().removeprefix("podscope: "))
            hosts = json.loads(line)["hosts"]
            yield RunningPod(
                tuple(served["address"] for served in hosts),
                tuple(served["hostname"] for served in hosts),
                child.pid,
            )
        finally:
            child.terminate()
            try:
                child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()


def _arguments(pod: Pod, faults: Mapping[int, Fault]) -> list[str]:
    arguments = ["--hosts", str(pod.hosts), "--device", pod.device, "--steps", str(pod.steps)]
    arguments += ["--seed", str(pod.seed), "--input-bound", str(pod.input_bound)]
    arguments += ["--noise", str(pod.noise), "--clock-skew-ms", str(pod.clock_skew_ms)]
    if pod.events is not None:
        arguments += ["--events", str(pod.events)]
    if pod.slow_host is not None:
        arguments += ["--slow-host", str(pod.slow_host), "--slow-factor", str(pod.slow_factor)]
        arguments += ["--slow-part", pod.slow_part]
    if pod.host_bytes is not None:
        arguments += ["--host-bytes", str(pod.host_bytes)]
    for index, fault in faults.items():
        number = "" if fault.number is None else f":{fault.number}"
        arguments += ["--fault", f"{index}:{fault.kind}{number}"]
    return arguments
