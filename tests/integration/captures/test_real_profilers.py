"""The fan-out against the profiler servers of JAX and TensorFlow; XProf reads what it stores."""

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.xspace import open_xspace, verify
from podscope_collector.captures.diagnosis import Diagnosis, Verdict
from podscope_collector.captures.examination import diagnose
from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.outcome import CaptureOutcome, HostUpdate
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.states import CaptureState, HostState, ReasonCode
from podscope_collector.storage import Storage

pytestmark = [pytest.mark.interop, pytest.mark.slow]

_JAX = """
import sys, time, jax, jax.numpy as jnp
jax.profiler.start_server(int(sys.argv[1]))
step = jax.jit(lambda x: jnp.tanh(x @ x) / 10)
x = step(jnp.ones((64, 64))).block_until_ready()
def load(i):
    return i
print("ready", flush=True)
for number in range(10**9):
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        for i in range(500):
            load(i)
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
_LIBRARY = """
import sys, time
from podscope import profiler
server = profiler.server.start(int(sys.argv[1]))
print("ready", flush=True)
for number in range(10**9):
    with profiler.StepTrace("train", step_num=number):
        time.sleep(0.005)
"""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextlib.contextmanager
def jobs(*scripts: str, ports: list[int] | None = None) -> Iterator[list[int]]:
    """Run training scripts that serve their profiler; yields their ports when all work."""
    ports = free_ports(len(scripts)) if ports is None else ports
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
    """Four JAX processes and, the last, one of TensorFlow."""
    pytest.importorskip("jax")
    with jobs(_JAX, _JAX, _JAX, _JAX, _TENSORFLOW) as found:
        yield found


# Two of those in ``ports``.
each_framework = pytest.mark.parametrize(
    "server", [pytest.param(1, id="jax"), pytest.param(4, id="tensorflow")]
)


async def capture(
    root: Path,
    targets: list[str],
    duration_ms: int,
    attempts: int = 3,
    on_update: Callable[[HostUpdate], None] = lambda update: None,
    **fields: Any,
) -> CaptureOutcome:
    storage = Storage(str(root))
    request = parse_request(
        {"targets": targets, "duration_ms": duration_ms, "attempts": attempts} | fields
    )
    session = await asyncio.to_thread(storage.new_session)
    return await run_capture(request, request.parsed_targets().targets, storage, session, on_update)


def test_jax_and_tensorflow_are_captured_together_and_a_dead_target_costs_nothing(
    ports: list[int], tmp_path: Path
) -> None:
    (dead,) = free_ports(1)
    targets = [f"localhost:{port}" for port in [*ports, dead]]
    outcome = asyncio.run(capture(tmp_path, targets, 500, attempts=2))
    assert [host.state for host in outcome.hosts] == ["done"] * 5 + ["failed"]
    assert outcome.hosts[5].reason is ReasonCode.REFUSED
    assert outcome.state is CaptureState.PARTIAL
    storage = Storage(str(tmp_path))
    starts = []
    for host, steps in zip(outcome.hosts, ["train"] * 5, strict=False):
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
        first = asyncio.ensure_future(capture(tmp_path, target, 3000))
        await asyncio.sleep(1)
        return await asyncio.gather(first, capture(tmp_path, target, 1500))

    first, second = asyncio.run(both())
    assert first.session != second.session
    assert (first.hosts[0].state, first.hosts[0].attempts) == (HostState.DONE, 1)
    assert second.hosts[0].state is HostState.DONE
    assert second.hosts[0].attempts > 1


def test_the_doctor_tells_jax_from_tensorflow_and_a_busy_server_from_a_free_one(
    ports: list[int], tmp_path: Path
) -> None:
    targets = [f"127.0.0.1:{port}" for port in (ports[0], ports[4])]

    async def look(*, probe: bool) -> list[Diagnosis]:
        found = parse_request({"targets": targets}).parsed_targets().targets
        return await diagnose(found, probe=probe)

    async def meanwhile() -> list[Diagnosis]:
        begun: set[str] = set()
        have_begun = asyncio.Event()

        def note(update: HostUpdate) -> None:
            if update.state is HostState.CAPTURING:
                begun.add(update.target)
            if len(begun) == len(targets):
                have_begun.set()

        running = asyncio.ensure_future(capture(tmp_path, targets, 15_000, on_update=note))
        async with asyncio.timeout(60):
            await have_begun.wait()
        found: list[Diagnosis] = []
        # Their requests are sent then; when a busy machine opens the sessions is its own matter.
        while not running.done() and {one.verdict for one in found} != {Verdict.BUSY}:
            found = await look(probe=False)
        assert (await running).state is CaptureState.COMPLETE
        return found

    busy = asyncio.run(meanwhile())
    assert [found.verdict for found in busy] == [Verdict.BUSY, Verdict.BUSY]
    free = asyncio.run(look(probe=False))
    assert [found.verdict for found in free] == [Verdict.READY, Verdict.READY]
    probed = asyncio.run(look(probe=True))
    assert [str(found.kind) for found in probed] == ["JAX", "TensorFlow"]
    assert [found.verdict for found in probed] == [Verdict.READY, Verdict.READY]


@each_framework
def test_a_host_that_stays_busy_fails_as_busy(
    ports: list[int], tmp_path: Path, server: int
) -> None:
    target = [f"localhost:{ports[server]}"]

    async def both() -> tuple[CaptureOutcome, CaptureOutcome]:
        first = asyncio.ensure_future(capture(tmp_path, target, 3000))
        await asyncio.sleep(1)
        return await asyncio.gather(first, capture(tmp_path, target, 100, attempts=1))

    first, second = asyncio.run(both())
    assert first.state is CaptureState.COMPLETE
    assert second.hosts[0].reason is ReasonCode.BUSY
    assert second.hosts[0].grpc_code == "INTERNAL"


@each_framework
def test_a_cancelled_capture_frees_the_server_at_once(
    ports: list[int], tmp_path: Path, server: int
) -> None:
    target = [f"localhost:{ports[server]}"]

    async def scenario() -> CaptureOutcome:
        first = asyncio.ensure_future(capture(tmp_path, target, 60_000))
        await asyncio.sleep(0.7)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.sleep(0.3)
        return await capture(tmp_path, target, 300, attempts=1)

    assert asyncio.run(scenario()).state is CaptureState.COMPLETE


def test_hosts_that_start_together_are_told_one_instant(ports: list[int], tmp_path: Path) -> None:
    targets = [f"127.0.0.1:{port}" for port in ports]
    outcome = asyncio.run(capture(tmp_path, targets, 2000, synchronized=True, delay_ms=3000))
    assert outcome.state is CaptureState.COMPLETE
    alignment = outcome.alignment
    assert alignment is not None
    assert alignment.hosts == 5
    # One machine has one clock: what is left is how late a busy machine wakes its processes.
    assert alignment.skew_ns < 2_000_000_000
    assert alignment.outside == ()


def test_a_profile_of_more_than_4_mib_arrives_whole(ports: list[int], tmp_path: Path) -> None:
    target = [f"127.0.0.1:{ports[0]}"]
    sizes = []
    for duration_ms in (3_000, 12_000, 40_000):
        outcome = asyncio.run(capture(tmp_path, target, duration_ms, python_tracer_level=1))
        (host,) = outcome.hosts
        assert host.state is HostState.DONE, host.message
        content = (tmp_path / str(host.file)).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (host.bytes, host.sha256)
        assert verify(content).events > 0
        sizes.append(host.bytes)
        if host.bytes > 4 << 20:
            return
    pytest.fail(f"no profile was large enough: {sizes}")


@each_framework
def test_a_window_that_the_timeout_cuts_is_a_deadline_and_frees_the_server(
    ports: list[int], tmp_path: Path, server: int
) -> None:
    target = [f"127.0.0.1:{ports[server]}"]
    # A stock server sleeps until the start and gives its profile only after the window.
    outcome = asyncio.run(capture(tmp_path, target, 1_000, attempts=1, timeout_ms=1))
    assert outcome.hosts[0].reason is ReasonCode.DEADLINE
    assert outcome.hosts[0].grpc_code == "DEADLINE_EXCEEDED"
    again = asyncio.run(capture(tmp_path, target, 200))
    assert again.state is CaptureState.COMPLETE


def test_stock_servers_are_reached_over_ipv6(ports: list[int], tmp_path: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_INET6)) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    targets = [f"[::1]:{ports[1]}", f"[::1]:{ports[4]}"]
    outcome = asyncio.run(capture(tmp_path, targets, 300))
    assert [host.state for host in outcome.hosts] == ["done", "done"]
    assert len({host.file for host in outcome.hosts}) == 2


def test_two_processes_on_one_port_give_one_of_their_profiles_each_time(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (port,) = free_ports(1)
    with jobs(_JAX, _JAX, ports=[port, port]):
        outcome = asyncio.run(capture(tmp_path, [f"127.0.0.1:{port}"], 300))
        assert outcome.state is CaptureState.COMPLETE
        found = subprocess.run(
            [sys.executable, "-m", "podscope", "doctor", f"127.0.0.1:{port}", "--json"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
    (told,) = json.loads(found.stdout)["targets"]
    checks = {check["name"]: check for check in told["checks"]}
    assert any("2 processes share port" in check["detail"] for check in checks.values()), checks


def test_the_librarys_client_and_the_collector_store_the_same_of_a_server(
    ports: list[int], tmp_path: Path
) -> None:
    from podscope import profiler

    address = f"127.0.0.1:{ports[3]}"
    (result,) = profiler.client.trace(address, tmp_path / "client", 300)
    outcome = asyncio.run(capture(tmp_path / "collector", [address], 300))
    (by_client,) = Storage(str(tmp_path / "client")).list_sessions()
    assert result.address == address
    spaces = [
        open_xspace(Storage(str(tmp_path / root)).read_xspace(session, outcome.hosts[0].host))
        for root, session in (("client", by_client), ("collector", outcome.session))
    ]
    planes = [sorted(plane.name for plane in space.planes) for space in spaces]
    assert planes[0] == planes[1]
    assert "/host:CPU" in planes[0]


def test_the_librarys_own_server_is_captured_by_the_collector(tmp_path: Path) -> None:
    with jobs(_LIBRARY) as (port,):
        outcome = asyncio.run(capture(tmp_path, [f"127.0.0.1:{port}"], 400))
    assert outcome.state is CaptureState.COMPLETE, outcome.hosts[0].message
    space = open_xspace((tmp_path / str(outcome.hosts[0].file)).read_bytes())
    plane = space.plane("/host:CPU")
    assert plane is not None
    assert any("train" in name for name in plane.event_metadata.names)
