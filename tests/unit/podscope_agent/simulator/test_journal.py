"""The journal tells who asked which host when, and how many asked it at once."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from podscope_agent.errors import SimulationError
from podscope_agent.simulator import Pod, serving
from podscope_agent.simulator.journal import Journal
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


def test_every_request_is_a_line_with_its_end_and_the_others_that_ran(tmp_path: Path) -> None:
    def request(session: str, duration_ms: int) -> bytes:
        opts = wire.ProfileOptions(version=1, duration_ms=duration_ms, host_tracer_level=2)
        message = wire.ProfileRequest(opts=opts, emit_xspace=True, session_id=session)
        return message.SerializeToString()

    async def scenario(journal: Journal) -> None:
        async with (
            serving(Pod("cpu", hosts=2, steps=0), journal=journal) as pod,
            grpc.aio.insecure_channel(pod.hosts[0].address) as first,
            grpc.aio.insecure_channel(pod.hosts[1].address) as second,
        ):
            ask = first.unary_unary(methods.PROFILE, None, None)
            long = ask(request("cancelled", 600_000), timeout=120)
            await until(lambda: pod.is_capturing(0))
            with pytest.raises(grpc.aio.AioRpcError):
                await ask(request("busy", 10), timeout=120)
            long.cancel()
            other = second.unary_unary(methods.PROFILE, None, None)
            await other(request("answered", 10), timeout=120)
            await until(lambda: not pod.is_capturing(0))

    began_ns = time.time_ns()
    journal = Journal(tmp_path / "journal")
    asyncio.run(scenario(journal))
    journal.close()
    lines = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    found = {line["session"]: line for line in lines}
    assert {name: (line["host"], line["at_once"]) for name, line in found.items()} == {
        "cancelled": (0, 0),
        "busy": (0, 1),
        "answered": (1, 0),
    }
    assert found["answered"]["ended_as"] == "answered"
    assert found["cancelled"]["ended_as"] == "CancelledError"
    assert found["busy"]["ended_as"] not in {"answered", "CancelledError"}
    for line in lines:
        assert began_ns < line["began_ns"] <= line["ended_ns"] < time.time_ns()


def test_a_journal_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("mine")
    with pytest.raises(SimulationError, match="choose another --journal"):
        Journal(tmp_path / "journal")
    assert (tmp_path / "journal").read_text() == "mine"
