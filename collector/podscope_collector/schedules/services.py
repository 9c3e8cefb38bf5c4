"""Keeping schedules, and firing those that are due."""

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from podscope_collector.captures.models import Capture, Trigger
from podscope_collector.captures.request import parse_stored_request
from podscope_collector.captures.services import create_capture
from podscope_collector.errors import InputNotFoundError, RequestError
from podscope_collector.schedules.models import Schedule
from podscope_collector.schedules.schemas import ScheduleRequest
from podscope_collector.work.services import changed_rows


def add_schedule(session: Session, request: ScheduleRequest, now: datetime) -> Schedule:
    """Store a schedule; it fires for the first time at the next tick.

    Raises:
        RequestError: there is one with this name.
    """
    schedule = Schedule(
        request=request.capture_request().model_dump(mode="json"),
        every_seconds=request.every_seconds,
        enabled=request.enabled,
        created_at=now,
        next_run_at=now,
    )
    name = request.name or _default_name(session, request)
    if session.scalar(select(Schedule.id).where(Schedule.name == name)) is not None:
        message = f"there is a schedule '{name}' already; choose another name, or remove it first"
        raise RequestError(message)
    schedule.name = name
    session.add(schedule)
    session.flush()
    return schedule


def _default_name(session: Session, request: ScheduleRequest) -> str:
    run = request.capture_request().labels.get("run") or "schedule"
    name = base = f"{run[:100]}-{request.every_seconds}s"
    number = 1
    while session.scalar(select(Schedule.id).where(Schedule.name == name)) is not None:
        number += 1
        name = f"{base}-{number}"
    return name


def list_schedules(session: Session) -> Sequence[Schedule]:
    """Every schedule, oldest first."""
    return session.scalars(select(Schedule).order_by(Schedule.id)).all()


def find_schedule(session: Session, schedule_id: uuid.UUID) -> Schedule:
    """The schedule with this id.

    Raises:
        InputNotFoundError: there is none.
    """
    schedule = session.get(Schedule, schedule_id)
    if schedule is None:
        message = f"no schedule {schedule_id}; 'podscope schedules list' shows those there are"
        raise InputNotFoundError(message)
    return schedule


def has_due(session: Session, now: datetime) -> bool:
    """Whether there is something to fire; spares the idle tick a write transaction."""
    due = select(Schedule.id).where(Schedule.enabled, Schedule.next_run_at <= now).limit(1)
    return session.scalar(due) is not None


def fire_due(
    session: Session, now: datetime, new_session: Callable[[datetime], str]
) -> list[Capture]:
    """Make a capture for every schedule whose time has come.

    The UPDATE that moves ``next_run_at`` on is the claim: of two schedulers, one wins. Firings
    that were missed (nothing ran for an hour) fire once. While the last capture of a schedule
    still runs, a firing is left out: it would find every target busy.
    """
    due = session.scalars(
        select(Schedule).where(Schedule.enabled, Schedule.next_run_at <= now).order_by(Schedule.id)
    ).all()
    return [
        capture
        for schedule in due
        if (capture := _fire(session, schedule, now, new_session)) is not None
    ]


def _fire(
    session: Session, schedule: Schedule, now: datetime, new_session: Callable[[datetime], str]
) -> Capture | None:
    period = timedelta(seconds=schedule.every_seconds)
    missed = (now - schedule.next_run_at) // period
    is_claimed = changed_rows(
        session,
        update(Schedule)
        .where(
            Schedule.id == schedule.id,
            Schedule.next_run_at == schedule.next_run_at,
            Schedule.enabled,
        )
        .values(next_run_at=schedule.next_run_at + (missed + 1) * period),
    )
    if not is_claimed:
        return None
    session.refresh(schedule)
    schedule.last_run_at = now
    if schedule.last_capture_id is not None:
        last = session.get(Capture, schedule.last_capture_id)
        if last is not None and last.finished_at is None:
            schedule.last_error = "left out: the capture before it still runs"
            return None
    try:
        request = parse_stored_request(schedule.request)
    except RequestError as error:
        # Written by an older version with other rules.
        schedule.last_error = str(error)
        return None
    capture = create_capture(
        session,
        request,
        Trigger.SCHEDULE,
        now,
        name=new_session(now),
        schedule_id=schedule.id,
    )
    schedule.last_capture_id = capture.id
    schedule.last_error = None
    return capture
