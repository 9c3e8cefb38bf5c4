"""What the API says about captures and their hosts."""

import uuid
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel

from podscope_collector.captures.models import Capture, CaptureAttempt, CaptureHost, Trigger
from podscope_collector.captures.states import AnalysisState, CaptureState, HostState, ReasonCode


class CaptureAnalysis(BaseModel):
    """Where the analysis of a capture is."""

    state: AnalysisState
    hosts_done: int
    hosts_total: int
    error: str | None


class CategoryShare(BaseModel):
    """Share of the step time that goes to one category, 0-1."""

    category: str
    ratio: float


class ClockCheckView(BaseModel):
    """How far the hosts' clocks still are apart, by the ends of what they do together.

    ``promised_ns`` is null when a host's clock was not measured, ``skew_ns`` when only steps end
    together or profiles do not tell their start.
    """

    basis: str
    hosts: int
    ends: int
    residual_ns: int
    error_ns: int
    promised_ns: int | None
    ahead: str
    behind: str
    unplaced: list[str]
    skew_ns: int | None


class CaptureSummary(BaseModel):
    """Figures of the whole capture; null where they cannot be computed."""

    device_type: str | None = None
    step_count: int | None = None
    step_time_ms: float | None = None
    duty_cycle_ratio: float | None = None
    flops_per_second: float | None = None
    breakdown: list[CategoryShare] = []
    slow_host: str | None = None
    clock_check: ClockCheckView | None = None


class AlignmentView(BaseModel):
    """How well the windows of the hosts lie over each other.

    ``error_ns`` is null when the clock of a host is unknown, ``common_ns`` when a profile does not
    tell its end.
    """

    hosts: int
    skew_ns: int
    error_ns: int | None
    common_start_ns: int
    common_ns: int | None
    outside: list[str]


class AskedOptions(BaseModel):
    """How the hosts were asked to record; null where the request did not say, as of an import."""

    host_tracer_level: int | None = None
    device_tracer_level: int | None = None
    python_tracer_level: int | None = None
    delay_ms: int | None = None
    timeout_ms: int | None = None
    synchronized: bool | None = None
    retry_empty: bool | None = None
    advanced_configuration: dict[str, bool | int | str] = {}


class CaptureView(BaseModel):
    """A capture as the API shows it."""

    id: uuid.UUID
    session: str
    run: str
    state: CaptureState
    trigger: Trigger
    requested_by: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration_ms: int
    steps: int | None = None
    attempts: int
    quorum: str
    labels: dict[str, str]
    options: AskedOptions = AskedOptions()
    left_out: list[str]
    hosts_total: int
    hosts_done: int
    bytes: int
    error: str | None
    analysis: CaptureAnalysis
    summary: CaptureSummary | None
    alignment: AlignmentView | None
    schedule_id: uuid.UUID | None

    @classmethod
    def of(cls, capture: Capture, hosts_analyzed: int) -> Self:
        """The view of a row."""
        return cls(
            id=capture.id,
            session=capture.session,
            run=capture.run,
            state=capture.state,
            trigger=capture.trigger,
            requested_by=capture.request.get("requested_by"),
            created_at=capture.created_at,
            started_at=capture.started_at,
            finished_at=capture.finished_at,
            duration_ms=capture.duration_ms,
            steps=capture.request.get("steps"),
            attempts=capture.attempts,
            quorum=capture.quorum,
            labels=capture.labels,
            options=AskedOptions.model_validate(capture.request),
            left_out=capture.left_out,
            hosts_total=capture.hosts_total,
            hosts_done=capture.hosts_done,
            bytes=capture.bytes,
            error=capture.error,
            analysis=CaptureAnalysis(
                state=capture.analysis_state,
                hosts_done=hosts_analyzed,
                hosts_total=capture.hosts_done,
                error=capture.analysis_error,
            ),
            summary=None
            if capture.summary is None
            else CaptureSummary.model_validate(capture.summary),
            alignment=None
            if capture.alignment is None
            else AlignmentView.model_validate(capture.alignment),
            schedule_id=capture.schedule_id,
        )


class CapturePage(BaseModel):
    """A page of captures, newest first; ``next`` goes into ``before`` for the page after."""

    items: list[CaptureView]
    next: uuid.UUID | None


class HostAnalysis(BaseModel):
    """Where the analysis of a host is; ``state`` is null while it has no profile."""

    state: AnalysisState | None
    error: str | None


class HostView(BaseModel):
    """A host of a capture as the API shows it."""

    target: str
    given: str | None
    host: str
    state: HostState
    reason: ReasonCode | None
    message: str | None
    attempts: int
    bytes: int
    sha256: str | None
    grpc_code: str | None
    started_at: datetime | None
    finished_at: datetime | None
    timings_ms: dict[str, Any]
    file: str | None
    warnings: list[str]
    transfer: str | None
    clock_offset_ns: int | None
    clock_error_ns: int | None
    window_start_ns: int | None
    window_stop_ns: int | None
    analysis: HostAnalysis

    @classmethod
    def of(cls, host: CaptureHost) -> Self:
        """The view of a row."""
        return cls(
            target=host.target,
            given=host.given,
            host=host.host,
            state=host.state,
            reason=host.reason,
            message=host.message,
            attempts=host.attempts,
            bytes=host.bytes,
            sha256=host.sha256,
            grpc_code=host.grpc_code,
            started_at=host.started_at,
            finished_at=host.finished_at,
            timings_ms=host.timings_ms,
            file=host.file,
            warnings=host.warnings,
            transfer=host.transfer,
            clock_offset_ns=host.clock_offset_ns,
            clock_error_ns=host.clock_error_ns,
            window_start_ns=host.window_start_ns,
            window_stop_ns=host.window_stop_ns,
            analysis=HostAnalysis(state=host.analysis_state, error=host.analysis_error),
        )


class HostList(BaseModel):
    """The hosts of a capture in the order of its request."""

    items: list[HostView]


class AttemptView(BaseModel):
    """One try of one host, ended."""

    host: str
    number: int
    state: HostState
    reason: ReasonCode | None
    message: str | None
    grpc_code: str | None
    bytes: int
    timings_ms: dict[str, Any]
    started_at: datetime
    finished_at: datetime

    @classmethod
    def of(cls, host: str, attempt: CaptureAttempt) -> Self:
        """The view of a row."""
        return cls(
            host=host,
            number=attempt.number,
            state=attempt.state,
            reason=attempt.reason,
            message=attempt.message,
            grpc_code=attempt.grpc_code,
            bytes=attempt.bytes,
            timings_ms=attempt.timings_ms,
            started_at=attempt.started_at,
            finished_at=attempt.finished_at,
        )


class AttemptList(BaseModel):
    """Attempts by host, in the order of the request, and number."""

    items: list[AttemptView]
