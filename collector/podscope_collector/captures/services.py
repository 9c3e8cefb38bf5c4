"""Creating captures, following their hosts, and deciding how they ended."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from podscope_collector.captures.addresses import Target, parse_address
from podscope_collector.captures.clocks import ClockOffset, HostWindow, align
from podscope_collector.captures.fitting import check_together
from podscope_collector.captures.limits import FanoutLimits
from podscope_collector.captures.lookups import PodLookup, parse_lookup
from podscope_collector.captures.models import Capture, CaptureHost, Trigger
from podscope_collector.captures.progress import (
    counted_hosts,
    next_revision,
    note_lost_attempts,
)
from podscope_collector.captures.queries import find_capture
from podscope_collector.captures.quorum import decide
from podscope_collector.captures.request import CaptureRequest
from podscope_collector.captures.resolving.found import Resolution
from podscope_collector.captures.states import AnalysisState, CaptureState, HostState, ReasonCode
from podscope_collector.errors import ConflictError
from podscope_collector.host_names import distinct_host_names, is_part_of
from podscope_collector.work.models import WorkKind
from podscope_collector.work.services import enqueue, forget

DEFAULT_RUN = "default"
_MAX_TARGET = 512
INTERRUPTED: Final = (
    "the collector's worker was lost during the capture, too late to begin again; repeat what "
    "failed with 'podscope captures retry'"
)
CANCELLED: Final = "the capture was cancelled"
TAKEN_OVER: Final = "the collector's worker was lost during this attempt"


def create_capture(
    session: Session,
    request: CaptureRequest,
    trigger: Trigger,
    now: datetime,
    *,
    name: str,
    schedule_id: uuid.UUID | None = None,
) -> Capture:
    """Store a capture with its hosts and the work to run it, all in one transaction.

    ``name`` is its session, as ``Storage.new_session`` gave it. A target that has to be looked
    up is one row until the capture begins; then the hosts that it stands for take its place.
    """
    wanted = request.parsed_targets()
    capture = Capture(
        session=name,
        run=request.labels.get("run") or DEFAULT_RUN,
        trigger=trigger,
        created_at=now,
        duration_ms=request.duration_ms,
        attempts=request.attempts,
        quorum=request.quorum,
        labels=dict(request.labels),
        request=request.model_dump(mode="json"),
        hosts_total=0,
        schedule_id=schedule_id,
    )
    session.add(capture)
    _add_hosts(
        capture,
        [
            *(CaptureHost(given=t.given, target=t.address) for t in wanted.targets),
            *(
                CaptureHost(given=one.given, target=one.given[:_MAX_TARGET], is_lookup=True)
                for one in wanted.lookups
            ),
        ],
        [*(t.shown_name for t in wanted.targets), *(one.given for one in wanted.lookups)],
    )
    session.flush()
    enqueue(session, WorkKind.RUN_CAPTURE, [capture.id], now)
    return capture


def _add_hosts(capture: Capture, hosts: Sequence[CaptureHost], names: Sequence[str]) -> None:
    """Append hosts under names that are distinct from those that the capture has."""
    taken = [host.host for host in capture.hosts]
    distinct = distinct_host_names([*taken, *names])[len(taken) :]
    first = 1 + max((host.position for host in capture.hosts), default=-1)
    for position, (host, name) in enumerate(zip(hosts, distinct, strict=True), start=first):
        host.position = position
        host.host = name
    capture.hosts.extend(hosts)
    capture.hosts_total = counted_hosts(capture)


def open_lookups(session: Session, capture_id: uuid.UUID) -> list[str]:
    """The items of a capture that are still to be looked up."""
    rows = session.scalars(
        select(CaptureHost)
        .where(CaptureHost.capture_id == capture_id, CaptureHost.is_lookup)
        .order_by(CaptureHost.position)
    )
    return [row.given or row.target for row in rows if not row.state.is_final]


def settle_lookups(
    session: Session, capture_id: uuid.UUID, found: Resolution, now: datetime
) -> None:
    """Put the hosts in the place of the lookups that found them; the other lookups failed."""
    revision = next_revision(session, capture_id)
    capture = find_capture(session, capture_id)
    session.refresh(capture)
    failed = {lookup.given: lookup.message for lookup in found.unresolved}
    settled = []
    for host in capture.hosts:
        if not host.is_lookup or host.state.is_final:
            continue
        # Of a repeated capture: its hosts are tried where they were.
        has_hosts = any(one.given == host.given and not one.is_lookup for one in capture.hosts)
        if host.given in failed and not has_hosts:
            host.state = HostState.FAILED
            host.reason = ReasonCode.UNRESOLVED
            host.message = failed[host.given]
            host.finished_at = now
            host.revision = revision
        else:
            settled.append(host)
    for host in settled:
        capture.hosts.remove(host)
    session.flush()
    # By name first: pods that were started again may have each other's addresses.
    by_name = {(host.given, host.host): host for host in capture.hosts}
    others = [target for target in found.targets if not _is_followed(by_name, target, revision)]
    known = {host.target.lower() for host in capture.hosts}
    fresh = [target for target in others if target.address.lower() not in known]
    _add_hosts(
        capture,
        [CaptureHost(given=t.given, target=t.address, revision=revision) for t in fresh],
        [target.shown_name for target in fresh],
    )
    capture.left_out = [*capture.left_out, *(one.message for one in found.left_out)]
    _add_hosts(
        capture,
        [
            CaptureHost(
                given=one.given,
                target=one.name[:_MAX_TARGET],
                state=HostState.SKIPPED,
                reason=ReasonCode.NOT_RUNNING,
                message=one.message,
                finished_at=now,
                revision=revision,
            )
            for one in found.left_out
        ],
        [one.name for one in found.left_out],
    )


def _is_followed(
    by_name: Mapping[tuple[str | None, str], CaptureHost], target: Target, revision: int
) -> bool:
    """Whether the target is by its name a host of the capture; one to be repeated moves with it."""
    if target.name is None:
        return False
    (name,) = distinct_host_names([target.name])
    host = by_name.get((target.given, name))
    if host is None:
        return False
    if not host.state.is_final and host.target != target.address:
        host.target, host.revision = target.address, revision
    return True


@dataclass(frozen=True, slots=True)
class OpenHost:
    """A host that is still to be captured.

    Attributes:
        name: What its profile is stored under.
        attempts: Those begun so far.
    """

    target: Target
    name: str
    attempts: int


def open_hosts(session: Session, capture_id: uuid.UUID) -> list[OpenHost]:
    """The hosts of a capture that are in no final state, in the order of the request."""
    rows = session.scalars(
        select(CaptureHost)
        .where(CaptureHost.capture_id == capture_id)
        .order_by(CaptureHost.position)
    )
    return [
        OpenHost(
            parse_address(row.target, row.given or row.target),
            row.host,
            row.attempts,
        )
        for row in rows
        if not row.state.is_final and not row.is_lookup
    ]


def note_takeover(
    session: Session, capture_id: uuid.UUID, names: Collection[str], now: datetime
) -> None:
    """Note of hosts that are to be captured anew what their lost worker had begun."""
    rows = session.scalars(select(CaptureHost).where(CaptureHost.capture_id == capture_id))
    lost = [row for row in rows if row.host in names]
    note_lost_attempts(session, lost, TAKEN_OVER, now)


def begin_before(capture: Capture, request: CaptureRequest) -> datetime:
    """Until when a host of a capture that has started may still be captured for it."""
    whole_ms = request.delay_ms + request.duration_ms + request.timeout_ms
    return (capture.started_at or capture.created_at) + timedelta(milliseconds=whole_ms)


def cancel_capture(session: Session, capture_id: uuid.UUID, now: datetime) -> Capture:
    """Ask for the end of a capture; its worker frees the hosts, what is stored stays.

    Raises:
        ConflictError: it has ended already.
    """
    capture = find_capture(session, capture_id)
    next_revision(session, capture_id)
    session.refresh(capture)
    if capture.finished_at is not None:
        message = f"the capture has ended already ({capture.state.value})"
        raise ConflictError(message)
    capture.cancelled_at = capture.cancelled_at or now
    session.flush()
    if capture.state is CaptureState.PENDING:
        # No worker has it yet; one that takes its work later finds it ended.
        finish_capture(session, capture_id, now)
    return capture


def usual_host_bytes(session: Session, request: CaptureRequest) -> int | None:
    """The largest profile of the run's last capture, for a longer window in proportion."""
    run = request.labels.get("run") or DEFAULT_RUN
    last = session.execute(
        select(Capture.id, Capture.duration_ms)
        .where(Capture.run == run, Capture.hosts_done > 0, Capture.trigger != Trigger.IMPORT)
        .order_by(Capture.id.desc())
        .limit(1)
    ).first()
    if last is None:
        return None
    largest = session.scalar(
        select(func.max(CaptureHost.bytes)).where(
            CaptureHost.capture_id == last.id, CaptureHost.state == HostState.DONE
        )
    )
    if not largest:
        return None
    # With steps the duration is only what the window may not exceed.
    longer = 1.0 if request.steps is not None else request.duration_ms / last.duration_ms
    return int(largest * max(1.0, longer))


def check_can_start(session: Session, request: CaptureRequest, limits: FanoutLimits) -> None:
    """Refuse a synchronized request that cannot start together, as far as its hosts are known.

    Raises:
        DoesNotFitError: With the numbers.
    """
    if not request.synchronized:
        return
    host_bytes = request.expected_host_bytes or usual_host_bytes(session, request)
    check_together(
        request.parsed_targets().targets,
        host_bytes or limits.expected_host_bytes,
        byte_budget=limits.byte_budget,
        width=limits.width,
    )


def retry_capture(session: Session, capture_id: uuid.UUID, now: datetime) -> Capture:
    """Capture again, into the same session, every host that is not done.

    Pods are looked up again where one of them is not done.

    Raises:
        ConflictError: the capture still runs, or every host is done.
    """
    capture = find_capture(session, capture_id)
    revision = next_revision(session, capture_id)
    session.refresh(capture)
    if capture.finished_at is None:
        message = "the capture still runs; wait for its end, or cancel it first"
        raise ConflictError(message)
    if capture.trigger is Trigger.IMPORT:
        message = "an imported capture cannot be repeated: its hosts were captured by others"
        raise ConflictError(message)
    if all(host.state is HostState.DONE for host in capture.hosts):
        message = f"nothing to repeat: all {capture.hosts_total} hosts are done"
        raise ConflictError(message)
    _look_up_again(session, capture)
    for host in capture.hosts:
        if host.state is HostState.DONE:
            continue
        host.state = HostState.PENDING
        host.reason = host.message = host.grpc_code = host.finished_at = None
        host.revision = revision
    capture.state = CaptureState.PENDING
    capture.started_at = capture.finished_at = capture.cancelled_at = None
    capture.error = capture.capture_seconds = None
    capture.left_out = []
    # The results of all hosts are made anew when the repeated ones have been analysed.
    capture.analysis_state = AnalysisState.PENDING
    capture.analysis_error = capture.analysis_finished_at = capture.analysis_seconds = None
    capture.reduce_claimed_at = None
    forget(session, WorkKind.RUN_CAPTURE, capture_id)
    forget(session, WorkKind.REDUCE_CAPTURE, capture_id)
    enqueue(session, WorkKind.RUN_CAPTURE, [capture_id], now)
    return capture


def _look_up_again(session: Session, capture: Capture) -> None:
    """Look for pods again that did not run, or that failed: another one may have their name."""
    skipped = [host for host in capture.hosts if host.state is HostState.SKIPPED]
    lost = [
        host
        for host in capture.hosts
        if host.state is not HostState.DONE and not host.is_lookup and _is_of_pods(host.given)
    ]
    for host in skipped:
        capture.hosts.remove(host)
    session.flush()
    items = list(dict.fromkeys(host.given for host in lost if host.given))
    lookups = [CaptureHost(given=one, target=one[:_MAX_TARGET], is_lookup=True) for one in items]
    _add_hosts(capture, lookups, items)


def _is_of_pods(given: str | None) -> bool:
    return given is not None and isinstance(parse_lookup(given), PodLookup)


def start_capture(session: Session, capture_id: uuid.UUID, now: datetime) -> Capture:
    """Mark the capture as begun; one that goes on in other hands keeps its start."""
    capture = find_capture(session, capture_id)
    if capture.state is CaptureState.PENDING:
        capture.state = CaptureState.CAPTURING
        capture.started_at = now
        capture.revision += 1
    return capture


def finish_capture(
    session: Session, capture_id: uuid.UUID, now: datetime, *, error: str | None = None
) -> None:
    """Decide how the capture ended.

    Hosts that never ended count as cancelled when somebody asked for that, else as interrupted.
    """
    capture = find_capture(session, capture_id)
    session.refresh(capture)
    if capture.finished_at is not None:
        return
    revision = next_revision(session, capture_id)
    lost = [host for host in capture.hosts if not host.state.is_final]
    if capture.cancelled_at is None:
        note_lost_attempts(session, lost, error or INTERRUPTED, now)
    for host in lost:
        if capture.cancelled_at is not None:
            host.state, host.reason = HostState.CANCELLED, ReasonCode.CANCELLED
            host.message = CANCELLED
        else:
            host.state, host.reason = HostState.FAILED, ReasonCode.INTERRUPTED
            host.message = error or INTERRUPTED
        host.finished_at = now
        host.revision = revision
    states = [host.state for host in _without_parts(capture.hosts)]
    # What was asked for wins over a quorum that happens to be met.
    is_cancelled = capture.cancelled_at is not None and HostState.CANCELLED in states
    capture.state = CaptureState.CANCELLED if is_cancelled else decide(capture.quorum, states)
    alignment = align(recorded_windows(capture.hosts))
    capture.alignment = None if alignment is None else alignment.to_json()
    capture.error = error
    capture.started_at = capture.started_at or now
    capture.finished_at = now
    capture.capture_seconds = (now - capture.started_at).total_seconds()
    if capture.hosts_done == 0:
        capture.analysis_state = AnalysisState.FAILED
        capture.analysis_error = "no host was captured, so there is nothing to analyse"
        capture.analysis_finished_at = now


def _without_parts(hosts: Sequence[CaptureHost]) -> list[CaptureHost]:
    """The hosts that were asked for: a quorum counts these."""
    by_target: dict[str, list[str]] = {}
    for host in hosts:
        by_target.setdefault(host.target, []).append(host.host)
    return [
        host
        for host in hosts
        if not any(is_part_of(host.host, other) for other in by_target[host.target])
    ]


def recorded_windows(hosts: Iterable[CaptureHost]) -> list[HostWindow]:
    """What the captured hosts recorded when, of those whose profile tells."""
    return [
        HostWindow(
            host.host,
            host.window_start_ns,
            host.window_stop_ns,
            None
            if host.clock_offset_ns is None
            else ClockOffset(host.clock_offset_ns, host.clock_error_ns or 0),
        )
        for host in hosts
        if host.state is HostState.DONE and host.window_start_ns is not None
    ]


def interrupt_capture(session: Session, capture_id: uuid.UUID, now: datetime) -> None:
    """End a capture whose worker was lost; what was stored until then stays."""
    finish_capture(session, capture_id, now, error=INTERRUPTED)
