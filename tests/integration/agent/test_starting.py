"""Options, ports, tokens and users that an agent is started with."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest
from tests.integration.agent.daemon import (
    agent,
    agent_fails,
    answer_with,
    fetched,
    profiler,
    status,
    xspace,
)

from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire


def test_a_port_in_use_is_one_clear_line() -> None:
    with profiler(answer_with(b"")) as taken:
        port = taken.rpartition(":")[2]
        command = ["agent", "--target", "localhost:1", "--port", port, "--metrics-port", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "podscope", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"podscope: port {port} is in use; choose another with --port"
    )


def test_who_opens_an_agent_to_the_network_is_told_what_that_means(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    with profiler(answer_with(b"")) as taken:
        port = taken.rpartition(":")[2]
        for host, more, is_open in [
            ("0.0.0.0", (), True),
            ("0.0.0.0", ("--token-file", str(secret)), False),
            ("127.0.0.1", (), False),
        ]:
            code, text = agent_fails("--host", host, "--port", port, *more)
            assert (code, "open_to_the_network" in text) == (1, is_open)


# The interpreter may be in a folder that nobody else may read: that one right is kept.
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
AS_NOBODY += ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
# Everything is read-only but the folder given.
READ_ONLY = """
mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"
"""


def cannot_be_read_only() -> bool:
    """Only root can make a name space of mounts, and not in every container."""
    if os.getuid() != 0 or shutil.which("setpriv") is None or shutil.which("unshare") is None:
        return True
    with tempfile.TemporaryDirectory() as name:
        command = ["unshare", "--mount", "sh", "-c", READ_ONLY, name, "true"]
        return subprocess.run(command, capture_output=True, check=False).returncode != 0


@pytest.mark.skipif(cannot_be_read_only(), reason="this user may not mount")
def test_it_runs_as_nobody_on_a_read_only_system_with_two_folders_to_write_to() -> None:
    with tempfile.TemporaryDirectory() as name, profiler(answer_with(xspace())) as target:
        Path(name).chmod(0o755)
        runtime, spool = Path(name, "run"), Path(name, "spool")
        for folder in (runtime, spool):
            folder.mkdir()
            os.chown(folder, 65534, 65534)
        settings: dict[str, Any] = {
            "folder": str(runtime),
            "spool_dir": str(spool),
            "prefix": ["unshare", "--mount", "sh", "-c", READ_ONLY, name, *AS_NOBODY],
            "popen": {"cwd": "/"},
        }
        with agent(target, **settings) as running:
            assert running.profile().xspace == xspace()
            assert (runtime / "agent.sock").is_socket()
            body = own.CaptureRequest(capture_id="a", wait=True).SerializeToString()
            running.call(methods.AGENT_CAPTURE, body)
            assert fetched(running, "a") == xspace()
            process = Path(f"/proc/{running.process.pid}")
            owner = process.stat().st_uid
            mounts = (process / "mounts").read_text()
    assert owner == 65534
    [root] = [line.split()[3] for line in mounts.splitlines() if line.split()[1] == "/"]
    assert "ro" in root.split(",")


def test_calls_without_the_token_are_denied_but_health_checks(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    bearer = (("authorization", "Bearer s3cret"),)
    with profiler(answer_with(xspace())) as target:
        with agent(target, token_file=str(secret)) as running:
            assert running.call("/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
            request = wire.ProfileRequest(emit_xspace=True).SerializeToString()
            method = running.channel.unary_unary(
                methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
            )
            for metadata in [(), (("authorization", "Bearer wrong"),)]:
                with pytest.raises(grpc.RpcError) as failure:
                    method(request, timeout=120, metadata=metadata)
                assert status(failure)[0] is grpc.StatusCode.UNAUTHENTICATED
            with pytest.raises(grpc.RpcError) as failure:
                fetched(running, "x")
            assert status(failure)[0] is grpc.StatusCode.UNAUTHENTICATED
            answer = method(request, timeout=120, metadata=bearer)
            assert wire.ProfileResponse.FromString(answer).xspace == xspace()
            code, text = agent_fails("targets", "--agent", running.address)
            assert (code, text.count("\n")) == (7, 1)
            assert "--token-file" in text
            code, _ = agent_fails(
                "targets", "--agent", running.address, "--token-file", str(secret)
            )
            assert code == 0
            # This host, by an address that is not known to be its own.
            elsewhere = running.address.replace("127.0.0.1", "0.0.0.0")
            asked = ("targets", "--agent", elsewhere, "--token-file", str(secret))
            code, text = agent_fails(*asked)
            assert (code, text.count("\n")) == (7, 1)
            assert "not sent in plain text; give --ca-file, or --token-in-plain-text" in text
            assert agent_fails(*asked, "--token-in-plain-text")[0] == 0


def test_a_profile_that_nobody_fetches_is_gone_after_its_time(tmp_path: Path) -> None:
    settings = {"spool_dir": str(tmp_path / "spool"), "keep_s": "1"}
    with profiler(answer_with(xspace())) as target, agent(target, **settings) as running:
        body = own.CaptureRequest(capture_id="a", wait=True).SerializeToString()
        running.call(methods.AGENT_CAPTURE, body)
        deadline = time.monotonic() + 60
        while list((tmp_path / "spool").iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_token_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("absent", "empty", "binary", "."):
        path = tmp_path / name
        code, text = agent_fails("--token-file", str(path), "--port", "0", "--metrics-port", "0")
        assert (code, text.count("\n")) == (3, 1), text
        assert str(path) in text


def test_metrics_are_served_on_an_address_of_their_own() -> None:
    with agent(metrics_host="127.0.0.2") as running:
        assert running.metrics.startswith("http://127.0.0.2:")
        assert "podscope_targets" in httpx.get(running.metrics, trust_env=False).text
        port = httpx.URL(running.metrics).port
        listening = [
            one.laddr.ip
            for one in psutil.Process(running.process.pid).net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.laddr.port == port
        ]
        assert listening == ["127.0.0.2"]


@pytest.mark.parametrize(
    "options",
    [["--no-such"], ["--port", "99999"], ["--target", "nonsense"], ["--label", "x"], ["--port"]],
)
def test_wrong_options_are_told_with_exit_code_2(options: list[str]) -> None:
    code, text = agent_fails(*options, "--metrics-port", "0")
    assert code == 2
    assert "Traceback" not in text
