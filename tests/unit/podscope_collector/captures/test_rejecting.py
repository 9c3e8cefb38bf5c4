"""What a profile that is found damaged in its analysis does to its host and its capture."""

import uuid
from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from podscope_collector.captures import progress, services
from podscope_collector.captures.models import Capture, CaptureHost, Trigger
from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.rejecting import reject_host
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.states import AnalysisState, CaptureState, HostState, ReasonCode
from podscope_collector.db import Database

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def captured(database: Database, hosts: int, quorum: str = "any") -> tuple[uuid.UUID, uuid.UUID]:
    """A capture all of whose hosts are done, 10 bytes each; its id, and the first host's."""
    request = parse_request({"targets": f"w[1-{hosts}]:9", "quorum": quorum})
    with database.writing() as session:
        capture = services.create_capture(session, request, Trigger.API, NOW, name="s")
        updates = {
            host.host: HostUpdate(
                host.target, host.host, HostState.DONE, bytes=10, sha256="00", file="f"
            )
            for host in capture.hosts
        }
        progress.apply_updates(session, capture.id, updates, NOW)
        return capture.id, capture.hosts[0].id


def reject(database: Database, host_id: uuid.UUID) -> uuid.UUID | None:
    with database.writing() as session:
        return reject_host(session, host_id, "cut at byte 7", "kept/here", NOW)


def load(database: Database, capture_id: uuid.UUID) -> tuple[Capture, list[CaptureHost]]:
    with database.reading() as session:
        capture = session.get_one(Capture, capture_id)
        hosts = session.scalars(select(CaptureHost).order_by(CaptureHost.position)).all()
        return capture, list(hosts)


@pytest.mark.parametrize(
    ("quorum", "state"), [("any", CaptureState.PARTIAL), ("all", CaptureState.FAILED)]
)
def test_a_capture_that_has_ended_is_decided_anew_without_the_host(
    database: Database, quorum: str, state: CaptureState
) -> None:
    capture_id, host_id = captured(database, 2, quorum)
    with database.writing() as session:
        services.finish_capture(session, capture_id, NOW)
    assert load(database, capture_id)[0].state is CaptureState.COMPLETE
    assert reject(database, host_id) == capture_id
    capture, (first, second) = load(database, capture_id)
    assert (capture.state, capture.hosts_done, capture.bytes) == (state, 1, 10)
    assert (first.state, first.reason) == (HostState.FAILED, ReasonCode.CORRUPT)
    assert first.message == "w1:9 sent a damaged profile (cut at byte 7); it is kept in kept/here"
    assert (first.file, first.bytes, first.analysis_state) == (None, 0, AnalysisState.FAILED)
    assert second.state is HostState.DONE
    assert first.revision > second.revision


def test_a_capture_that_still_runs_is_decided_at_its_end(database: Database) -> None:
    capture_id, host_id = captured(database, 2)
    reject(database, host_id)
    assert load(database, capture_id)[0].state is CaptureState.PENDING
    with database.writing() as session:
        services.finish_capture(session, capture_id, NOW)
    assert load(database, capture_id)[0].state is CaptureState.PARTIAL


def test_nothing_is_left_to_analyse_when_every_profile_is_damaged(database: Database) -> None:
    capture_id, host_id = captured(database, 1)
    with database.writing() as session:
        services.finish_capture(session, capture_id, NOW)
    reject(database, host_id)
    capture, _ = load(database, capture_id)
    assert (capture.state, capture.analysis_state) == (CaptureState.FAILED, AnalysisState.FAILED)
    assert capture.analysis_finished_at == NOW
    # And it can be repeated.
    with database.writing() as session:
        services.retry_capture(session, capture_id, NOW)
    assert load(database, capture_id)[1][0].state is HostState.PENDING


def test_a_host_that_is_captured_again_meanwhile_is_left_alone(database: Database) -> None:
    capture_id, host_id = captured(database, 1)
    reject(database, host_id)
    assert reject(database, host_id) is None
    assert load(database, capture_id)[0].hosts_done == 0
