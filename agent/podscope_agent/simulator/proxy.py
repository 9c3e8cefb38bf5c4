"""A TCP relay in front of a server that loses or delays what the server sends."""

import asyncio
import contextlib
from typing import Final

_CHUNK: Final = 16 * 1024


class FlakyRelay:
    """Relays connections to a server on loopback.

    Args:
        target_port: The server's port on 127.0.0.1.
        bytes_per_second: Rate at which answers are passed on; None: at once.
    """

    def __init__(self, target_port: int, bytes_per_second: int | None = None) -> None:
        self._target_port = target_port
        self._rate = bytes_per_second
        self._server: asyncio.Server | None = None
        self._remaining: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def cut_after(self, byte_count: int) -> None:
        """Reset the connection once ``byte_count`` more bytes have been passed on."""
        self._remaining = byte_count

    async def stop(self) -> None:
        """Stop listening and drop all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (for the type checker: a callback always has a task)
        self._tasks.add(task)
        try:
            upstream_reader, upstream = await asyncio.open_connection(
                "127.0.0.1", self._target_port
            )
            request = asyncio.create_task(_copy(reader, upstream))
            try:
                await self._answer(upstream_reader, writer)
            finally:
                request.cancel()
                upstream.close()
        except (OSError, asyncio.CancelledError):
            # Either side left, or the simulator stops: nobody is there to be told.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK):
            if self._remaining is not None:
                chunk = chunk[: self._remaining]
                self._remaining -= len(chunk)
            writer.write(chunk)
            await writer.drain()
            if self._remaining == 0:
                self._remaining = None
                writer.transport.abort()
                return
            if self._rate is not None:
                await asyncio.sleep(len(chunk) / self._rate)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
