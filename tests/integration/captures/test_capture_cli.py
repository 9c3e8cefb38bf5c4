"""``podscope capture`` as people and scripts call it, against a simulated pod."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.integration.answering import answering

from podscope_agent.simulator.faults import parse_faults
from podscope_agent.simulator.pod import Pod
from podscope_agent.simulator.process import RunningPod, serve
from podscope_collector.storage import Storage

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture(scope="module")
def pod() -> Iterator[RunningPod]:
    """Four hosts: fine, refusing, empty, hanging."""
    faults = parse_faults(["1:refuse", "2:empty", "3:hang"], 4)
    with serve(Pod(device="cpu", hosts=4, steps=3), faults=faults) as served:
        yield served


def podscope(
    *args: str, cwd: Path | None = None, variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "podscope", "capture", *args],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, **variables},
        timeout=120,
        check=False,
        cwd=cwd,
    )


def test_a_complete_capture_lands_in_the_folder_and_says_how_to_go_on(
    pod: RunningPod, tmp_path: Path
) -> None:
    logdir = str(tmp_path / "my runs")
    ended = podscope(f"grpc://{pod.addresses[0]}", "--duration", "200ms", "--logdir", logdir)
    assert ended.returncode == 0, ended.stderr
    assert f"podscope analyze '{logdir}'" in ended.stdout
    assert "complete: 1 of 1 hosts captured" in ended.stdout
    (session,) = Storage(logdir).list_sessions()
    assert Storage(logdir).list_hosts(session) == [pod.addresses[0].replace(":", "_")]


def test_json_is_one_object_with_every_host_and_a_lost_host_makes_it_partial(
    pod: RunningPod, tmp_path: Path
) -> None:
    ended = podscope(
        *pod.addresses, "--duration", "200ms", "--timeout", "1s", "--attempts", "2",
        "--logdir", str(tmp_path), "--json",
    )  # fmt: skip
    assert ended.returncode == 5, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["state"] == "partial"
    assert re.fullmatch(r"(\d+_){6}\d{3}", found["session"])
    hosts = found["hosts"]
    assert [host["target"] for host in hosts] == list(pod.addresses)
    assert [host["state"] for host in hosts] == ["done", "failed", "empty", "failed"]
    assert [host["reason"] for host in hosts] == [None, "refused", "empty_trace", "deadline"]
    assert [host["attempts"] for host in hosts] == [1, 2, 1, 1]
    file = tmp_path / hosts[0]["file"]
    assert file.stat().st_size == hosts[0]["bytes"] > 0
    assert ended.stderr == ""


def test_no_host_captured_is_exit_code_1(pod: RunningPod, tmp_path: Path) -> None:
    ended = podscope(pod.addresses[1], "--attempts", "1", "--logdir", str(tmp_path))
    assert ended.returncode == 1
    assert "refused: nothing listens" in ended.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["w0:0"], "target 1 ('w0:0')"),
        (["w0:1", "--duration", "0s"], "--duration 0s captures nothing"),
        (["w0:1", "--duration", "10h"], "1 ms to 1 hour"),
        (["w0:1", "--duration", "soon"], "write 500ms, 2s"),
        (["w0:1", "--quorum", "some"], "quorum 'some'"),
        (["w0:1", "--label", "x"], "write key=value"),
        (["w0:1", "--option", "tpu_trace_mod=X"], "did you mean 'tpu_trace_mode'?"),
        (["w0:1", "--logdir", "x", "--url", "http://x"], "exclude each other"),
        (["w0:1", "--url", "localhost:8080"], "is no URL"),
        (["w0:1", "--logdir", "ftp://x"], "is not supported"),
        (["w0:1", "--logdir", ""], "--logdir is empty"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(args: list[str], words: str) -> None:
    ended = podscope(*args)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_an_unwritable_folder_is_one_clear_line() -> None:
    ended = podscope("w0:1", "--logdir", "/dev/null/x")
    assert ended.returncode == 1
    assert ended.stderr.startswith("podscope: cannot write to /dev/null/x: ")
    assert ended.stderr.count("\n") == 1


def test_a_service_that_is_not_there_is_exit_code_6() -> None:
    ended = podscope("w0:1", "--url", "http://127.0.0.1:1")
    assert ended.returncode == 6
    assert "podscope up" in ended.stderr


def test_an_interrupt_cancels_the_capture_and_tells_what_was_kept(
    pod: RunningPod, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "podscope", "capture", pod.addresses[0], pod.addresses[3]]
    command += ["--duration", "300ms", "--logdir", str(tmp_path), "--json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        # A shell's background job would ignore interrupts, and hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as child:
        deadline = time.monotonic() + 300
        while not list(tmp_path.glob("plugins/profile/*/*.xplane.pb")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=120)
    assert child.returncode == 130, stderr
    found = json.loads(stdout)
    assert found["state"] == "cancelled"
    assert [host["state"] for host in found["hosts"]] == ["done", "cancelled"]
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--label", "run=a", "--label", "run=b"), "--label run is given twice ('a' and 'b')"),
        (("--duration", "0s"), "--duration 0s captures nothing; write 1ms to 1h"),
        (
            ("--synchronized", "--expected-host-bytes", "2000000000"),
            "2 hosts cannot start together: at 1,907 MiB each they may bring 3,815 MiB",
        ),
    ],
)
def test_what_cannot_be_captured_as_asked_is_said_before_any_host_is_asked(
    options: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    ended = podscope("w0:1,w1:1", *options, "--logdir", str(tmp_path / "runs"))
    assert ended.returncode == 2
    assert words in ended.stderr
    assert not (tmp_path / "runs" / "plugins").exists()


def test_who_asks_why_and_with_which_options_goes_to_the_service() -> None:
    asked: list[dict[str, Any]] = []

    def refuse(path: str, body: bytes) -> tuple[int, bytes]:
        del path
        asked.append(json.loads(body))
        return 422, b'{"detail": "not today", "code": "bad_request"}'

    with answering(refuse) as url:
        ended = podscope(
            "w-[0-1]:9999", "--url", url,
            "--trigger", "alert", "--requested-by", "alertmanager", "--label", "job=7",
            "--option", "tpu_perf_counters=yes", "--option", "max_trace_buffers=0x10",
        )  # fmt: skip
    assert (ended.returncode, "not today" in ended.stderr) == (2, True)
    (request,) = asked
    assert (request["trigger"], request["requested_by"]) == ("alert", "alertmanager")
    assert (request["targets"], request["labels"]) == (["w-[0-1]:9999"], {"job": "7"})
    assert request["advanced_configuration"] == {"tpu_perf_counters": True, "max_trace_buffers": 16}
    wrong = podscope("w0:9999", "--trigger", "whim")
    assert (wrong.returncode, "'manual', 'alert' or 'api'" in wrong.stderr) == (2, True)


def test_pods_are_called_by_their_names_and_those_that_do_not_run_are_skipped(
    pod: RunningPod, tmp_path: Path
) -> None:
    port = pod.addresses[0].rpartition(":")[2]
    found = {
        "items": [
            {"metadata": {"name": "w-1"}, "status": {"phase": "Pending"}},
            {"metadata": {"name": "w-0"}, "status": {"phase": "Running", "podIP": "127.0.0.1"}},
        ]
    }

    with answering(lambda path, body: (200, json.dumps(found).encode())) as url:
        asked = (f"k8s:train/app=llm:{port}", "--quorum", "all", "--duration", "100ms")
        more = {"PODSCOPE_COLLECTOR_KUBERNETES_URL": url}
        plain = podscope(*asked, "--logdir", str(tmp_path), variables=more)
        told = podscope(*asked, "--logdir", str(tmp_path), "--json", variables=more)
    assert plain.returncode == told.returncode == 0
    assert f"w-0_{port} (127.0.0.1:{port})  done" in plain.stdout
    assert "not_running: pod w-1 is not running (Pending)" in plain.stdout
    assert re.search(r"complete: 1 of 1 hosts captured, .*; 1 skipped", plain.stdout)
    assert [(one["host"], one["state"]) for one in json.loads(told.stdout)["hosts"]] == [
        (f"w-0_{port}", "done"),
        ("w-1", "skipped"),
    ]
