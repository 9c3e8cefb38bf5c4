"""Whether all hosts of a capture can start together here: bytes, width and file descriptors."""

from collections.abc import Sequence
from typing import ClassVar

from podscope_collector.captures.addresses import Target
from podscope_collector.captures.descriptors import SPARE_DESCRIPTORS, affordable_width
from podscope_collector.captures.limits import PIECE_BYTES
from podscope_collector.errors import RequestError

_MIB = 1 << 20


class DoesNotFitError(RequestError):
    """A synchronized capture some of whose hosts would have to wait to be started."""

    code: ClassVar[str] = "does_not_fit"


def expected_bytes(target: Target, host_bytes: int) -> int:
    """What a target may hold in memory here; an agent's profile comes in pieces."""
    return min(PIECE_BYTES, host_bytes) if target.is_agent else host_bytes


def check_together(
    targets: Sequence[Target], host_bytes: int, *, byte_budget: int, width: int
) -> None:
    """Refuse a capture whose hosts cannot all be in flight at once.

    Args:
        targets: All hosts of the capture, as far as they are known.
        host_bytes: What one host's profile is taken for.
        byte_budget: Bytes of profiles in memory at once.
        width: Hosts in flight at once.

    Raises:
        DoesNotFitError: With the numbers, and which of them to change.
    """
    hosts = len(targets)
    if hosts > width:
        msg = (
            f"{hosts:,} hosts cannot start together: {width:,} may be in flight at once; raise "
            f"PODSCOPE_COLLECTOR_CAPTURE_WIDTH to {hosts:,}, or capture without 'synchronized'"
        )
        raise DoesNotFitError(msg)
    needed = sum(expected_bytes(target, host_bytes) for target in targets)
    if needed > byte_budget and hosts > 1:
        msg = (
            f"{hosts:,} hosts cannot start together: at {_mib(host_bytes)} each they may bring "
            f"{_mib(needed)}, and {_mib(byte_budget)} may be in memory at once; raise "
            f"PODSCOPE_COLLECTOR_CAPTURE_MEMORY_BYTES to {needed}, shorten the capture (say what "
            "one host brings with expected_host_bytes), put agents on the hosts, or capture "
            "without 'synchronized'"
        )
        raise DoesNotFitError(msg)


def check_descriptors(hosts: int) -> None:
    """Refuse a capture for whose hosts this process may not open enough connections.

    Raises:
        DoesNotFitError: With the limit to raise.
    """
    affordable = affordable_width(hosts)
    if affordable < hosts:
        msg = (
            f"{hosts:,} hosts cannot start together: the limit of open files allows {affordable:,} "
            f"connections; raise it (ulimit -n, LimitNOFILE=) to {hosts + SPARE_DESCRIPTORS:,}, or "
            "capture without 'synchronized'"
        )
        raise DoesNotFitError(msg)


def _mib(size: int) -> str:
    return f"{size / _MIB:,.0f} MiB" if size >= _MIB else f"{size:,} bytes"
