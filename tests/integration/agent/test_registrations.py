"""How an agent learns of the processes of its host, and forgets them."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from concurrent import futures

import grpc
import httpx
import pytest
from tests.integration.agent.daemon import (
    Agent,
    agent,
    answer_with,
    profiler,
    status,
    targets_of,
    wait_until,
    xspace,
)

from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own


def register(folder: str, port: int) -> "subprocess.Popen[str]":
    """A process that registers a profiler port and lives until it is killed."""
    script = (
        "import sys, time\n"
        "from podscope.profiler import server, steps\n"
        "server.register(int(sys.argv[1]), 'jax', {'role': 'trainer'})\n"
        "print('ready', flush=True)\n"
        "for _ in steps(range(6000)):\n"
        "    time.sleep(0.01)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, str(port)],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PODSCOPE_RUNTIME_DIR": folder,
            "RANK": "3",
        },
    )


def test_a_process_that_registers_is_captured_and_forgotten_when_it_is_killed() -> None:
    with profiler(answer_with(xspace())) as target, agent() as running:
        assert targets_of(running) == []
        with pytest.raises(grpc.RpcError) as failure:
            running.profile()
        assert "no process of this host is known" in str(status(failure)[1])
        port = int(target.rpartition(":")[2])
        process = register(running.folder.name, port)
        wait_until(lambda: bool(targets_of(running)))
        (known,) = targets_of(running)
        assert (known["source"], known["framework"], known["pid"]) == (
            "registered",
            "jax",
            process.pid,
        )
        assert known["labels"] == {"role": "trainer", "rank": "3"}
        wait_until(lambda: running.step_time().source == "process")
        assert running.step_time().seconds >= 0.01
        assert running.profile().xspace == xspace()
        # Its steps took twice as long in the capture, as a collector's analysis finds.
        during_s = 2 * running.step_time().seconds
        report = own.ReportFiguresRequest(step_time_seconds=during_s, captured_at_ns=1)
        running.call(methods.AGENT_REPORT_FIGURES, report.SerializeToString())
        ratio = re.search(
            "^podscope_profiling_overhead_ratio (.+)$", httpx.get(running.metrics).text, re.M
        )
        assert ratio is not None
        assert float(ratio[1]) == pytest.approx(0.5, abs=0.2)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        wait_until(lambda: targets_of(running) == [])


def test_a_process_finds_an_agent_that_starts_after_it() -> None:
    with profiler(answer_with(xspace())) as target:
        first = Agent(target)
        folder = first.folder.name
        process = register(folder, int(target.rpartition(":")[2]))
        wait_until(lambda: any(t["source"] == "registered" for t in targets_of(first)))
        # One process, known by its address and by its word.
        assert len(targets_of(first)) == 1
        first.process.kill()
        first.process.wait()
        first.channel.close()
        assert first.process.stdout is not None
        first.process.stdout.close()
        second = Agent(folder=folder)
        wait_until(lambda: bool(targets_of(second)))
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        assert second.close() == 0
        first.folder.cleanup()


def test_what_cannot_be_captured_says_why() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    other = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with profiler(answer_with(xspace())) as dead:
        pass
    with agent(f"127.0.0.1:{other}", dead) as running:
        found = {str(item["address"]): item for item in targets_of(running)}
        listed = subprocess.run(
            [sys.executable, "-m", "podscope", "agent", "targets", "--agent", running.address],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=120,
        )
    server.stop(None).wait()
    assert found[f"127.0.0.1:{other}"]["state"] == "incompatible"
    assert found[dead]["state"] == "unreachable"
    assert found[dead]["detail"]
    assert listed.returncode == 0
    assert "incompatible" in listed.stdout


def test_no_agent_at_an_address_is_one_clear_line() -> None:
    with profiler(answer_with(b"")) as stock:
        answers = [
            subprocess.run(
                [sys.executable, "-m", "podscope", "agent", "targets", "--agent", address],
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                timeout=120,
            )
            for address in ("127.0.0.1:1", stock)
        ]
    assert [answer.returncode for answer in answers] == [6, 6]
    assert all("podscope agent" in a.stderr and a.stderr.count("\n") == 1 for a in answers)


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[]\n",
        b'{"port": 0}\n',
        b'{"port": true}\n',
        b'{"port": 1, "host": "a b"}\n',
        b"[" * 16_000 + b"\n",
        b"x" * 20_000,
        b"",
    ],
)
def test_a_stranger_on_the_socket_registers_nothing(line: bytes) -> None:
    with agent() as running:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(f"{running.folder.name}/agent.sock")
            stranger.sendall(line)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(120)
            with contextlib.suppress(ConnectionError):
                assert stranger.recv(10) == b""
        assert targets_of(running) == []


def test_two_agents_do_not_share_a_socket() -> None:
    with agent() as running:
        second = subprocess.run(
            [
                sys.executable,
                "-m",
                "podscope",
                "agent",
                "--port",
                "0",
                "--metrics-port",
                "0",
                "--runtime-dir",
                running.folder.name,
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=120,
        )
    assert second.returncode == 2
    assert "another agent listens" in second.stderr
