"""``podscope simulate`` as a user runs it."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from podscope_agent.errors import SimulationError
from podscope_agent.simulator import Fault, Pod, serve
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1 import xplane_pb2

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
COMMAND = (sys.executable, "-m", "podscope", "simulate")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
        timeout=300,
    )


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command and the line it prints when everything listens."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as child:
        try:
            assert child.stdout is not None
            ready, _, _ = select.select([child.stdout], [], [], 60)
            assert ready, "nothing was printed in a minute"
            yield child, child.stdout.readline()
        finally:
            child.kill()


def capture(address: str, duration_ms: int = 20) -> wire.ProfileResponse:
    options = wire.ProfileOptions(
        version=1, duration_ms=duration_ms, host_tracer_level=2, device_tracer_level=1
    )
    request = wire.ProfileRequest(opts=options, emit_xspace=True, session_id="s")
    settings = (("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0))
    with grpc.insecure_channel(address, options=settings) as channel:
        call = channel.unary_unary(methods.PROFILE, None, None)
        return wire.ProfileResponse.FromString(call(request.SerializeToString(), timeout=120))


def free_ports(count: int) -> int:
    """The first of some ports in a row that were free just now."""
    for base in range(20_000, 30_000, 50):
        try:
            for port in range(base, base + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise AssertionError


def test_help_shows_examples_and_every_fault() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "podscope simulate --hosts 16 --device tpu-v5e --port-base 9100" in done.stdout
    for fault in ("refuse", "hang", "busy", "empty", "corrupt", "reset", "slow"):
        assert f"\n    {fault} " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--device", "tpu-v9"), "no device 'tpu-v9'"),
        (("--hosts", "0"), "hosts 0 is out of range"),
        (("--hosts", "4", "--fault", "4:refuse"), "no host 4; hosts are 0 to 3"),
        (("--fault", "1:explode"), "no kind 'explode'"),
        (("--fault", "1:busy", "--fault", "1:slow"), "has a fault already"),
        (("--hosts", "4", "--slow-host", "4"), "give 0 to 3"),
        (("--input-bound", "1"), "input-bound 1.0"),
        (("--port-base", "65534", "--hosts", "4"), "port base 65534"),
        (("--port-base", "-1"), "port base -1"),
        (("--host", "no.such.name.invalid"), "check --host"),
        (("--session", "a"), "--write"),
        (("--write", "{tmp}", "--session", "../up"), "not a plain folder name"),
        (("--write", "{tmp}", "--session", ".."), "not a plain folder name"),
        (("--write", "/proc/nope"), "cannot write to"),
        (("--port-base", "0", "--truth", "/proc/nope/t.json"), "choose another --truth"),
    ],
)
def test_wrong_use_is_one_clear_line_and_exit_code_2(
    arguments: tuple[str, ...], part: str, tmp_path: Path
) -> None:
    done = run(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert done.returncode == 2
    assert done.stderr.startswith("podscope: ")
    assert done.stderr.count("\n") == 1
    assert part in done.stderr


def test_a_port_in_use_is_one_clear_line_and_exit_code_1() -> None:
    base = free_ports(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", base + 2))
        taken.listen()
        done = run("--hosts", "3", "--port-base", str(base))
    assert done.returncode == 1
    assert done.stderr == f"podscope: port {base + 2} is in use; choose another with --port-base\n"


def test_host_i_listens_on_port_base_plus_i() -> None:
    base = free_ports(3)
    with started("--hosts", "3", "--port-base", str(base), "--device", "cpu") as (_, line):
        assert line == (
            f"serving 3 simulated cpu hosts on 127.0.0.1:{base} to 127.0.0.1:{base + 2}; "
            "Ctrl-C stops\n"
        )
        for index in range(3):
            xspace = capture(f"127.0.0.1:{base + index}").xspace
            space = xplane_pb2.XSpace.FromString(xspace)
            assert list(space.hostnames) == [f"sim-cpu-{index:04d}"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_cleanly_and_frees_the_ports(number: signal.Signals, code: int) -> None:
    base = free_ports(2)
    with started("--hosts", "2", "--port-base", str(base), "--device", "cpu") as (child, _):
        child.send_signal(number)
        _, errors = child.communicate(timeout=120)
    assert (child.returncode, errors) == (code, "")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", base))


def test_json_names_every_host_and_its_fault(tmp_path: Path) -> None:
    truth_file = tmp_path / "truth.json"
    options = ("--hosts", "2", "--port-base", "0", "--fault", "1:refuse", "--json")
    with started(*options, "--truth", str(truth_file)) as (_, line):
        hosts = json.loads(line)["hosts"]
        truth = json.loads(truth_file.read_text())
        assert [host["fault"] for host in hosts] == [None, "refuse"]
        assert [host["address"] for host in truth["hosts"]] == [h["address"] for h in hosts]
        with pytest.raises(grpc.RpcError):
            capture(hosts[1]["address"])
        space = xplane_pb2.XSpace.FromString(capture(hosts[0]["address"]).xspace)
    events = sum(len(line.events) for plane in space.planes for line in plane.lines)
    assert events == truth["capture"]["events"]


def test_captures_of_any_duration_hold_the_steps_asked_for() -> None:
    with started("--hosts", "1", "--port-base", "0", "--steps", "7", "--json") as (_, line):
        address = json.loads(line)["hosts"][0]["address"]
        for duration_ms in (1, 400):
            assert count_steps(capture(address, duration_ms).xspace) == 7


def test_without_a_step_limit_a_longer_capture_holds_more_steps() -> None:
    with started("--hosts", "1", "--port-base", "0", "--steps", "0", "--json") as (_, line):
        address = json.loads(line)["hosts"][0]["address"]
        short, long = (count_steps(capture(address, ms).xspace) for ms in (100, 500))
    steps = Pod("tpu-v5e", hosts=1, steps=0).timeline.steps
    period_ms = sum(step.period_ps for step in steps) / len(steps) / 1e9
    assert short == pytest.approx(100 / period_ms - 1, abs=1)
    assert long == pytest.approx(500 / period_ms - 1, abs=1)


def count_steps(xspace: bytes) -> int:
    space = xplane_pb2.XSpace.FromString(xspace)
    plane = next(plane for plane in space.planes if plane.name == "/device:TPU:0")
    return len(next(line for line in plane.lines if line.name == "Steps").events)


def test_written_profiles_lie_where_tensorboard_looks_for_them(tmp_path: Path) -> None:
    truth = tmp_path / "truth.json"
    options = ("--hosts", "4", "--device", "cpu", "--fault", "1:corrupt", "--fault", "2:hang")
    done = run(*options, "--write", str(tmp_path / "logs"), "--truth", str(truth))
    assert (done.returncode, done.stderr) == (0, "")
    run_folder = tmp_path / "logs" / "plugins" / "profile" / "sim-cpu-4-hosts-seed-0"
    names = sorted(path.name for path in run_folder.iterdir())
    assert names == [f"sim-cpu-{i:04d}.xplane.pb" for i in (0, 1, 3)]
    assert json.loads(truth.read_text())["hosts"][2]["fault"] == "hang"
    good = (run_folder / names[0]).read_bytes()
    again = run(*options, "--write", str(tmp_path / "again"))
    assert again.returncode == 0
    other = tmp_path / "again" / "plugins" / "profile" / "sim-cpu-4-hosts-seed-0" / names[0]
    assert other.read_bytes() == good


def test_the_context_manager_serves_from_another_process() -> None:
    pod = Pod("cpu", hosts=2, steps=2, slow_host=1)
    with serve(pod, faults={0: Fault("empty")}) as running:
        assert capture(running.addresses[0]).empty_trace
        assert not capture(running.addresses[1]).empty_trace
        assert running.hostnames == ("sim-cpu-0000", "sim-cpu-0001")


def test_the_context_manager_says_why_it_cannot_serve() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(SimulationError, match=f"port {port} is in use"),
            serve(Pod("cpu"), port_base=port),
        ):
            pass


def test_the_truth_describes_every_step_host_and_op(tmp_path: Path) -> None:
    truth_file = tmp_path / "truth.json"
    options = ("--hosts", "3", "--slow-host", "2", "--steps", "4", "--write", str(tmp_path))
    assert run(*options, "--truth", str(truth_file)).returncode == 0
    truth: dict[str, Any] = json.loads(truth_file.read_text())
    assert [step["step"] for step in truth["steps"]] == [0, 1, 2, 3]
    for step in truth["steps"]:
        slow = step["hosts"][2]
        assert min(slow["collective_wait_ps"]) == 0
        for host in step["hosts"]:
            for compute, waited in zip(
                host["own_compute_ps"], host["collective_wait_ps"], strict=True
            ):
                parts = host["input_wait_ps"] + compute + waited
                parts += step["collective_transfer_ps"] + step["update_ps"] + step["idle_ps"]
                assert parts == step["step_time_ps"]
    program = truth["program"]
    assert program["flops_per_core_step"] == sum(
        op["flops"] * op["executions_per_step"] for op in program["ops"]
    )
