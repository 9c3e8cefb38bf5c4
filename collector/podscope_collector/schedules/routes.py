"""Routes of schedules."""

import uuid

from fastapi import APIRouter

from podscope_collector.dependencies import ServiceNow
from podscope_collector.schedules import services
from podscope_collector.schedules.schemas import ScheduleList, ScheduleRequest, ScheduleView

router = APIRouter(prefix="/schedules", tags=["schedules"])


@router.get("")
def list_schedules(service: ServiceNow) -> ScheduleList:
    """Every schedule, oldest first."""
    with service.runtime.database.reading() as session:
        return ScheduleList(items=[ScheduleView.of(s) for s in services.list_schedules(session)])


@router.post("", status_code=201)
def add_schedule(service: ServiceNow, request: ScheduleRequest) -> ScheduleView:
    """Capture again and again; the first time at once."""
    with service.runtime.database.writing() as session:
        schedule = services.add_schedule(session, request, service.runtime.clock())
        return ScheduleView.of(schedule)


@router.delete("/{schedule_id}", status_code=204)
def remove_schedule(service: ServiceNow, schedule_id: uuid.UUID) -> None:
    """Stop a periodic capture; what it captured stays."""
    with service.runtime.database.writing() as session:
        session.delete(services.find_schedule(session, schedule_id))
