"""The time of day, always in UTC."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Now, with its zone."""
    return datetime.now(UTC)
