"""What the hosts of one running capture share: width, memory, the start line, the last moment."""

import asyncio
from collections.abc import Callable
from time import monotonic

from podscope_collector.agent_access import AgentAccess
from podscope_collector.captures.admission import (
    BUCKET_RATE,
    FOLDER_RATE,
    ByteBudget,
    ExpectedSize,
    StartLine,
)
from podscope_collector.captures.agents import PingTurns
from podscope_collector.captures.descriptors import affordable_width
from podscope_collector.captures.keeping import Keeper, warm_up
from podscope_collector.captures.limits import FanoutLimits
from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.request import MAX_DURATION_MS, CaptureRequest
from podscope_collector.captures.step_window import StepWindow
from podscope_collector.memory import MemoryGuard

OnUpdate = Callable[[HostUpdate], None]


class Flight:
    """What the hosts of one capture share."""

    def __init__(
        self,
        request: CaptureRequest,
        session: str,
        on_update: OnUpdate,
        limits: FanoutLimits,
        count: int,
        keeper: Keeper,
    ) -> None:
        self.request = request
        self.session = session
        self.on_update = on_update
        self.limits = limits
        self.keeper = keeper
        width = affordable_width(min(count, limits.width))
        self.width = asyncio.Semaphore(width)
        # Those that must start together were counted beforehand; others leave room for what a
        # message takes beyond its bytes while it arrives.
        room = limits.byte_budget if request.synchronized else limits.byte_budget // 2
        # A profile that has to wait at its host must still come before the host's deadline.
        lead_ms = min(request.delay_ms + request.duration_ms, request.timeout_ms // 2)
        first_rate = BUCKET_RATE if keeper.storage.folder is None else FOLDER_RATE
        self.budget = ByteBudget(room, lead_ms / 1000, first_rate)
        self.ping_turns = PingTurns()
        self.memory = MemoryGuard(room)
        self.fetches = asyncio.Semaphore(limits.fetches)
        self.agent_access = AgentAccess()
        self.host_bytes = request.expected_host_bytes or limits.expected_host_bytes
        self.sizes = ExpectedSize(self.budget, self.host_bytes)
        # Who wants all together wants those that are slow to connect too.
        patience_s = limits.connect_timeout_s if request.synchronized else limits.start_patience_s
        self.start_line = StartLine(min(count, width), patience_s, request.delay_ms)
        self.steps = (
            None if request.steps is None else StepWindow(request.steps, request.duration_ms)
        )
        whole_ms = request.delay_ms + request.duration_ms + request.timeout_ms
        # No attempt begins later than this; one that has begun has its own deadline.
        self.last_start = monotonic() + whole_ms / 1000
        # Who gives a host little time to answer means its connection too.
        self.connect_timeout_s = min(limits.connect_timeout_s, max(1.0, request.timeout_ms / 1000))
        self._warming: asyncio.Future[None] | None = None

    def window_ms(self, times: int) -> int:
        """How long a host records; hosts without events get ``times`` the window."""
        window_ms = self.request.duration_ms if self.steps is None else self.steps.duration_ms
        return min(times * window_ms, MAX_DURATION_MS)

    def warm_up(self) -> None:
        """Load the check of XSpaces while the windows are open; once."""
        if self._warming is None:
            loop = asyncio.get_running_loop()
            self._warming = loop.run_in_executor(None, warm_up)
