import threading
import uuid
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from pydantic import ValidationError
from sqlalchemy import select

from podscope_collector.captures.models import Capture, Trigger
from podscope_collector.captures.services import finish_capture
from podscope_collector.db import Database
from podscope_collector.errors import RequestError
from podscope_collector.schedules import services
from podscope_collector.schedules.models import Schedule
from podscope_collector.schedules.schemas import ScheduleRequest

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_names = count()


def after(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def new_session(now: datetime) -> str:
    return f"s{next(_names)}"


def add(database: Database, **given: object) -> uuid.UUID:
    request = ScheduleRequest.model_validate({"targets": "w0:1,w1:1", "every_minutes": 10} | given)
    with database.writing() as session:
        return services.add_schedule(session, request, NOW).id


def fire(database: Database, now: datetime) -> int:
    with database.writing() as session:
        fired = services.fire_due(session, now, new_session)
        for capture in fired:
            finish_capture(session, capture.id, now)
    return len(fired)


def load(database: Database, schedule_id: uuid.UUID) -> Schedule:
    with database.reading() as session:
        return session.get_one(Schedule, schedule_id)


def test_a_schedule_fires_at_once_and_then_every_period(database: Database) -> None:
    schedule_id = add(database, labels={"run": "llm"}, duration_ms=500)
    fired = [minute for minute in range(0, 35, 5) if fire(database, after(minute))]
    assert fired == [0, 10, 20, 30]
    with database.reading() as session:
        captures = session.scalars(select(Capture).order_by(Capture.id)).all()
    assert {(c.run, c.trigger, c.schedule_id, c.duration_ms) for c in captures} == {
        ("llm", Trigger.SCHEDULE, schedule_id, 500)
    }
    assert load(database, schedule_id).last_capture_id == captures[-1].id


def test_a_schedule_of_a_version_that_allowed_higher_tracer_levels_still_fires(
    database: Database,
) -> None:
    schedule_id = add(database)
    with database.writing() as session:
        schedule = session.get_one(Schedule, schedule_id)
        schedule.request = {**schedule.request, "host_tracer_level": 4}
    assert fire(database, NOW) == 1
    assert load(database, schedule_id).last_error is None
    with database.reading() as session:
        (capture,) = session.scalars(select(Capture)).all()
    assert capture.request["host_tracer_level"] == 3


def test_firings_that_were_missed_fire_once_and_keep_the_rhythm(database: Database) -> None:
    schedule_id = add(database)
    fire(database, NOW)
    assert fire(database, after(47)) == 1
    assert fire(database, after(48)) == 0
    assert load(database, schedule_id).next_run_at == after(50)


def test_two_schedulers_make_one_capture(database: Database) -> None:
    add(database)
    fired: list[int] = []
    gate = threading.Barrier(2)

    def tick() -> None:
        gate.wait()
        fired.append(fire(database, NOW))

    threads = [threading.Thread(target=tick) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(fired) == [0, 1]


def test_a_firing_is_left_out_while_the_capture_before_it_runs(database: Database) -> None:
    schedule_id = add(database)
    with database.writing() as session:
        [running] = services.fire_due(session, NOW, new_session)
    assert fire(database, after(10)) == 0
    assert "still runs" in (load(database, schedule_id).last_error or "")
    with database.writing() as session:
        finish_capture(session, running.id, after(11))
    assert fire(database, after(20)) == 1
    assert load(database, schedule_id).last_error is None


def test_a_schedule_that_is_off_does_not_fire(database: Database) -> None:
    add(database, enabled=False)
    assert fire(database, after(100)) == 0


def test_names_are_unique_and_made_when_they_are_left_out(database: Database) -> None:
    first, second = add(database), add(database)
    assert [load(database, i).name for i in (first, second)] == [
        "schedule-600s",
        "schedule-600s-2",
    ]
    add(database, name="nightly")
    with pytest.raises(RequestError, match="there is a schedule 'nightly' already"):
        add(database, name="nightly")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"every_minutes": None}, "either every_minutes or every_s"),
        ({"every_s": 60}, "either every_minutes or every_s"),
        ({"every_minutes": 0}, "greater than 0"),
        ({"every_minutes": 1e9}, "from one second to a year"),
        ({"targets": "w0:notaport"}, "w0:notaport"),
        ({"targets": ""}, "target"),
        ({"duration_ms": 0}, "duration_ms 0 is out of range"),
        ({"duration_ms": 3_600_000}, "does not fit in a period of 600 s"),
        ({"every_mintues": 3}, "every_mintues"),
    ],
)
def test_a_request_that_cannot_work_is_refused(given: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ScheduleRequest.model_validate({"targets": "w0:1", "every_minutes": 10} | given)
