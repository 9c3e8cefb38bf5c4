"""Where one host of a running capture is: its states, times and attempts, told at every change."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import structlog

from podscope_collector.captures.keeping import Kept
from podscope_collector.captures.outcome import Attempt, HostUpdate
from podscope_collector.captures.states import HostState, ReasonCode

log = structlog.get_logger(__name__)


class HostProgress:
    """The states of one host and of the parts of its profile.

    Args:
        first: Before anything has happened.
        on_update: Called at every change.

    Attributes:
        now: The latest.
        parts: Of the profile's further files, once it is stored.
    """

    def __init__(self, first: HostUpdate, on_update: Callable[[HostUpdate], None]) -> None:
        self.now = first
        self.parts: tuple[HostUpdate, ...] = ()
        self._on_update = on_update
        self._in_state_since = monotonic()
        self._timings: dict[str, float] = {}
        self._attempt_timings: dict[str, float] = {}
        self._attempt_began: datetime | None = None

    def begin_attempt(self, attempts: int) -> None:
        """Connect, for the ``attempts``-th time."""
        self._attempt_began = datetime.now(UTC)
        self._attempt_timings = {}
        self.move(
            HostState.CONNECTING,
            attempts=attempts,
            started_at=self.now.started_at or self._attempt_began,
        )

    def learn(self, **changes: object) -> None:
        """Take what is told with the next change of the state."""
        self.now = replace(self.now, **changes)  # type: ignore[arg-type] # checked by replace itself

    def done(self, kept: Kept) -> None:
        """Its profile is stored."""
        done: dict[str, Any] = {
            "reason": None,
            "message": None,
            "grpc_code": None,
            "finished_at": datetime.now(UTC),
        }
        # Before the host itself: whoever sees it done sees all of it.
        self.parts = tuple(
            replace(
                self.now,
                host=part.host,
                state=HostState.DONE,
                part_of=self.now.host,
                **done,
                **_stored(part),
            )
            for part in kept.parts
        )
        for part in self.parts:
            self._tell(part)
        self.move(HostState.DONE, **done, **_stored(kept))

    def end(
        self, state: HostState, reason: ReasonCode, message: str, grpc_code: str | None = None
    ) -> None:
        """It ended without a profile, and why."""
        self.move(
            state,
            reason=reason,
            message=message,
            grpc_code=grpc_code,
            finished_at=datetime.now(UTC),
        )

    def move(
        self, state: HostState, *, ended_as: HostState | None = None, **changes: object
    ) -> None:
        """Enter a state; an attempt that is over with it ended ``ended_as``."""
        now = monotonic()
        before = str(self.now.state)
        for timings in (self._timings, self._attempt_timings):
            timings[before] = timings.get(before, 0.0) + now - self._in_state_since
        self._in_state_since = now
        self.now = replace(self.now, state=state, timings_ms=_rounded(self._timings), **changes)  # type: ignore[arg-type] # checked by replace itself
        if state.is_final or ended_as is not None:
            self._end_attempt(ended_as or state)
        self._tell(self.now)

    def _tell(self, update: HostUpdate) -> None:
        try:
            self._on_update(update)
        except Exception:
            log.exception("update_callback_failed", target=update.target)

    def _end_attempt(self, state: HostState) -> None:
        """Add the attempt that is over to the history; a host may end between two."""
        if self._attempt_began is None:
            return
        attempt = Attempt(
            number=self.now.attempts,
            state=state,
            reason=self.now.reason,
            message=self.now.message,
            grpc_code=self.now.grpc_code,
            bytes=self.now.bytes,
            timings_ms=_rounded(self._attempt_timings),
            started_at=self._attempt_began,
            finished_at=datetime.now(UTC),
        )
        self._attempt_began = None
        self.now = replace(self.now, history=(*self.now.history, attempt))


def _stored(kept: Kept) -> dict[str, Any]:
    return {
        "bytes": kept.file.size,
        "sha256": kept.file.sha256,
        "file": kept.file.path,
        "warnings": kept.warnings,
        "window_ns": kept.window_ns,
    }


def _rounded(seconds: Mapping[str, float]) -> dict[str, int]:
    return {name: round(1000 * spent) for name, spent in seconds.items()}
