"""A TensorFlow from before servers could send their profile: they write it where they are told."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tests.integration import object_server
from tests.integration.captures.test_real_profilers import free_ports

from podscope_analyzers.xspace import verify
from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.outcome import CaptureOutcome
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.states import HostState
from podscope_collector.storage import Storage
from podscope_protos.methods import PROFILE
from podscope_protos.v1 import profiler_service_pb2 as wire

# The last Python that TensorFlow 2.15 runs on, and the next that a TensorFlow of that age has.
_INSTALLING_S = 600
_INSTALLED = {"3.11": "tensorflow-cpu==2.15.1", "3.12": "tensorflow-cpu==2.16.2"}

pytestmark = [pytest.mark.interop, pytest.mark.slow]

_SERVER = """
import sys, time
import tensorflow as tf
tf.profiler.experimental.server.start(int(sys.argv[1]))
step = tf.function(lambda x: tf.tanh(x @ x) / 10)
x = step(tf.ones((64, 64)))
print("ready", flush=True)
while True:
    x = step(x)
    time.sleep(0.005)
"""


@pytest.fixture(scope="module")
def old_python() -> Iterator[str]:
    """A Python with a TensorFlow from before servers knew ``emit_xspace``.

    ``PODSCOPE_OLD_TENSORFLOW`` names one that is there; else one is installed for the tests, where
    the package registry has it: what a registry keeps is no property of this project.
    """
    named = os.environ.get("PODSCOPE_OLD_TENSORFLOW")
    if named:
        yield named
        return
    uv = [sys.executable, "-m", "uv"]
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    others = (str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.1[12]*/bin")))
    kept["PATH"] = os.pathsep.join([kept.get("PATH", ""), *others])
    # Not pytest's own folder, which outlives the tests: this one has a gigabyte.
    with tempfile.TemporaryDirectory() as folder:
        python = str(Path(folder) / "bin" / "python")
        told = ""
        for version, tensorflow in _INSTALLED.items():
            make = [*uv, "venv", "--quiet", "--clear", "--no-python-downloads", "--no-project"]
            install = [*uv, "pip", "install", "--quiet", "--python", python, tensorflow]
            for command in ([*make, "--python", version, folder], install):
                try:
                    done = subprocess.run(
                        command,
                        capture_output=True,
                        text=True,
                        check=False,
                        env=kept,
                        timeout=_INSTALLING_S,
                    )
                except subprocess.TimeoutExpired:
                    told = f"not within {_INSTALLING_S} s"
                    break
                if done.returncode:
                    told = (done.stderr.strip() or "failed").splitlines()[-1]
                    break
            else:
                yield python
                return
        pytest.skip(f"an old TensorFlow cannot be installed here: {told[:160]}")


@pytest.fixture(scope="module")
def address(old_python: str) -> Iterator[str]:
    (port,) = free_ports(1)
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        [old_python, "-c", _SERVER, str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=kept,
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()


def captured(address: str, root: str) -> tuple[Storage, CaptureOutcome]:
    storage = Storage(root)
    request = parse_request({"targets": address, "duration_ms": 500, "timeout_ms": 120_000})
    targets = request.parsed_targets().targets
    session = storage.new_session()
    return storage, asyncio.run(
        run_capture(request, targets, storage, session, lambda update: None)
    )


def test_it_is_a_server_that_ignores_the_wish_and_sends_nothing(
    address: str, tmp_path: Path
) -> None:
    # Else the other tests would show nothing.
    request = wire.ProfileRequest(
        opts=wire.ProfileOptions(version=1, duration_ms=300, host_tracer_level=2),
        emit_xspace=True,
        repository_root=str(tmp_path),
        session_id="s",
        host_name="h",
    )
    with grpc.insecure_channel(address, options=(("grpc.enable_http_proxy", 0),)) as channel:
        call = channel.unary_unary(PROFILE, request_serializer=None, response_deserializer=None)
        answer = call(request.SerializeToString(), timeout=120)
    response = wire.ProfileResponse.FromString(answer)
    assert not response.xspace
    assert not response.tool_data
    assert (tmp_path / "s" / "h.xplane.pb").stat().st_size > 0


def test_what_it_wrote_to_the_shared_folder_is_picked_up(address: str, tmp_path: Path) -> None:
    began = time.time()
    storage, outcome = captured(address, str(tmp_path))
    (host,) = outcome.hosts
    assert (host.state, host.reason) == (HostState.DONE, None)
    assert storage.list_hosts(outcome.session) == [host.host]
    stored = storage.stat_xspace(outcome.session, host.host)
    assert (stored.size, stored.sha256) == (host.bytes, host.sha256)
    content = storage.read_xspace(outcome.session, host.host)
    assert verify(content).events > 0
    assert (tmp_path / stored.path).stat().st_mtime >= began - 1


def test_without_the_same_disk_its_profile_is_out_of_reach_and_the_message_says_why(
    address: str, tmp_path: Path
) -> None:
    # It cannot reach the bucket, so that nothing is written for it there.
    with object_server.serving("s3", tmp_path) as bucket, pytest.MonkeyPatch.context() as patch:
        for name, text in bucket.variables.items():
            patch.setenv(name, text)
        _, outcome = captured(address, f"{bucket.url}/team")
        assert not [key for key in bucket.objects if key.endswith(".pb")]
    (host,) = outcome.hosts
    assert (host.state, host.grpc_code) == (HostState.FAILED, "INTERNAL")
    assert "s3" in (host.message or "")


def test_a_window_and_a_capture_meanwhile_are_as_with_todays_servers(
    address: str, tmp_path: Path
) -> None:
    async def both() -> list[tuple[Storage, CaptureOutcome]]:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(asyncio.to_thread(captured, address, str(tmp_path / "a")))
            await asyncio.sleep(0.2)
            second = group.create_task(asyncio.to_thread(captured, address, str(tmp_path / "b")))
        return [first.result(), second.result()]

    for storage, outcome in asyncio.run(both()):
        (host,) = outcome.hosts
        assert host.state is HostState.DONE, host.message
        assert verify(storage.read_xspace(outcome.session, host.host)).events > 0
