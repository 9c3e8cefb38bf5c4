"""Quorum: how many hosts must be done for a capture that lost some to count as partial."""

import re
from collections.abc import Iterable

from podscope_collector.captures.states import CaptureState, HostState

_NUMBER = re.compile(r"^[0-9]{1,9}$")
_PERCENT = re.compile(r"^([0-9]{1,9})%$")


def checked_quorum(text: str) -> str:
    """The quorum in its one spelling: ``all``, ``any``, a number or ``P%``.

    Raises:
        ValueError: It is none of these; one clear line.
    """
    quorum = text.strip().lower()
    if quorum in {"all", "any"}:
        return quorum
    if _NUMBER.match(quorum) and int(quorum) > 0:
        return str(int(quorum))
    percent = _PERCENT.match(quorum)
    if percent is not None and 1 <= int(percent.group(1)) <= 100:
        return f"{int(percent.group(1))}%"
    msg = f"quorum '{text[:40]}' is not understood; write all, any, a number of hosts or 1% to 100%"
    raise ValueError(msg)


def required_hosts(quorum: str, total: int) -> int:
    """How many of ``total`` hosts must be done."""
    if quorum == "all":
        return total
    if quorum == "any":
        return 1
    if quorum.endswith("%"):
        # Rounded up: half of three hosts is two.
        return max(1, -(-int(quorum[:-1]) * total // 100))
    return int(quorum)


def decide(quorum: str, states: Iterable[HostState]) -> CaptureState:
    """What the final states of all hosts make of the capture."""
    finals = [state for state in states if state is not HostState.SKIPPED]
    done = sum(state is HostState.DONE for state in finals)
    # Lookups may find fewer hosts than the quorum asks for: all of them are still too few.
    if done and done >= required_hosts(quorum, len(finals)):
        return CaptureState.COMPLETE if done == len(finals) else CaptureState.PARTIAL
    if any(state is HostState.CANCELLED for state in finals):
        return CaptureState.CANCELLED
    return CaptureState.FAILED
