"""How far another host's clock is from ours, by pings; and how well hosts started together."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ping:
    """One exchange, Unix times in nanoseconds.

    Attributes:
        sent_ns: By our clock, before the request.
        remote_received_ns: By the other's clock, when it read the request.
        remote_sent_ns: By the other's clock, when it wrote the answer.
        received_ns: By our clock, when the answer was there.
    """

    sent_ns: int
    remote_received_ns: int
    remote_sent_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Time on the way, both directions together."""
        return (self.received_ns - self.sent_ns) - (self.remote_sent_ns - self.remote_received_ns)


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The other clock minus ours.

    Attributes:
        offset_ns: Add it to our time to get the other's.
        error_ns: The offset is right to within this, either way.
    """

    offset_ns: int
    error_ns: int


def offset_of(pings: Iterable[Ping]) -> ClockOffset | None:
    """The offset by the ping with the shortest round trip; None without a usable ping.

    The way there and the way back are taken for equally long; at worst one of them took all of
    the round trip, so half of it bounds the error.
    """
    usable = [ping for ping in pings if ping.round_trip_ns >= 0]
    if not usable:
        return None
    best = min(usable, key=lambda ping: ping.round_trip_ns)
    remote = best.remote_received_ns + best.remote_sent_ns
    offset_ns = (remote - best.sent_ns - best.received_ns) // 2
    return ClockOffset(offset_ns, (best.round_trip_ns + 1) // 2)


def better(one: ClockOffset | None, other: ClockOffset | None) -> ClockOffset | None:
    """The offset with the smaller error, of two that were measured shortly after one another."""
    known = [offset for offset in (one, other) if offset is not None]
    return min(known, key=lambda offset: offset.error_ns, default=None)


def between(before: ClockOffset | None, after: ClockOffset | None) -> ClockOffset | None:
    """The offset during a capture, from those before and after it; drift widens the error."""
    if before is None or after is None:
        return before or after
    drift_ns = abs(after.offset_ns - before.offset_ns)
    return ClockOffset(
        (before.offset_ns + after.offset_ns) // 2,
        max(before.error_ns, after.error_ns) + (drift_ns + 1) // 2,
    )


@dataclass(frozen=True, slots=True)
class HostWindow:
    """What one host recorded, by its own clock.

    Attributes:
        start_ns: Unix time of the session's start.
        stop_ns: And of its end; None when the profile does not tell.
        offset: Of its clock; None when it is unknown.
    """

    host: str
    start_ns: int
    stop_ns: int | None
    offset: ClockOffset | None


@dataclass(frozen=True, slots=True)
class Alignment:
    """How well the windows of a capture's hosts lie over each other.

    Attributes:
        hosts: Those whose profile tells its start.
        skew_ns: Between the first start and the last, clocks corrected where they are known.
        error_ns: The skew is right to within this; None when the clock of a host is unknown.
        common_start_ns: When the last of the common window had started, by the collector's clock.
        common_ns: How long all of these recorded; None when a profile does not tell its end.
        outside: Hosts that are not in the common window.
    """

    hosts: int
    skew_ns: int
    error_ns: int | None
    common_start_ns: int
    common_ns: int | None
    outside: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As the database and the API have it."""
        return {
            "hosts": self.hosts,
            "skew_ns": self.skew_ns,
            "error_ns": self.error_ns,
            "common_start_ns": self.common_start_ns,
            "common_ns": self.common_ns,
            "outside": list(self.outside),
        }


def align(windows: Sequence[HostWindow]) -> Alignment | None:
    """The alignment of a capture; None without a host that tells its start.

    The common window is that of the most hosts that record at one moment. The others miss them,
    and are outside: those that ended before, or that were captured again later.
    """
    if not windows:
        return None
    corrected = [
        (
            window.host,
            window.start_ns - _shift(window),
            None if window.stop_ns is None else window.stop_ns - _shift(window),
        )
        for window in windows
    ]
    starts = sorted(start for _, start, _ in corrected)
    common_start = _busiest(starts, sorted(_stops(corrected)))
    inside = [
        (host, stop)
        for host, start, stop in corrected
        if start <= common_start and (stop is None or max(stop, start + 1) > common_start)
    ]
    names = {host for host, _ in inside}
    stops = [stop for _, stop in inside if stop is not None]
    offsets = [window.offset for window in windows]
    known = [offset.error_ns for offset in offsets if offset is not None]
    return Alignment(
        hosts=len(windows),
        skew_ns=starts[-1] - starts[0],
        # Two clocks are compared, each with its own error.
        error_ns=2 * max(known) if known and len(known) == len(offsets) else None,
        common_start_ns=common_start,
        common_ns=max(0, min(stops) - common_start) if len(stops) == len(inside) else None,
        outside=tuple(host for host, _, _ in corrected if host not in names),
    )


def _stops(windows: Iterable[tuple[str, int, int | None]]) -> list[int]:
    return [max(stop, start + 1) for _, start, stop in windows if stop is not None]


def _busiest(starts: Sequence[int], stops: Sequence[int]) -> int:
    """The start at which most windows are open, the first of several; both are in order."""
    open_at = {start: n - bisect_right(stops, start) for n, start in enumerate(starts, start=1)}
    return max(open_at, key=open_at.__getitem__)


@dataclass(frozen=True, slots=True)
class ClockCheck:
    """What the profiles themselves say of the hosts' clocks, when they have been analysed.

    Attributes:
        basis: ``collective_ends`` or ``step_ends``: what the hosts do together.
        hosts: Those that were compared.
        ends: So many of them.
        residual_ns: How far two hosts' clocks still are apart, corrected as far as they were
            measured.
        error_ns: Right to within this.
        promised_ns: What the pings promised of two hosts; None where a clock was not measured.
        ahead: The host whose clock is most ahead.
        behind: And the one that is most behind.
        unplaced: Hosts that could not be compared.
        skew_ns: Between the first start and the last by the clocks of the common ends; None where
            only steps end together, or profiles do not tell their start.
    """

    basis: str
    hosts: int
    ends: int
    residual_ns: int
    error_ns: int
    promised_ns: int | None
    ahead: str
    behind: str
    unplaced: tuple[str, ...]
    skew_ns: int | None

    def to_json(self) -> dict[str, Any]:
        """As the database and the API have it."""
        return {**asdict(self), "unplaced": list(self.unplaced)}


def check_clocks(
    ends: Mapping[str, Any] | None,
    windows: Sequence[HostWindow],
    measured: Mapping[str, ClockOffset],
) -> ClockCheck | None:
    """Compare what the pings said with the ends that the hosts share; None without any.

    Nothing is corrected by it: a difference that remains is told, so that no slow host can be
    mistaken for a wrong clock and vanish.

    Args:
        ends: ``CommonEnds.to_json()``.
        windows: Of the hosts whose profiles tell.
        measured: Clocks by host, as far as they were.
    """
    if ends is None or len(ends["difference_ns"]) < 2:
        return None
    apart: dict[str, int] = ends["difference_ns"]
    ahead, behind = max(apart, key=apart.__getitem__), min(apart, key=apart.__getitem__)
    known = [measured[host].error_ns for host in apart if host in measured]
    starts = [
        window.start_ns - _shift(window) - apart[window.host]
        for window in windows
        if window.host in apart
    ]
    tells_start = ends["basis"] == "collective_ends" and len(starts) > 1
    return ClockCheck(
        basis=ends["basis"],
        hosts=len(apart),
        ends=ends["end_count"],
        residual_ns=apart[ahead] - apart[behind],
        error_ns=ends["error_ns"],
        promised_ns=2 * max(known) if len(known) == len(apart) else None,
        ahead=ahead,
        behind=behind,
        unplaced=tuple(ends["unplaced"]),
        skew_ns=max(starts) - min(starts) if tells_start else None,
    )


def _shift(window: HostWindow) -> int:
    return 0 if window.offset is None else window.offset.offset_ns
