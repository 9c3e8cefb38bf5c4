"""The library beside TensorFlow and XProf, whatever the protobuf and whoever is imported first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CAPTURE = """
import sys, tempfile, threading
from podscope import profiler
port = profiler.server.start(0)
ended = threading.Event()
def train():
    for number in profiler.steps(iter(range(10**9))):
        if ended.wait(0.005):
            return
worker = threading.Thread(target=train)
worker.start()
profiler.client._FANOUT = "podscope_collector.not_installed"
[result] = profiler.client.trace(f"127.0.0.1:{port}", tempfile.mkdtemp(), 300)
ended.set()
worker.join()
profiler.server.stop()
from podscope import wire
space = wire.XSpace.FromString(result.file.read_bytes())
[host] = [plane for plane in space.planes if plane.name == "/host:CPU"]
assert "train" in {kept.name for kept in host.event_metadata.values()}
"""
LIBRARY = "import podscope.profiler.server\nimport podscope.wire\n"
OTHERS = {
    "nothing": "",
    "tensorflow": (
        "import tensorflow\nfrom tensorflow.tsl.profiler.protobuf import xplane_pb2\n"
        "xplane_pb2.XSpace()\n"
    ),
    "xprof": (
        "from xprof.protobuf import trace_events_old_pb2\n"
        "from xprof.convert import raw_to_tool_data\n"
    ),
}


@pytest.fixture(scope="module", params=["4.22", "4", "5", "6", "7"])
def environment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The environment of a process that has this protobuf in front of the installed one."""
    version: str = request.param
    folder = tmp_path_factory.mktemp(f"protobuf-{version}")
    wanted = f"protobuf=={version}.*"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    done = subprocess.run([*pip, wanted], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines() or ["pip failed"]
        pytest.skip(f"{wanted} cannot be installed here: {last[-1][:120]}")
    root = Path(__file__).parents[3]
    paths = [folder, root / "agent", root / "protos", os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def run(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.parametrize("order", ["library first", "library last"])
@pytest.mark.parametrize("other", list(OTHERS))
def test_a_capture_works_with_this_protobuf(
    other: str, order: str, environment: dict[str, str]
) -> None:
    alone = run(OTHERS[other], environment)
    if alone.returncode:
        last = alone.stderr.strip().splitlines()[-1]
        pytest.skip(f"{other} does not work with this protobuf itself: {last[:150]}")
    imports = [LIBRARY, OTHERS[other]]
    if order == "library last":
        imports.reverse()
    done = run("".join(imports) + CAPTURE, environment)
    assert done.returncode == 0, done.stderr
