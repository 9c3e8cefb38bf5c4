"""Captures all targets at once: one event loop, one channel per host, failures as values."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import structlog

from podscope_collector.agent_access import AgentAccess
from podscope_collector.captured_hosts import CapturedHost
from podscope_collector.captures.addresses import Target
from podscope_collector.captures.fitting import check_descriptors, check_together
from podscope_collector.captures.flight import Flight, OnUpdate
from podscope_collector.captures.host_capture import HostCapture
from podscope_collector.captures.keeping import Keeper
from podscope_collector.captures.limits import FanoutLimits
from podscope_collector.captures.outcome import CaptureOutcome, HostUpdate
from podscope_collector.captures.quorum import decide
from podscope_collector.captures.request import CaptureRequest
from podscope_collector.captures.states import HostState
from podscope_collector.host_names import distinct_host_names
from podscope_collector.storage import Storage, StorageError

log = structlog.get_logger(__name__)


DEFAULT_LIMITS: Final = FanoutLimits()


async def run_capture(
    request: CaptureRequest,
    targets: Sequence[Target],
    storage: Storage,
    session: str,
    on_update: OnUpdate,
    *,
    host_names: Sequence[str] | None = None,
    attempts_before: Mapping[str, int] | None = None,
    limits: FanoutLimits = DEFAULT_LIMITS,
    agent_access: AgentAccess | None = None,
) -> CaptureOutcome:
    """Profile every target at once and store what they send.

    A host's failure is its own: it is in the outcome, never raised. A host that is done is never
    captured again.

    Args:
        request: Window, options, attempts, quorum.
        targets: The hosts to capture; on a retry those that failed.
        storage: Gets one XSpace per host, and the bytes that were none under ``rejected``.
        session: From ``storage.new_session()``.
        on_update: Called on the event loop at every change of a host, so it must not block.
        host_names: Names of the hosts within the session, in the order of the targets; made
            from the addresses when they are not given.
        attempts_before: By host name, the attempts of earlier runs, for the count to go on.
        limits: Width and memory.
        agent_access: For agents that serve TLS or ask for a token.

    Raises:
        DoesNotFitError: The request wants all hosts together, and that is impossible here.
        asyncio.CancelledError: The caller cancelled; all RPCs are cancelled first, and every
            host has got its final update.
    """
    host_bytes = request.expected_host_bytes or limits.expected_host_bytes
    if request.synchronized:
        check_together(targets, host_bytes, byte_budget=limits.byte_budget, width=limits.width)
        check_descriptors(len(targets))
    names = distinct_host_names(target.shown_name for target in targets)
    if host_names is not None:
        names = list(host_names)
    flight = Flight(request, session, on_update, limits, len(targets), Keeper(storage, session))
    flight.agent_access = agent_access or AgentAccess()
    before = attempts_before or {}
    hosts = [
        HostCapture(flight, target, name, before.get(name, 0))
        for target, name in zip(targets, names, strict=True)
    ]
    started_at = datetime.now(UTC)
    async with asyncio.TaskGroup() as group:
        for host in hosts:
            group.create_task(host.run())
    updates = tuple(update for host in hosts for update in host.updates)
    await _note_hosts(flight.keeper, updates)
    state = decide(request.quorum, (host.updates[0].state for host in hosts))
    return CaptureOutcome(session, state, updates, started_at, datetime.now(UTC))


async def _note_hosts(keeper: Keeper, updates: Sequence[HostUpdate]) -> None:
    """Leave the hosts' clocks and failures beside the profiles; a capture does not fail by that."""
    known = [
        CapturedHost(
            one.host,
            None if one.state is HostState.DONE else str(one.reason or one.state),
            None if one.clock is None else one.clock.offset_ns,
            None if one.clock is None else one.clock.error_ns,
        )
        for one in updates
    ]
    if not any(one.state is HostState.DONE for one in updates):
        # There is nothing that it would be beside.
        return
    try:
        await asyncio.to_thread(keeper.note_hosts, known)
    except StorageError as error:
        log.warning("hosts_not_noted", session=keeper.session, error=str(error))
