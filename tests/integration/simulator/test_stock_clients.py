"""The clients of real frameworks capture simulated hosts as they would capture real ones."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podscope_agent.simulator import Pod, RunningPod, serve
from podscope_protos.v1.xplane_pb2 import XSpace

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
XPROF_CLIENT = """
import sys
from xprof.convert import _pywrap_profiler_plugin as plugin
plugin.trace(sys.argv[1], sys.argv[2], "", True, 200, 1, {})
"""
TENSORFLOW_CLIENT = """
import sys
import tensorflow as tf
tf.profiler.experimental.client.trace(sys.argv[1], sys.argv[2], 200)
"""


@pytest.fixture(scope="module")
def pod() -> Iterator[RunningPod]:
    with serve(Pod("tpu-v5e", hosts=2, steps=3)) as running:
        yield running


@pytest.mark.parametrize("client", [XPROF_CLIENT, TENSORFLOW_CLIENT], ids=["xprof", "tensorflow"])
def test_a_stock_client_captures_both_hosts(client: str, pod: RunningPod, tmp_path: Path) -> None:
    pytest.importorskip("xprof" if client is XPROF_CLIENT else "tensorflow")
    subprocess.run(
        [sys.executable, "-c", client, ",".join(pod.addresses), str(tmp_path)],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    files = {path.name: path for path in tmp_path.glob("plugins/profile/*/*.xplane.pb")}
    for address, hostname in zip(pod.addresses, pod.hostnames, strict=True):
        space = XSpace.FromString(files[f"{address.replace(':', '_')}.xplane.pb"].read_bytes())
        assert list(space.hostnames) == [hostname]
        cores = [plane for plane in space.planes if plane.name.startswith("/device:TPU:")]
        assert [len(plane.lines[0].events) for plane in cores] == [3, 3, 3, 3]
