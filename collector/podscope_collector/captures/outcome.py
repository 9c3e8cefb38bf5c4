"""What a capture tells while it runs and when it has ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from podscope_collector.captures.clocks import Alignment, ClockOffset, HostWindow, align
from podscope_collector.captures.states import CaptureState, HostState, ReasonCode


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one host, ended.

    Attributes:
        number: From 1, counted on when a capture is repeated.
        state: How it ended: done, empty, failed or cancelled.
        timings_ms: Time spent in each state.
    """

    number: int
    state: HostState
    reason: ReasonCode | None
    message: str | None
    grpc_code: str | None
    bytes: int
    timings_ms: Mapping[str, int]
    started_at: datetime
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class HostUpdate:
    """One host at one moment; the latest replaces all before it.

    Attributes:
        target: ``host:port`` as it is dialled.
        host: Its name within the session, also the stem of its file.
        state: Where it is.
        attempts: Tries begun so far.
        reason: Why it is not done; also set while it waits for its next try.
        message: What happened and what to do, one line.
        grpc_code: Name of the status of the last failed RPC, e.g. ``UNAVAILABLE``.
        bytes: Size of the stored XSpace.
        sha256: Digest of the stored XSpace.
        file: Key of the stored file below the storage's root.
        warnings: Errors and warnings that the profiler itself put into the XSpace.
        timings_ms: Time spent so far in each state, over all attempts.
        started_at: When the first attempt began.
        finished_at: When it reached a final state.
        history: Every attempt that has ended, in order.
        transfer: How the profile came: ``unary``, ``stream`` or ``direct`` (written to the
            storage by an agent); None before that is known.
        clock: Offset of the host's clock; None when it is unknown.
        window_ns: Start and end of the host's session by its own clock, where the profile tells.
        part_of: The host that this is one process of, where its profile is too large for one file.
    """

    target: str
    host: str
    state: HostState = HostState.PENDING
    attempts: int = 0
    reason: ReasonCode | None = None
    message: str | None = None
    grpc_code: str | None = None
    bytes: int = 0
    sha256: str | None = None
    file: str | None = None
    warnings: tuple[str, ...] = ()
    timings_ms: Mapping[str, int] = field(default_factory=dict)
    started_at: datetime | None = None
    finished_at: datetime | None = None
    history: tuple[Attempt, ...] = ()
    transfer: str | None = None
    clock: ClockOffset | None = None
    window_ns: tuple[int | None, int | None] = (None, None)
    part_of: str | None = None

    @property
    def window(self) -> HostWindow | None:
        """What it recorded when; None when that is not known."""
        start_ns, stop_ns = self.window_ns
        return None if start_ns is None else HostWindow(self.host, start_ns, stop_ns, self.clock)

    def to_json(self) -> dict[str, object]:
        """The host as the REST API and ``--json`` show it."""
        return {
            "target": self.target,
            "host": self.host,
            "state": str(self.state),
            "reason": None if self.reason is None else str(self.reason),
            "message": self.message,
            "attempts": self.attempts,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "grpc_code": self.grpc_code,
            "started_at": None if self.started_at is None else self.started_at.isoformat(),
            "finished_at": None if self.finished_at is None else self.finished_at.isoformat(),
            "timings_ms": dict(self.timings_ms),
            "file": self.file,
            "warnings": list(self.warnings),
            "transfer": self.transfer,
            "clock_offset_ns": None if self.clock is None else self.clock.offset_ns,
            "clock_error_ns": None if self.clock is None else self.clock.error_ns,
            "window_start_ns": self.window_ns[0],
            "window_stop_ns": self.window_ns[1],
        }


@dataclass(frozen=True, slots=True)
class CaptureOutcome:
    """A capture that has ended.

    Attributes:
        session: Its folder below ``plugins/profile``.
        state: ``complete``, ``partial`` or ``failed`` by the request's quorum.
        hosts: Every host in its final state, in the order of the targets; behind it its parts.
        started_at: When the first host was dialled.
        finished_at: When the last host reached its final state.
    """

    session: str
    state: CaptureState
    hosts: tuple[HostUpdate, ...]
    started_at: datetime
    finished_at: datetime

    @property
    def alignment(self) -> Alignment | None:
        """How well the hosts started together; None when no profile tells."""
        windows = (host.window for host in self.hosts if host.state is HostState.DONE)
        return align([window for window in windows if window is not None])

    @property
    def bytes(self) -> int:
        """Size of all stored XSpaces."""
        return sum(host.bytes for host in self.hosts)
