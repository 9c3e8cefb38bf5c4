"""Refuses captures that would cost the job too much."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import psutil

from podscope_agent.rpc import RpcFailure

_SHARE_WINDOW_S = 3600.0


@dataclass(frozen=True)
class Budget:
    """What captures may cost; 0 for no limit.

    Attributes:
        max_duration_s: Of one window.
        min_interval_s: From the end of one capture to the start of the next.
        max_time_ratio: Of the last hour that was captured, this one included, 0-1.
        min_free_memory_bytes: Available to the host.
        min_free_disk_bytes: Where profiles are kept.
    """

    max_duration_s: float = 3600.0
    min_interval_s: float = 0.0
    max_time_ratio: float = 0.0
    min_free_memory_bytes: int = 0
    min_free_disk_bytes: int = 0


class OverheadGuard:
    """Knows what was captured lately, and what a further capture would make of it.

    Attributes:
        spent_s: Windows of all captures so far.
    """

    def __init__(self, budget: Budget, free_disk_bytes: Callable[[], int] | None = None) -> None:
        """Hold captures to `budget`; `free_disk_bytes` tells what is left for profiles."""
        self.budget = budget
        self._free_disk_bytes = free_disk_bytes
        self._windows: deque[tuple[float, float]] = deque()
        self._last_end: float | None = None
        self.spent_s = 0.0

    @property
    def budget_s(self) -> float | None:
        """Seconds of each hour that may be captured; None without such a limit."""
        return self.budget.max_time_ratio * _SHARE_WINDOW_S or None

    def admit(self, duration_s: float) -> None:
        """Let a capture of this length begin.

        Raises:
            RpcFailure: It breaks the budget; RESOURCE_EXHAUSTED, with the limit and when to try
                again.
        """
        budget = self.budget
        if budget.max_duration_s and duration_s > budget.max_duration_s:
            _refuse(
                f"a window of {duration_s:g} s is longer than this agent allows "
                f"({budget.max_duration_s:g} s)"
            )
        now = time.monotonic()
        if budget.min_interval_s and self._last_end is not None:
            wait_s = self._last_end + budget.min_interval_s - now
            if wait_s > 0:
                _refuse(
                    f"captures of this host are at least {budget.min_interval_s:g} s apart; "
                    f"try again in {wait_s:.0f} s"
                )
        if self.budget_s is not None:
            self._hold_to_share(duration_s, self.budget_s, now)
        if budget.min_free_memory_bytes:
            free = psutil.virtual_memory().available
            if free < budget.min_free_memory_bytes:
                _refuse(
                    f"{free >> 20} MiB of memory are available, and this agent keeps "
                    f"{budget.min_free_memory_bytes >> 20} MiB free"
                )
        if budget.min_free_disk_bytes and self._free_disk_bytes is not None:
            free = self._free_disk_bytes()
            if free < budget.min_free_disk_bytes:
                _refuse(
                    f"{free >> 20} MiB of disk are free, and this agent keeps "
                    f"{budget.min_free_disk_bytes >> 20} MiB free"
                )

    def refusal(self, duration_s: float) -> str:
        """Why a capture of this length would not be let in now; empty when it would."""
        try:
            self.admit(duration_s)
        except RpcFailure as failure:
            return failure.details
        return ""

    def ended(self, duration_s: float) -> None:
        """Count a capture that ended now, with what of its window was recorded."""
        now = time.monotonic()
        self._last_end = now
        self.spent_s += duration_s
        self._windows.append((now, duration_s))
        self._forget_before(now)

    def _hold_to_share(self, duration_s: float, budget_s: float, now: float) -> None:
        if duration_s > budget_s:
            _refuse(
                f"a window of {duration_s:g} s is longer than the {budget_s:g} s of each hour that "
                "this agent may capture; capture shorter"
            )
        self._forget_before(now)
        captured_s = left_s = sum(seconds for _, seconds in self._windows)
        if captured_s + duration_s <= budget_s:
            return
        for ended, seconds in self._windows:
            left_s -= seconds
            if left_s + duration_s <= budget_s:
                _refuse(
                    f"{captured_s:.1f} s of the last hour were captured, and this agent may "
                    f"capture {budget_s:g} s of each; capture shorter, or try again in "
                    f"{ended + _SHARE_WINDOW_S - now:.0f} s"
                )

    def _forget_before(self, now: float) -> None:
        while self._windows and self._windows[0][0] < now - _SHARE_WINDOW_S:
            self._windows.popleft()


def _refuse(text: str) -> None:
    raise RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
