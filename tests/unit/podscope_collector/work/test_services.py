import uuid
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from podscope_collector.db import Database
from podscope_collector.identifiers import uuid7
from podscope_collector.work import services
from podscope_collector.work.models import WorkItem, WorkKind, WorkState

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LEASE = timedelta(seconds=15)
RESEND = timedelta(seconds=30)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def enqueue(database: Database, kind: WorkKind = WorkKind.ANALYZE_HOST) -> uuid.UUID:
    with database.writing() as session:
        services.enqueue(session, kind, [uuid7()], NOW)
        return session.scalars(select(WorkItem.id)).one()


def claim(database: Database, work_id: uuid.UUID, owner: str) -> services.Claim | None:
    with database.writing() as session:
        return services.claim(session, work_id, owner, NOW, LEASE)


def item(database: Database, work_id: uuid.UUID) -> WorkItem | None:
    with database.reading() as session:
        return session.get(WorkItem, work_id)


def test_of_two_workers_one_gets_the_work(database: Database) -> None:
    work_id = enqueue(database)
    first, second = claim(database, work_id, "a"), claim(database, work_id, "b")
    assert first is not None
    assert (first.owner, first.attempt) == ("a", 1)
    assert second is None


def test_finished_work_has_no_row_and_a_second_message_finds_nothing(database: Database) -> None:
    work_id = enqueue(database)
    held = claim(database, work_id, "a")
    assert held is not None
    with database.writing() as session:
        assert services.finish(session, held)
    assert item(database, work_id) is None
    assert claim(database, work_id, "b") is None


def test_one_subject_has_one_piece_of_work_of_a_kind(database: Database) -> None:
    subject = uuid7()
    with database.writing() as session:
        services.enqueue(session, WorkKind.ANALYZE_HOST, [subject], NOW)
        services.enqueue(session, WorkKind.REDUCE_CAPTURE, [subject], NOW)
    with pytest.raises(IntegrityError), database.writing() as session:
        services.enqueue(session, WorkKind.ANALYZE_HOST, [subject], NOW)


def test_a_message_that_nobody_takes_is_sent_again_ever_later(database: Database) -> None:
    enqueue(database)
    sent_at = []
    for second in range(0, 1000, 5):
        with database.writing() as session:
            if services.take_due_messages(session, after(second), RESEND):
                sent_at.append(second)
    assert sent_at == [0, 30, 90, 210, 450, 930]


def test_messages_that_could_not_be_sent_are_due_again_at_once(database: Database) -> None:
    work_id = enqueue(database)
    for _ in range(3):
        with database.writing() as session:
            messages = services.take_due_messages(session, NOW, RESEND)
            assert [m.work_id for m in messages] == [work_id]
            services.make_due(session, [work_id], NOW)


def test_claimed_work_is_not_sent_again(database: Database) -> None:
    work_id = enqueue(database)
    claim(database, work_id, "a")
    with database.writing() as session:
        assert services.take_due_messages(session, after(10_000), RESEND) == []


def test_a_message_names_the_task_and_queue_of_its_kind(database: Database) -> None:
    work_id = enqueue(database, WorkKind.RUN_CAPTURE)
    with database.writing() as session:
        messages = services.take_due_messages(session, NOW, RESEND)
    assert messages == [services.Message("podscope.captures.run", "capture", work_id)]


def test_failed_work_is_tried_three_times_then_parked_with_its_error(database: Database) -> None:
    work_id = enqueue(database)
    for attempt in (1, 2, 3):
        held = claim(database, work_id, f"w{attempt}")
        assert held is not None
        assert held.attempt == attempt
        with database.writing() as session:
            lost = services.fail(session, held, f"error {attempt}", NOW, max_attempts=3)
        assert (lost is None) == (attempt < 3)
    parked = item(database, work_id)
    assert parked is not None
    assert (parked.state, parked.error) == (WorkState.PARKED, "error 3")
    assert claim(database, work_id, "w4") is None


def test_work_of_a_silent_worker_goes_to_another_and_the_first_may_not_finish_it(
    database: Database,
) -> None:
    work_id = enqueue(database)
    first = claim(database, work_id, "dead")
    assert first is not None
    for second, owner in ((14, "dead"), (16, None)):
        with database.writing() as session:
            assert services.take_back_expired(session, after(second), max_attempts=3) == []
        found = item(database, work_id)
        assert found is not None
        assert found.lease_owner == owner
    alive = claim(database, work_id, "alive")
    assert alive is not None
    assert alive.attempt == 2
    with database.writing() as session:
        assert not services.renew(session, first, after(17), LEASE)
        assert not services.finish(session, first)
        assert services.finish(session, alive)


def test_a_renewed_lease_is_kept(database: Database) -> None:
    work_id = enqueue(database)
    held = claim(database, work_id, "a")
    assert held is not None
    with database.writing() as session:
        assert services.renew(session, held, after(10), LEASE)
        services.take_back_expired(session, after(24), max_attempts=3)
        assert services.finish(session, held)


def test_work_whose_workers_keep_dying_is_parked(database: Database) -> None:
    work_id = enqueue(database)
    for attempt in (1, 2, 3):
        assert claim(database, work_id, f"w{attempt}") is not None
        with database.writing() as session:
            lost = services.take_back_expired(session, after(16), max_attempts=3)
    assert [(work.kind, work.error) for work in lost] == [
        (WorkKind.ANALYZE_HOST, "the worker w3 was lost during attempt 3")
    ]


def test_a_capture_goes_to_another_worker_when_its_own_dies(database: Database) -> None:
    work_id = enqueue(database, WorkKind.RUN_CAPTURE)
    claim(database, work_id, "dead")
    with database.writing() as session:
        assert services.take_back_expired(session, after(16), max_attempts=3) == []
    taken = claim(database, work_id, "other")
    assert taken is not None
    assert taken.attempt == 2


def test_work_that_is_forgotten_is_gone_also_from_who_holds_it(database: Database) -> None:
    work_id = enqueue(database, WorkKind.RUN_CAPTURE)
    held = claim(database, work_id, "busy")
    assert held is not None
    with database.writing() as session:
        services.forget(session, WorkKind.RUN_CAPTURE, held.subject_id)
    with database.writing() as session:
        assert not services.finish(session, held)


def test_a_queue_is_silent_until_a_heartbeat_comes_out_of_it(database: Database) -> None:
    queues = ["capture", "analyze"]
    with database.writing() as session:
        services.record_heartbeat(session, "capture", NOW)
    with database.writing() as session:
        services.record_heartbeat(session, "capture", after(5))
    with database.reading() as session:
        assert services.silent_queues(session, queues, after(30), RESEND) == ["analyze"]
        assert services.silent_queues(session, queues, after(36), RESEND) == queues
