"""States and reasons of a capture and of each of its hosts; closed lists that cross the API."""

from enum import StrEnum


class HostState(StrEnum):
    """Where one host of a capture is; the last five are final.

    ``skipped``: a lookup found it and it cannot be captured (a pod that does not run); no quorum
    counts it.
    """

    PENDING = "pending"
    CONNECTING = "connecting"
    ARMED = "armed"
    CAPTURING = "capturing"
    RECEIVING = "receiving"
    STORING = "storing"
    DONE = "done"
    EMPTY = "empty"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to the host."""
        return self in _FINAL


_FINAL = frozenset(
    {
        HostState.DONE,
        HostState.EMPTY,
        HostState.FAILED,
        HostState.SKIPPED,
        HostState.CANCELLED,
    }
)


class CaptureState(StrEnum):
    """Where a capture as a whole is.

    ``complete``: every host is done; ``partial``: some failed and the quorum is met;
    ``failed``: the quorum is not met.
    """

    PENDING = "pending"
    CAPTURING = "capturing"
    COMPLETE = "complete"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AnalysisState(StrEnum):
    """Where the analysis of a capture, or of one of its hosts, is."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class ReasonCode(StrEnum):
    """Why a host is not ``done``."""

    UNRESOLVED = "unresolved"
    NOT_RUNNING = "not_running"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    BUSY = "busy"
    DEADLINE = "deadline"
    UNIMPLEMENTED = "unimplemented"
    INVALID_ARGUMENT = "invalid_argument"
    UNAUTHENTICATED = "unauthenticated"
    EMPTY_TRACE = "empty_trace"
    TOO_LARGE = "too_large"
    CORRUPT = "corrupt"
    RESET = "reset"
    STORAGE = "storage"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    BUDGET = "budget"
    STEPS = "steps"
    INTERNAL = "internal"
