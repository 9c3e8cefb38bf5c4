"""Bounds of one capture's use of this machine."""

from dataclasses import dataclass
from typing import Final, Self

from podscope_collector.settings import CollectorSettings

PIECE_BYTES: Final = 1 << 20
"""What an agent's profile holds in memory here: it comes in pieces."""


@dataclass(frozen=True, slots=True)
class FanoutLimits:
    """How much one capture may do at once.

    Attributes:
        width: Hosts in flight at once.
        byte_budget: Bytes of profiles in memory at once; beyond it hosts wait to be started.
        expected_host_bytes: What a host is taken for until its profile has arrived.
        connect_timeout_s: For a connection to come up.
        start_patience_s: How long connected hosts wait for those still connecting.
        fetches: Profiles that agents send at once.
    """

    width: int = 1024
    byte_budget: int = 1 << 30
    expected_host_bytes: int = 4 << 20
    connect_timeout_s: float = 10.0
    start_patience_s: float = 1.0
    fetches: int = 32

    @classmethod
    def of(cls, settings: CollectorSettings, host_bytes: int | None = None) -> Self:
        """The limits of a collector.

        Args:
            settings: Its settings.
            host_bytes: What a host brings, where an earlier capture told.
        """
        return cls(
            width=settings.capture_width,
            byte_budget=settings.capture_memory_bytes,
            expected_host_bytes=host_bytes or cls().expected_host_bytes,
        )
