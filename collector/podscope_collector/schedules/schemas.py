"""What the API takes and says about schedules."""

import uuid
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from podscope_collector.captures.request import CaptureRequest, parse_request
from podscope_collector.errors import RequestError
from podscope_collector.schedules.models import Schedule

MIN_EVERY_SECONDS = 1
MAX_EVERY_SECONDS = 366 * 24 * 3600


class ScheduleRequest(BaseModel):
    """A capture request, and how often to carry it out.

    Attributes:
        every_minutes: Minutes between two captures; this or ``every_s``.
        every_s: Seconds between two captures.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str | None = Field(default=None, min_length=1, max_length=128)
    every_minutes: float | None = Field(default=None, gt=0)
    every_s: StrictInt | None = Field(default=None, gt=0)
    enabled: StrictBool = True

    @model_validator(mode="after")
    def _one_period(self) -> Self:
        if (self.every_minutes is None) == (self.every_s is None):
            message = "give either every_minutes or every_s"
            raise ValueError(message)
        if not MIN_EVERY_SECONDS <= self.every_seconds <= MAX_EVERY_SECONDS:
            message = "the period must be from one second to a year"
            raise ValueError(message)
        try:
            request = self.capture_request()
        except RequestError as error:
            raise ValueError(str(error)) from error
        if request.duration_ms > self.every_seconds * 1000:
            window = f"a capture of {request.duration_ms} ms"
            if request.steps is not None:
                window = f"{request.steps} steps, for which {request.duration_ms} ms are allowed"
            message = f"{window} does not fit in a period of {self.every_seconds} s"
            raise ValueError(message)
        return self

    @property
    def every_seconds(self) -> int:
        """The period in whole seconds."""
        return self.every_s if self.every_s is not None else round((self.every_minutes or 0) * 60)

    def capture_request(self) -> CaptureRequest:
        """The capture that is taken each time.

        Raises:
            RequestError: it is not a valid one.
        """
        return parse_request(self.model_extra or {})


class ScheduleView(BaseModel):
    """A schedule as the API shows it."""

    id: uuid.UUID
    name: str
    enabled: bool
    every_s: int
    targets: list[str]
    duration_ms: int
    steps: int | None
    attempts: int
    quorum: str
    labels: dict[str, str]
    request: dict[str, Any]
    created_at: datetime
    next_run_at: datetime
    last_run_at: datetime | None
    last_capture_id: uuid.UUID | None
    last_error: str | None

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        """The view of a row."""
        request = schedule.request
        return cls(
            id=schedule.id,
            name=schedule.name,
            enabled=schedule.enabled,
            every_s=schedule.every_seconds,
            targets=request["targets"],
            duration_ms=request["duration_ms"],
            steps=request.get("steps"),
            attempts=request["attempts"],
            quorum=request["quorum"],
            labels=request["labels"],
            request=request,
            created_at=schedule.created_at,
            next_run_at=schedule.next_run_at,
            last_run_at=schedule.last_run_at,
            last_capture_id=schedule.last_capture_id,
            last_error=schedule.last_error,
        )


class ScheduleList(BaseModel):
    """Every schedule, oldest first."""

    items: list[ScheduleView]
