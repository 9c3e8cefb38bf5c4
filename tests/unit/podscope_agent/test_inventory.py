import asyncio
import threading

import grpc.aio
import pytest

from podscope_agent import inventory
from podscope_agent.inventory import KnownTarget, TargetInventory, TargetState


def test_a_target_that_goes_while_two_ask_fails_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, may_go_on = threading.Semaphore(0), threading.Event()

    def owners_of_ports() -> dict[int, tuple[int, ...]]:
        looking.release()
        assert may_go_on.wait(60)
        return {}

    monkeypatch.setattr(inventory, "owners_of_ports", owners_of_ports)
    known = TargetInventory(["127.0.0.1:1"])
    known.put("key", KnownTarget("127.0.0.1:2", source="registered"))

    async def scenario() -> list[tuple[KnownTarget, ...]]:
        options = (("grpc.enable_http_proxy", 0),)
        channels = {
            target.address: grpc.aio.insecure_channel(target.address, options=options)
            for target in known.targets
        }
        asked: list[asyncio.Task[tuple[KnownTarget, ...]]] = []
        for _ in range(2):
            asked.append(asyncio.create_task(known.examined(channels.__getitem__, is_busy=False)))
            assert await asyncio.to_thread(looking.acquire, timeout=60)
            known.drop("registered", "key")
        may_go_on.set()
        answers = list(await asyncio.gather(*asked))
        for channel in channels.values():
            await channel.close(None)
        return answers

    first, second = asyncio.run(scenario())
    assert [target.address for target in first] == ["127.0.0.1:1", "127.0.0.1:2"]
    assert [target.address for target in second] == ["127.0.0.1:1"]
    assert {target.state for target in (*first, *second)} == {TargetState.UNREACHABLE}
