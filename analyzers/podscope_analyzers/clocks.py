"""Clocks of hosts as they were measured: what times of different hosts need to be compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Further apart than this a clock is not off, it is not set; and picoseconds would overflow.
_MAX_APART_NS: Final = 24 * 3600 * 10**9


@dataclass(frozen=True)
class HostClock:
    """One host's clock against the one that all hosts were compared with.

    Attributes:
        offset_ns: The host's clock minus that one.
        error_ns: The offset is right to within this, either way.
    """

    offset_ns: int
    error_ns: int


@dataclass(frozen=True)
class Shift:
    """What puts a host's times on the clock that all hosts share.

    Attributes:
        shift_ps: Add it to picoseconds from the host's base.
        error_ps: The sum is right to within this, either way.
    """

    shift_ps: int
    error_ps: int


def shifts(bases_ns: Mapping[str, int | None], clocks: Mapping[str, HostClock]) -> dict[str, Shift]:
    """The shift of every host whose clock and base are known, relative to the earliest base.

    Args:
        bases_ns: Unix time of the zero of each host's times, by its own clock.
        clocks: Those that were measured, by host.
    """
    starts = {
        host: base - clocks[host].offset_ns
        for host, base in bases_ns.items()
        if base is not None and host in clocks
    }
    if not starts:
        return {}
    middle = sorted(starts.values())[len(starts) // 2]
    near = {host: start for host, start in starts.items() if abs(start - middle) <= _MAX_APART_NS}
    first = min(near.values())
    return {
        host: Shift((start - first) * 1000, clocks[host].error_ns * 1000)
        for host, start in near.items()
    }
