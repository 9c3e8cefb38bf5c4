"""The fan-out against the profiler servers of JAX and TensorFlow; XProf reads what it stores."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podscope_analyzers.xspace import open_xspace
from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.outcome import CaptureOutcome
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.states import CaptureState, HostState, ReasonCode
from podscope_collector.storage import Storage

pytestmark = [pytest.mark.interop, pytest.mark.slow]

_JAX = """
import sys, time, jax, jax.numpy as jnp
jax.profiler.start_server(int(sys.argv[1]))
step = jax.jit(lambda x: jnp.tanh(x @ x) / 10)
x = step(jnp.ones((64, 64))).block_until_ready()
print("ready", flush=True)
for number in range(10**9):
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        x = step(x).block_until_ready()
    time.sleep(0.005)
"""
_TENSORFLOW = """
import sys, time
import tensorflow as tf
tf.profiler.experimental.server.start(int(sys.argv[1]))
step = tf.function(lambda x: tf.tanh(x @ x) / 10)
x = step(tf.ones((64, 64)))
print("ready", flush=True)
for number in range(10**9):
    with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
        x = step(x)
    time.sleep(0.005)
"""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextlib.contextmanager
def jobs(*scripts: str) -> Iterator[list[int]]:
    """Run training scripts that serve their profiler; yields their ports when all work."""
    ports = free_ports(len(scripts))
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        for script, port in zip(scripts, ports, strict=True)
    ]
    try:
        for job in running:
            assert job.stdout is not None
            assert job.stdout.readline() == "ready\n"
        yield ports
    finally:
        for job in running:
            job.kill()
            job.communicate()


@pytest.fixture(scope="module")
def ports() -> Iterator[list[int]]:
    """Two JAX processes and one of TensorFlow."""
    pytest.importorskip("jax")
    with jobs(_JAX, _JAX, _TENSORFLOW) as found:
        yield found


async def capture(
    root: Path, targets: list[str], duration_ms: int, attempts: int = 3
) -> CaptureOutcome:
    storage = Storage(str(root))
    request = parse_request({"targets": targets, "duration_ms": duration_ms, "attempts": attempts})
    session = await asyncio.to_thread(storage.new_session)
    return await run_capture(
        request, request.parsed_targets(), storage, session, lambda update: None
    )


def test_jax_and_tensorflow_are_captured_together_and_a_dead_target_costs_nothing(
    ports: list[int], tmp_path: Path
) -> None:
    (dead,) = free_ports(1)
    targets = [f"localhost:{port}" for port in [*ports, dead]]
    outcome = asyncio.run(capture(tmp_path, targets, 500, attempts=2))
    assert [host.state for host in outcome.hosts] == ["done", "done", "done", "failed"]
    assert outcome.hosts[3].reason is ReasonCode.REFUSED
    assert outcome.state is CaptureState.PARTIAL
    storage = Storage(str(tmp_path))
    starts = []
    for host, steps in zip(outcome.hosts, ("train", "train", "train"), strict=False):
        space = open_xspace(storage.read_xspace(outcome.session, host.host))
        plane = space.plane("/host:CPU")
        assert plane is not None
        assert steps in plane.event_metadata.names
        environment = space.plane("Task Environment")
        assert environment is not None
        starts.append(int(environment.stats["profile_start_time"]))
    assert max(starts) - min(starts) < 500_000_000, "the windows overlap"


def test_xprof_opens_what_is_stored(ports: list[int], tmp_path: Path) -> None:
    raw_to_tool_data = pytest.importorskip("xprof.convert.raw_to_tool_data")
    targets = [f"localhost:{port}" for port in ports]
    outcome = asyncio.run(capture(tmp_path, targets, 500))
    assert outcome.state is CaptureState.COMPLETE
    files = [str(tmp_path / str(host.file)) for host in outcome.hosts]
    for file in files:
        tools = raw_to_tool_data.xspace_to_tool_names([file])
        assert "overview_page" in tools
    content, _ = raw_to_tool_data.xspace_to_tool_data(files[:2], "overview_page", {})
    step_table = json.loads(content)[1]
    assert len(step_table["rows"]) >= 5, "XProf finds the steps of both hosts"


def test_a_second_capture_meanwhile_waits_until_the_first_has_ended(
    ports: list[int], tmp_path: Path
) -> None:
    target = [f"localhost:{ports[0]}"]

    async def both() -> tuple[CaptureOutcome, CaptureOutcome]:
        first = asyncio.ensure_future(capture(tmp_path, target, 1500))
        await asyncio.sleep(0.5)
        return await asyncio.gather(first, capture(tmp_path, target, 1500))

    first, second = asyncio.run(both())
    assert first.session != second.session
    assert (first.hosts[0].state, first.hosts[0].attempts) == (HostState.DONE, 1)
    assert second.hosts[0].state is HostState.DONE
    assert second.hosts[0].attempts > 1


def test_a_host_that_stays_busy_fails_as_busy(ports: list[int], tmp_path: Path) -> None:
    target = [f"localhost:{ports[0]}"]

    async def both() -> tuple[CaptureOutcome, CaptureOutcome]:
        first = asyncio.ensure_future(capture(tmp_path, target, 1500))
        await asyncio.sleep(0.5)
        return await asyncio.gather(first, capture(tmp_path, target, 100, attempts=1))

    first, second = asyncio.run(both())
    assert first.state is CaptureState.COMPLETE
    assert second.hosts[0].reason is ReasonCode.BUSY
    assert second.hosts[0].grpc_code == "INTERNAL"


def test_a_cancelled_capture_frees_the_server_at_once(ports: list[int], tmp_path: Path) -> None:
    target = [f"localhost:{ports[1]}"]

    async def scenario() -> CaptureOutcome:
        first = asyncio.ensure_future(capture(tmp_path, target, 60_000))
        await asyncio.sleep(0.7)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.sleep(0.3)
        return await capture(tmp_path, target, 300, attempts=1)

    assert asyncio.run(scenario()).state is CaptureState.COMPLETE
