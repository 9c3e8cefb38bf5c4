import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from podscope_agent import status
from podscope_agent.inventory import KnownTarget
from podscope_agent.status import StatusPages


async def no_targets() -> list[KnownTarget]:
    return []


@contextlib.asynccontextmanager
async def pages() -> AsyncIterator[int]:
    served = StatusPages("127.0.0.1", 0, CollectorRegistry(), no_targets)
    await served.start()
    yield served.port
    await served.stop()


def test_clients_that_fall_silent_or_hang_up_leave_no_trace(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status._Handler, "timeout", 0.05)

    def visit(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as silent:
            assert silent.recv(1) == b""  # the server gives up on it
        with socket.create_connection(("127.0.0.1", port), timeout=60) as rude:
            rude.sendall(b"GET /metrics HT")
            # Closing resets the connection.
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        answer = httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False)
        assert answer.json() == {"status": "ok"}

    async def scenario() -> None:
        async with pages() as port:
            await asyncio.to_thread(visit, port)

    asyncio.run(scenario())
    assert capfd.readouterr() == ("", "")
