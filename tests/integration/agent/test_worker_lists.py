"""Worker lists: TensorFlow's and XProf's clients call the first worker, which captures them all."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from tests.integration.agent.daemon import Agent, agent, answer_with, profiler, status, xspace

from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace

CLIENTS = {
    "xprof": (
        "import sys\nfrom xprof.convert import _pywrap_profiler_plugin as plugin\n"
        "plugin.trace(sys.argv[1].split(',')[0], sys.argv[2], sys.argv[1], True, 100, 1, {})\n"
    ),
    "tensorflow": (
        "import sys\nimport tensorflow as tf\n"
        "workers = sys.argv[1]\n"
        "tf.profiler.experimental.client.trace(\n"
        "    'grpc://' + workers.split(',')[0], sys.argv[2], 100, worker_list=workers,\n"
        "    num_tracing_attempts=1)\n"
    ),
}


def asked(running: Agent, root: Path, workers: Sequence[str]) -> wire.NewProfileSessionResponse:
    request = wire.NewProfileSessionRequest(
        repository_root=str(root), hosts=workers, session_id="s"
    )
    request.request.opts.duration_ms = 50
    answer = running.call(methods.NEW_SESSION, request.SerializeToString())
    return wire.NewProfileSessionResponse.FromString(answer)


def planes(file: Path) -> list[str]:
    return [plane.name for plane in XSpace.FromString(file.read_bytes()).planes]


def test_the_workers_are_captured_and_written_and_a_lost_one_is_told(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        one, two = (
            stack.enter_context(profiler(answer_with(xspace(f"/host:{name}")))) for name in "ab"
        )
        other = stack.enter_context(agent(two))
        first = stack.enter_context(
            agent(one, allow_root=str(tmp_path), allow_workers="127.0.0.1:*")
        )
        response = asked(first, tmp_path, [first.address, other.address, "127.0.0.1:1"])
    assert not response.empty_trace
    assert "127.0.0.1:1" in response.error_message
    assert "UNAVAILABLE" in response.error_message
    folder = tmp_path / "s"
    names = [address.replace(":", "_") for address in (first.address, other.address)]
    assert {file.name for file in folder.iterdir()} == {f"{name}.xplane.pb" for name in names}
    assert [planes(folder / f"{name}.xplane.pb") for name in names] == [["/host:a"], ["/host:b"]]


def test_nobody_makes_an_agent_call_a_host_that_it_may_not(tmp_path: Path) -> None:
    called: list[str] = []

    def answer(request: wire.ProfileRequest, context: grpc.ServicerContext) -> bytes:
        called.append(request.host_name)
        return answer_with(xspace())(request, context)

    with profiler(answer) as known, profiler(answer) as strange:
        with agent(known, allow_root=str(tmp_path), allow_workers="10.0.*:8466") as running:
            for workers, code in [
                ([running.address, strange], grpc.StatusCode.PERMISSION_DENIED),
                ([running.address, "nonsense"], grpc.StatusCode.INVALID_ARGUMENT),
                ([], grpc.StatusCode.INVALID_ARGUMENT),
            ]:
                with pytest.raises(grpc.RpcError) as failure:
                    asked(running, tmp_path, workers)
                assert status(failure)[0] is code
            with pytest.raises(grpc.RpcError) as failure:
                asked(running, tmp_path.parent, [running.address])
            assert status(failure)[0] is grpc.StatusCode.FAILED_PRECONDITION
            assert called == []
            assert not asked(running, tmp_path, [known]).error_message
        assert called == [known]
    assert len(list((tmp_path / "s").iterdir())) == 1


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("client", list(CLIENTS))
def test_a_stock_client_captures_its_worker_list(client: str, tmp_path: Path) -> None:
    pytest.importorskip(client)
    root = tmp_path / "plugins" / "profile"
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(profiler(answer_with(xspace()))) for _ in "ab")
        other = stack.enter_context(agent(two))
        settings = {"allow_root": str(root), "allow_workers": other.address}
        first = stack.enter_context(agent(one, **settings))
        workers = [first.address, other.address]
        done = subprocess.run(
            [sys.executable, "-c", CLIENTS[client], ",".join(workers), str(tmp_path)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "TF_CPP_MIN_LOG_LEVEL": "3",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr
    names = {f"{worker.replace(':', '_')}.xplane.pb" for worker in workers}
    assert {file.name for file in root.glob("*/*.xplane.pb")} == names
