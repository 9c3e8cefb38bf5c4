"""Real clients of real frameworks capture through the agent from live JAX processes."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import httpx
import pytest

from podscope_protos import methods
from podscope_protos.v1 import tpu_metrics_pb2 as tpu
from podscope_protos.v1.xplane_pb2 import XPlane, XSpace

pytestmark = [pytest.mark.interop, pytest.mark.slow]

JAX_WORKER = Path(__file__).with_name("jax_worker.py")
TENSORFLOW_WORKER = Path(__file__).with_name("tensorflow_worker.py")
JAX_PROGRAMS = ("tanh", "tanh", "sin", "cos")
"""What the JAX processes run; each numbers its programs from zero."""
WORKERS = [*((JAX_WORKER, program) for program in JAX_PROGRAMS), (TENSORFLOW_WORKER, "tanh")]
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
MONITOR_CLIENT = """
import sys
import tensorflow as tf
print(tf.profiler.experimental.client.monitor(f"grpc://{sys.argv[1]}", 500, 2))
"""
XPROF_OPTIONS = "['--logdir', sys.argv[1], '--port', sys.argv[2], '--grpc_port', sys.argv[3]]"
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
    process.wait(timeout=120)
    assert process.stdout is not None
    process.stdout.close()


def libtpu() -> tuple[grpc.Server, int]:
    """What libtpu's metric service tells of two chips, for the agent's `Monitor`."""

    def listed(_body: bytes, _context: grpc.ServicerContext) -> bytes:
        answer = tpu.ListSupportedMetricsResponse()
        answer.supported_metric.add(metric_name="tpu.runtime.tensorcore.dutycycle.percent")
        return answer.SerializeToString()

    def told(_body: bytes, _context: grpc.ServicerContext) -> bytes:
        answer = tpu.MetricResponse()
        for chip, percent in enumerate((60.0, 80.0)):
            metric = answer.metric.metrics.add()
            metric.attribute.value.int_attr = chip
            metric.gauge.as_double = percent
        return answer.SerializeToString()

    server = grpc.server(futures.ThreadPoolExecutor(1))
    handlers = {
        "ListSupportedMetrics": grpc.unary_unary_rpc_method_handler(listed),
        "GetRuntimeMetric": grpc.unary_unary_rpc_method_handler(told),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(methods.RUNTIME_METRIC_SERVICE, handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def started(*command: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**ENVIRONMENT, **environment},
    )


@pytest.fixture(scope="module")
def host_address() -> Iterator[str]:
    """An agent in front of four live JAX processes and a TensorFlow one."""
    pytest.importorskip("xprof")
    pytest.importorskip("jax")
    pytest.importorskip("tensorflow")
    ports = [free_port() for _ in WORKERS]
    server, tpu_port = libtpu()
    processes = []
    try:
        for (worker, program), port in zip(WORKERS, ports, strict=True):
            processes.append(started(str(worker), str(port), program))
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        targets = ",".join(f"127.0.0.1:{port}" for port in ports)
        with tempfile.TemporaryDirectory() as runtime:
            agent = started(
                *("-m", "podscope", "agent", "--port", "0", "--metrics-port", "0"),
                *("--target", targets, "--runtime-dir", runtime),
                PODSCOPE_AGENT_TPU_METRICS=f"127.0.0.1:{tpu_port}",
            )
            processes.append(agent)
            assert agent.stdout is not None
            line = agent.stdout.readline()
            yield line.split("profiler service on ")[1].split(",")[0]
            stop(processes.pop())
    finally:
        for process in reversed(processes):
            stop(process)
        server.stop(None).wait()


def programs_run(space: XSpace, plane: XPlane) -> set[str]:
    """Modules of the programs that the events of a plane name by number."""
    modules: dict[int, str] = {}
    for metadata in (other for other in space.planes if other.name == "/host:metadata"):
        for entry in metadata.event_metadata.values():
            for stat in entry.stats:
                if metadata.stat_metadata[stat.metadata_id].name == "program_id":
                    modules[stat.uint64_value] = entry.name.partition("(")[0]
    return {
        modules[stat.int64_value]
        for line in plane.lines
        for event in line.events
        for stat in event.stats
        if plane.stat_metadata[stat.metadata_id].name == "program_id"
    }


def check_capture(logdir: Path) -> None:
    """Every process's steps are in the one file, and XProf lists its tools."""
    [file] = logdir.glob("plugins/profile/*/*.xplane.pb")
    space = XSpace.FromString(file.read_bytes())
    assert not space.warnings
    host_planes = [plane for plane in space.planes if plane.name.startswith("/host:CPU")]
    assert len(host_planes) == len(WORKERS)
    assert len({plane.name for plane in host_planes}) == len(WORKERS)
    for plane in host_planes:
        events = {plane.event_metadata[e.metadata_id].name for x in plane.lines for e in x.events}
        assert "train" in events
    steps = [f"jit_{program}_step" for program in JAX_PROGRAMS]
    assert [programs_run(space, plane) & set(steps) for plane in host_planes[:4]] == [
        {step} for step in steps
    ]
    listed = subprocess.run(
        [sys.executable, "-c", TOOL_NAMES, str(file)],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    assert {"overview_page", "framework_op_stats"} <= set(listed.strip().split(","))


@pytest.mark.parametrize(
    "client", [XPROF_CLIENT, TENSORFLOW_CLIENT, JAX_CLIENT], ids=["xprof", "tensorflow", "jax"]
)
def test_a_stock_client_captures_every_process_of_the_host(
    client: str, host_address: str, tmp_path: Path
) -> None:
    subprocess.run(
        [sys.executable, "-c", client, host_address, str(tmp_path)],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        timeout=180,
    )
    check_capture(tmp_path)


def test_the_capture_dialog_of_a_running_xprof_captures_every_process(
    host_address: str, tmp_path: Path
) -> None:
    port = free_port()
    script = f"import sys; from xprof.server import main; sys.argv[1:] = {XPROF_OPTIONS}; main()"
    server = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), str(port), str(free_port())],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    query = {
        "service_addr": host_address,
        "duration": "500",
        "is_tpu_name": "false",
        "worker_list": "",
        "num_retry": "2",
        "host_tracer_level": "2",
        "device_tracer_level": "1",
        "python_tracer_level": "0",
        "delay": "0",
    }
    try:
        base = f"http://127.0.0.1:{port}/data/plugin/profile"
        with httpx.Client(trust_env=False, timeout=120) as client:
            deadline = time.monotonic() + 300
            while True:
                try:
                    client.get(f"{base}/runs")
                    break
                except httpx.TransportError:
                    assert time.monotonic() < deadline
                    time.sleep(0.5)
            answer = client.get(f"{base}/capture_profile", params=query)
        assert answer.status_code == 200, answer.text
        assert "successfully" in answer.json()["result"]
    finally:
        server.terminate()
        server.wait(timeout=120)
    check_capture(tmp_path)


def test_tensorflows_monitor_reads_the_hosts_devices(host_address: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MONITOR_CLIENT, host_address],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Number of TPU cores: 2\n" in done.stdout
    assert "TPU idle time (lower is better): 30.0%\n" in done.stdout
    assert "Host memory used: " in done.stdout
