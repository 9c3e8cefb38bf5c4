"""Who may start when: the byte budget and the common start of a capture."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_ENOUGH_ANSWERS: Final = 16


class ByteBudget:
    """Bounds the bytes that hosts in flight may bring; beyond it hosts wait to be started.

    Args:
        limit: Bytes for all hosts together. One host is always let in.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._learned: int | None = None

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator["Reservation"]:
        """Hold ``size`` bytes, or what was learned, until the block ends; first come first."""
        held = self._learned or size
        if self._waiting or not self._fits(held):
            turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            entry = (size, turn)
            self._waiting.append(entry)
            try:
                held = await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give_back(turn.result())
                else:
                    self._waiting.remove(entry)
                raise
        else:
            self._used += held
        reservation = Reservation(self, held)
        try:
            yield reservation
        finally:
            self._give_back(reservation.size)

    def learn(self, size: int) -> None:
        """Take the hosts that are not started yet for this size, whatever was said before."""
        self._learned = max(1, size)
        self._admit()

    def grow(self, by: int) -> None:
        """Account a host that turned out larger (or smaller) than it was taken for."""
        self._used += by
        self._admit()

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._limit

    def _give_back(self, size: int) -> None:
        self._used -= size
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            held = self._learned or size
            if not self._fits(held):
                return
            self._waiting.popleft()
            if not turn.done():
                self._used += held
                turn.set_result(held)


class Reservation:
    """A share of the budget that one host holds."""

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self.size = size

    def becomes(self, size: int) -> None:
        """Correct the estimate by the size that arrived."""
        self._budget.grow(size - self.size)
        self.size = size


class ExpectedSize:
    """Learns from the hosts that have answered what the others will bring.

    Args:
        budget: Is told.
        size: What a host was taken for at first.
    """

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self._size = size
        self._count = self._total = self._largest = 0

    def arrived(self, size: int) -> None:
        """Take in one answer."""
        self._count += 1
        self._total += size
        self._largest = max(self._largest, size)
        # Small profiles come first: only several of them make the guess smaller, and to the
        # largest of them, while the guess grows with their mean.
        mean = self._total // self._count
        if mean > self._size:
            self._budget.learn(mean)
        elif self._count >= _ENOUGH_ANSWERS:
            self._budget.learn(min(self._size, self._largest))


class StartLine:
    """Lets all connected hosts go together, late ones at once.

    Args:
        expected: Hosts that are dialled at the same time.
        patience_s: How long the first to connect waits for the others.
        delay_ms: Between the start signal and the common start of the windows.
    """

    def __init__(self, expected: int, patience_s: float, delay_ms: int) -> None:
        self._missing = expected
        self._patience_s = patience_s
        self._delay_ns = delay_ms * 1_000_000
        self._open = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._start_ns = 0

    def settle(self) -> None:
        """Be expected no longer: connected, or failed on the way."""
        self._missing -= 1
        if self._missing <= 0:
            self._go()

    async def opened(self) -> None:
        """Wait, connected and with a share of the memory, for the start signal."""
        if not self._open.is_set() and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._patience_s, self._go)
        await self._open.wait()

    def start_timestamp_ns(self) -> int:
        """The common start, as Unix time; 0 (at once) without a delay or when it has passed."""
        return self._start_ns if self._start_ns > time.time_ns() else 0

    def _go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._open.is_set():
            if self._delay_ns:
                self._start_ns = time.time_ns() + self._delay_ns
            self._open.set()
