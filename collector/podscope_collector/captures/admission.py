"""Who may start when: the byte budget and the common start of a capture."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

_ENOUGH_ANSWERS: Final = 16
_TELLING_BYTES: Final = 32 << 20
FOLDER_RATE: Final = 512 << 20
BUCKET_RATE: Final = 64 << 20
"""What is taken for the rate of storing, in bytes a second, until that many bytes have told it:
what a machine of two cores writes to its disk, and what a connection of 1 Gbit/s carries well."""


class ByteBudget:
    """Bounds the bytes of profiles in memory, and with them how many hosts record at once.

    A host that records holds no memory here: only the bytes of hosts whose profiles arrive count
    against the limit. So more hosts are started than the limit has room for, by what is expected
    to be stored before their profiles come; beyond that hosts wait to be started. Where storing
    turns out slower, a profile waits at its host to be read.

    Args:
        limit: Bytes in memory for all hosts together. One host is always let in.
        lead_s: From a host's start until its profile arrives; 0 starts only hosts that there is
            room for.
        first_rate: What is taken for bytes stored in a second before the first are; hosts for
            as much as the limit again are started ahead by it at most.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        limit: int,
        lead_s: float = 0.0,
        first_rate: int = FOLDER_RATE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._lead_s = lead_s
        self._started = _Turns()
        self._arriving = _Turns()
        self._drain = _DrainRate(clock, min(limit, int(lead_s * first_rate)))

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator["Reservation"]:
        """Start a host of ``size`` bytes, or of what was learned; first come first."""
        held = await self._started.take(size, self._fits_started)
        reservation = Reservation(self, held)
        try:
            yield reservation
        finally:
            reservation.end()

    def learn(self, size: int) -> None:
        """Take the hosts that are not started yet for this size, whatever was said before."""
        self._started.take_all_for(max(1, size))
        self._started.admit(self._fits_started)

    def expected(self, size: int) -> int:
        """What a host that was taken for ``size`` bytes is taken for now."""
        return self._started.learned or size

    async def arrive(self, size: int) -> None:
        """Wait until a profile of ``size`` bytes has room in memory; first come first."""
        await self._arriving.take(size, self._fits_arriving)
        self._drain.begin()

    def change(self, by: int, *, has_arrived: bool) -> None:
        """Account a host that turned out larger (or smaller) than it was taken for."""
        self._started.used += by
        if has_arrived:
            self._arriving.used += by
        self._admit()

    def release(self, size: int, *, has_arrived: bool, was_read: bool) -> None:
        """A host is over; its profile, when it had arrived, is out of memory."""
        self._started.used -= size
        if has_arrived:
            self._arriving.used -= size
            # Room for what did not come through says nothing of how fast profiles are stored.
            self._drain.end(size if was_read else 0)
        self._admit()

    def _fits_started(self, size: int) -> bool:
        ahead = self._drain.bytes_within(self._lead_s)
        return self._started.used == 0 or self._started.used + size <= self._limit + ahead

    def _fits_arriving(self, size: int) -> bool:
        return self._arriving.used == 0 or self._arriving.used + size <= self._limit

    def _admit(self) -> None:
        self._arriving.admit(self._fits_arriving)
        self._started.admit(self._fits_started)


class Reservation:
    """A share of the budget that one host holds.

    Attributes:
        size: Bytes that the host is taken for, or that have arrived.
    """

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self._has_arrived = False
        self._was_read = False
        self.size = size

    async def arrives(self) -> None:
        """Wait for room in memory, with a profile that is there to be read."""
        # Others may have told since its start how large profiles are.
        self.becomes(self._budget.expected(self.size))
        await self._budget.arrive(self.size)
        self._has_arrived = True

    def becomes(self, size: int) -> None:
        """Correct the estimate by the size that arrived."""
        self._was_read = self._has_arrived
        by, self.size = size - self.size, size
        self._budget.change(by, has_arrived=self._has_arrived)

    def end(self) -> None:
        """Give the share back."""
        self._budget.release(self.size, has_arrived=self._has_arrived, was_read=self._was_read)


class _Turns:
    """Bytes in use, and who waits for some.

    Attributes:
        used: Bytes.
        learned: What everybody is taken for, whatever they say; None for what they say.
    """

    def __init__(self) -> None:
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[int]]] = deque()
        self.learned: int | None = None

    async def take(self, size: int, fits: Callable[[int], bool]) -> int:
        """Wait for a turn; the bytes that were taken."""
        size = self.learned or size
        if not self._waiting and fits(size):
            self.used += size
            return size
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.used -= turn.result()
            else:
                self._waiting.remove(entry)
            self.admit(fits)
            raise

    def take_all_for(self, size: int) -> None:
        """Go by this size for who waits and who comes."""
        self.learned = size

    def admit(self, fits: Callable[[int], bool]) -> None:
        """Let in whoever has room now."""
        while self._waiting:
            size, turn = self._waiting[0]
            size = self.learned or size
            if not fits(size):
                return
            self._waiting.popleft()
            if not turn.done():
                self.used += size
                turn.set_result(size)


class _DrainRate:
    """How fast profiles leave memory while there are some.

    Args:
        clock: Monotonic seconds.
        first: What ``bytes_within`` says until enough have left.
    """

    def __init__(self, clock: Callable[[], float], first: int) -> None:
        self._clock = clock
        self._first = first
        self._inside = 0
        self._busy_since = 0.0
        self._busy_s = 0.0
        self._bytes = 0

    def begin(self) -> None:
        """A profile comes in."""
        if not self._inside:
            self._busy_since = self._clock()
        self._inside += 1

    def end(self, size: int) -> None:
        """A profile of ``size`` bytes is out."""
        self._bytes += size
        self._inside -= 1
        if not self._inside:
            self._busy_s += self._clock() - self._busy_since

    def bytes_within(self, seconds: float) -> int:
        """What is expected to leave memory within so long."""
        busy_s = self._busy_s
        if self._inside:
            busy_s += self._clock() - self._busy_since
        if self._bytes < _TELLING_BYTES or not busy_s:
            return self._first
        return int(seconds * self._bytes / busy_s)


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
