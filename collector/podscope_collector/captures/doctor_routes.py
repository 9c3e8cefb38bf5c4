"""The route of the doctor: targets as this service sees them."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, StrictBool, StrictInt
from starlette.concurrency import run_in_threadpool

from podscope_collector.captures.diagnosis import unresolved
from podscope_collector.captures.examination import diagnose
from podscope_collector.captures.request import DURATION_MS, parse_request
from podscope_collector.captures.resolving.resolver import Resolver
from podscope_collector.dependencies import ServiceNow
from podscope_collector.storage_check import check_storage

router = APIRouter(prefix="/doctor", tags=["doctor"])


class DoctorRequest(BaseModel):
    """Whom to look at, for a capture of ``duration_ms``; ``probe`` captures for a moment too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    targets: str | list[str]
    is_tpu_name: StrictBool = False
    probe: StrictBool = False
    duration_ms: StrictInt = DURATION_MS


class DoctorCheck(BaseModel):
    """One step; ``state`` is ok, warning, failed or unknown."""

    name: str
    state: str
    detail: str
    fix: str


class DoctorTarget(BaseModel):
    """What was found out about one target; ``verdict`` is ready, busy or not_ready."""

    target: str
    verdict: str
    kind: str
    round_trip_ms: float | None
    clock_offset_ms: float | None
    clock_error_ms: float | None
    checks: list[DoctorCheck]


class DoctorStorage(BaseModel):
    """Whether profiles can be stored; ``state`` is ok, warning or failed."""

    root: str
    state: str
    detail: str


class DoctorReport(BaseModel):
    """Everything that was looked at."""

    targets: list[DoctorTarget]
    left_out: list[str]
    storage: DoctorStorage | None


@router.post("")
async def look(service: ServiceNow, asked: DoctorRequest) -> DoctorReport:
    """Whether a capture of these targets would work now, and what to mend."""
    runtime = service.runtime
    request = parse_request(asked.model_dump(exclude={"probe"}))
    resolver = Resolver(runtime.settings)
    resolved = await run_in_threadpool(resolver.resolve, request.parsed_targets())
    access = runtime.settings.agent_access()
    found = await diagnose(
        resolved.targets,
        probe=asked.probe,
        duration_ms=request.duration_ms,
        agent_access=access,
    )
    found += [unresolved(lookup.given, lookup.message) for lookup in resolved.unresolved]
    storage = await run_in_threadpool(check_storage, runtime.storage)
    return DoctorReport.model_validate(
        {
            "targets": [one.to_json() for one in found],
            "left_out": [one.message for one in resolved.left_out],
            "storage": storage,
        }
    )
