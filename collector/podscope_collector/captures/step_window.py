"""The window of a capture of a number of steps: as long as the slowest host needs for them."""

import math
from typing import Final

from podscope_collector.captures.agents import AgentLink
from podscope_collector.captures.reasons import Failure, NextStep
from podscope_collector.captures.states import ReasonCode

_SLACK: Final = 1.05
"""Steps differ a little from the one that was measured."""


class StepWindow:
    """Turns a number of steps into a duration that is the same on all hosts.

    Args:
        steps: Whole steps that the window is to hold.
        longest_ms: What the window may take at most.
    """

    def __init__(self, steps: int, longest_ms: int) -> None:
        self._steps = steps
        self._longest_ms = longest_ms
        self._step_s = 0.0

    def join(self, address: str, link: AgentLink | None) -> Failure | None:
        """Take in what the host's agent knows of its steps; why the host is left out, if it is."""
        if link is None:
            return _refusal(
                f"{address} is no podscope agent (or one that wants a token), and only an agent "
                "knows how long steps take: give a duration instead of steps, or put an agent "
                "on the host"
            )
        if link.step_time_s is None:
            return _refusal(
                f"the agent at {address} does not know yet how long a step takes: go over the "
                "batches with podscope.profiler.steps in a registered process, or capture once "
                "by duration through the service, whose analysis tells the agent"
            )
        if self._duration_ms(link.step_time_s) > self._longest_ms:
            needed_s = self._duration_ms(link.step_time_s) / 1000
            return _refusal(
                f"{self._steps:,} steps of {link.step_time_s:.3g} s at {address} need a window of "
                f"{needed_s:,.1f} s, and {self._longest_ms / 1000:,.1f} s are the longest allowed: "
                "ask for fewer steps or for a longer duration"
            )
        self._step_s = max(self._step_s, link.step_time_s)
        return None

    @property
    def duration_ms(self) -> int:
        """The window for all hosts that have joined so far."""
        return self._duration_ms(self._step_s)

    def _duration_ms(self, step_s: float) -> int:
        # The window begins in the middle of a step: one more makes sure of the whole ones.
        return math.ceil(1000 * step_s * (self._steps + 1) * _SLACK)


def _refusal(message: str) -> Failure:
    return Failure(ReasonCode.STEPS, NextStep.STOP, message)
