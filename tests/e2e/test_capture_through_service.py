"""``podscope capture --url``: the same command, carried out by a running service."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from podscope_agent.simulator.faults import parse_faults
from podscope_agent.simulator.pod import Pod
from podscope_agent.simulator.process import serve

pytestmark = pytest.mark.slow

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def podscope(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "podscope", *args],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with everything embedded."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data: Path = tmp_path_factory.mktemp("data")
    command = [sys.executable, "-m", "podscope", "up", "--port", str(port), "--data-dir", str(data)]
    with (data.parent / "up.log").open("wb") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT)
    try:
        deadline = time.monotonic() + 300
        while True:
            assert service.poll() is None, (data.parent / "up.log").read_text()[-2000:]
            assert time.monotonic() < deadline
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        service.terminate()
        try:
            service.wait(120)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()


def test_the_service_captures_and_the_command_tells_of_every_host(url: str) -> None:
    faults = parse_faults(["1:refuse"], 3)
    with serve(Pod(device="cpu", hosts=3, steps=3), faults=faults) as pod:
        ended = podscope(
            "capture", *pod.addresses, "--duration", "200ms", "--attempts", "2",
            "--label", "run=demo", "--url", url, "--json",
        )  # fmt: skip
    assert ended.returncode == 5, ended.stderr
    found = json.loads(ended.stdout)
    assert found["state"] == "partial"
    assert [host["state"] for host in found["hosts"]] == ["done", "failed", "done"]
    assert found["hosts"][1]["reason"] == "refused"
    stored = httpx.get(f"{url}/api/v1/captures/{found['id']}").json()
    assert stored["session"] == found["session"]
    assert stored["labels"] == {"run": "demo"}


def test_a_request_that_the_service_rejects_is_wrong_usage(url: str) -> None:
    ended = podscope("capture", "w0:1", "--url", f"{url}/nowhere")
    assert ended.returncode in {2, 6}
    assert ended.stderr.count("\n") == 1
