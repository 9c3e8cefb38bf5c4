"""When a profile was recorded, as it tells itself."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podscope_analyzers.xspace import XSpace


def recorded_window_ns(space: "XSpace") -> tuple[int | None, int | None]:
    """Start and end of the profiler's session, Unix time by the host's clock; None where untold.

    Raises:
        XSpaceError: The plane that tells it is damaged.
    """
    environment = space.plane("Task Environment")
    told = {} if environment is None else environment.stats
    return _moment(told.get("profile_start_time")), _moment(told.get("profile_stop_time"))


def _moment(told: object) -> int | None:
    """A Unix time in nanoseconds that the database can hold."""
    return told if isinstance(told, int) and 0 < told < 2**62 else None
