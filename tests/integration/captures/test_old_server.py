"""A TensorFlow from before servers could send their profile: they write it where they are told."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tests.integration.captures.test_real_profilers import free_ports

from podscope_analyzers.xspace import verify
from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.outcome import CaptureOutcome
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.states import HostState
from podscope_collector.storage import Storage
from podscope_protos.methods import PROFILE
from podscope_protos.v1 import profiler_service_pb2 as wire

OLD_PYTHON = os.environ.get("PODSCOPE_OLD_TENSORFLOW")
"""A Python that has TensorFlow 2.4, which no Python has that podscope runs on."""

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(
        OLD_PYTHON is None, reason="set PODSCOPE_OLD_TENSORFLOW to a Python with TensorFlow 2.4"
    ),
]

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
def address() -> Iterator[str]:
    (port,) = free_ports(1)
    assert OLD_PYTHON is not None
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        [OLD_PYTHON, "-c", _SERVER, str(port)],
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
