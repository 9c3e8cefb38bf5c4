"""What a profile says of itself: when it was recorded, and what its profiler complains of."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from podscope_analyzers.xspace import XSpace

MAX_WARNINGS: Final = 20
MAX_WARNING_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class Statement:
    """What one profile says.

    Attributes:
        warnings: Errors and warnings that the profiler put into it.
        window_ns: Start and end of the profiler's session, Unix time by the host's clock; None
            for what is not told.
    """

    warnings: tuple[str, ...] = ()
    window_ns: tuple[int | None, int | None] = (None, None)


def statement_of(space: "XSpace") -> Statement:
    """What the profile says.

    Raises:
        XSpaceError: The plane that tells it is damaged.
    """
    complaints = [*space.errors, *space.warnings][:MAX_WARNINGS]
    environment = space.plane("Task Environment")
    told = {} if environment is None else environment.stats
    return Statement(
        tuple(text[:MAX_WARNING_LENGTH] for text in complaints),
        (_moment(told.get("profile_start_time")), _moment(told.get("profile_stop_time"))),
    )


def _moment(told: object) -> int | None:
    """A Unix time in nanoseconds that the database can hold."""
    return told if isinstance(told, int) and 0 < told < 2**62 else None
