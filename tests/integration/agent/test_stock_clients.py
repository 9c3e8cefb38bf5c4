"""Real clients of real frameworks capture through the agent from live JAX processes."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podscope_protos.v1.xplane_pb2 import XSpace

pytestmark = [pytest.mark.interop, pytest.mark.slow]

WORKER = Path(__file__).with_name("jax_worker.py")
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

XPROF_CLIENT = """
import sys
from xprof.convert import _pywrap_profiler_plugin as plugin
plugin.trace(sys.argv[1], sys.argv[2], "", True, 500, 3, {})
"""
TENSORFLOW_CLIENT = """
import sys
import tensorflow as tf
tf.profiler.experimental.client.trace(f"grpc://{sys.argv[1]}", sys.argv[2], 500)
"""
JAX_CLIENT = """
import runpy, sys
host, _, port = sys.argv[1].rpartition(":")
sys.argv = ["collect_profile", port, "500", "--host", host, "--log_dir", sys.argv[2],
            "--no_perfetto_link"]
runpy.run_module("jax.collect_profile", run_name="__main__")
"""
TOOL_NAMES = """
import glob, sys
from xprof.convert import raw_to_tool_data
names = raw_to_tool_data.xspace_to_tool_names(sorted(glob.glob(sys.argv[1])))
print(",".join(names))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(timeout=40)
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture(scope="module")
def host_address() -> Iterator[str]:
    """An agent in front of two live JAX processes."""
    ports = [free_port(), free_port()]
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=ENVIRONMENT,
        )
        for port in ports
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        targets = ",".join(f"127.0.0.1:{port}" for port in ports)
        command = [sys.executable, "-m", "podscope", "agent"]
        agent = subprocess.Popen(
            [*command, "--target", targets, "--port", "0", "--metrics-port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=ENVIRONMENT,
        )
        processes.append(agent)
        assert agent.stdout is not None
        line = agent.stdout.readline()
        yield line.split("profiler service on ")[1].split(",")[0]
    finally:
        for process in reversed(processes):
            stop(process)


@pytest.mark.parametrize(
    "client", [XPROF_CLIENT, TENSORFLOW_CLIENT, JAX_CLIENT], ids=["xprof", "tensorflow", "jax"]
)
def test_a_stock_client_captures_every_process_of_the_host(
    client: str, host_address: str, tmp_path: Path
) -> None:
    pytest.importorskip("xprof")
    subprocess.run(
        [sys.executable, "-c", client, host_address, str(tmp_path)],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    [file] = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    space = XSpace.FromString(file.read_bytes())
    host_planes = [plane for plane in space.planes if plane.name.startswith("/host:CPU")]
    assert len(host_planes) == 2
    for plane in host_planes:
        events = {plane.event_metadata[e.metadata_id].name for x in plane.lines for e in x.events}
        assert "train" in events
    listed = subprocess.run(
        [sys.executable, "-c", TOOL_NAMES, str(file)],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    assert {"overview_page", "framework_op_stats"} <= set(listed.strip().split(","))
