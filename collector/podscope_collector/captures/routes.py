"""Routes of captures and their hosts."""

import uuid
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import FileResponse, Response, StreamingResponse
from sqlalchemy import select

from podscope_collector.captures import queries, services
from podscope_collector.captures.limits import FanoutLimits
from podscope_collector.captures.live import capture_events
from podscope_collector.captures.models import CaptureHost, Trigger
from podscope_collector.captures.request import MAX_WHO_LENGTH, CaptureRequest
from podscope_collector.captures.schemas import (
    AttemptList,
    AttemptView,
    CapturePage,
    CaptureView,
    HostList,
    HostView,
)
from podscope_collector.captures.states import CaptureState
from podscope_collector.dependencies import ServiceNow
from podscope_collector.errors import InputNotFoundError
from podscope_collector.storage import XSPACE_SUFFIX

_BINARY = "application/octet-stream"

router = APIRouter(prefix="/captures", tags=["captures"])


@router.get("")
def list_captures(
    service: ServiceNow,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: uuid.UUID | None = None,
    run: str | None = None,
    state: CaptureState | None = None,
) -> CapturePage:
    """Captures, newest first."""
    with service.runtime.database.reading() as session:
        page, after = queries.list_captures(
            session, limit=limit, before=before, run=run, state=state
        )
        counts = queries.analyzed_hosts(session, [capture.id for capture in page])
        items = [CaptureView.of(capture, counts.get(capture.id, 0)) for capture in page]
    return CapturePage(items=items, next=after)


@router.post("", status_code=202)
def create_capture(
    service: ServiceNow,
    request: CaptureRequest,
    asked_by: Annotated[str | None, Header(alias="X-Forwarded-User")] = None,
) -> CaptureView:
    """Capture every target at once; the answer comes before the capture begins."""
    runtime = service.runtime
    now = runtime.clock()
    name = runtime.storage.new_session(now)
    if asked_by and asked_by.isprintable():
        # A proxy knows better than the request who asks.
        request = request.model_copy(update={"requested_by": asked_by[:MAX_WHO_LENGTH]})
    with runtime.database.writing() as session:
        services.check_can_start(session, request, FanoutLimits.of(runtime.settings))
        capture = services.create_capture(
            session, request, Trigger(request.trigger), now, name=name
        )
        view = CaptureView.of(capture, 0)
    service.nudge()
    return view


@router.get("/{capture_id}")
def show_capture(service: ServiceNow, capture_id: uuid.UUID) -> CaptureView:
    """One capture."""
    with service.runtime.database.reading() as session:
        capture = queries.find_capture(session, capture_id)
        counts = queries.analyzed_hosts(session, [capture_id])
        return CaptureView.of(capture, counts.get(capture_id, 0))


@router.post("/{capture_id}/cancel", status_code=202)
def cancel_capture(service: ServiceNow, capture_id: uuid.UUID) -> CaptureView:
    """End a capture now: its RPCs are cancelled, so its hosts are free; what is stored stays."""
    runtime = service.runtime
    with runtime.database.writing() as session:
        capture = services.cancel_capture(session, capture_id, runtime.clock())
        counts = queries.analyzed_hosts(session, [capture_id])
        return CaptureView.of(capture, counts.get(capture_id, 0))


@router.post("/{capture_id}/retry", status_code=202)
def retry_capture(service: ServiceNow, capture_id: uuid.UUID) -> CaptureView:
    """Capture the hosts that are not done again, into the same session."""
    runtime = service.runtime
    with runtime.database.writing() as session:
        capture = services.retry_capture(session, capture_id, runtime.clock())
        counts = queries.analyzed_hosts(session, [capture_id])
        view = CaptureView.of(capture, counts.get(capture_id, 0))
    service.nudge()
    return view


@router.get("/{capture_id}/attempts")
def list_attempts(
    service: ServiceNow, capture_id: uuid.UUID, host: str | None = None
) -> AttemptList:
    """Every attempt of the capture's hosts, or of one host, that has ended."""
    with service.runtime.database.reading() as session:
        queries.find_capture(session, capture_id)
        rows = queries.list_attempts(session, capture_id, host)
        return AttemptList(items=[AttemptView.of(name, attempt) for name, attempt in rows])


@router.get("/{capture_id}/hosts")
def list_hosts(service: ServiceNow, capture_id: uuid.UUID) -> HostList:
    """The hosts of a capture in the order of its request."""
    with service.runtime.database.reading() as session:
        queries.find_capture(session, capture_id)
        hosts = session.scalars(
            select(CaptureHost)
            .where(CaptureHost.capture_id == capture_id)
            .order_by(CaptureHost.position)
        )
        return HostList(items=[HostView.of(host) for host in hosts])


@router.get("/{capture_id}/events", response_class=StreamingResponse)
def follow_capture(service: ServiceNow, capture_id: uuid.UUID) -> StreamingResponse:
    """Server-sent events ``host`` and ``capture``; ends when the analysis has ended."""
    with service.runtime.database.reading() as session:
        queries.find_capture(session, capture_id)
    return StreamingResponse(
        capture_events(service.runtime.database, capture_id),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


@router.get("/{capture_id}/hosts/{host}/xspace", response_class=Response)
def download_xspace(service: ServiceNow, capture_id: uuid.UUID, host: str) -> Response:
    """The XSpace of a host, as it was captured."""
    with service.runtime.database.reading() as session:
        row = queries.find_host(session, capture_id, host)
        name = f"{queries.find_capture(session, capture_id).session}.{row.host}{XSPACE_SUFFIX}"
    if row.file is None:
        message = f"host {row.host} was not captured: {row.message or row.state.value}"
        raise InputNotFoundError(message)
    local = service.runtime.storage.local_path(row.file)
    if local is None:
        size, pieces = service.runtime.storage.pieces(row.file)
        headers = {
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Length": str(size),
        }
        return StreamingResponse(pieces, media_type=_BINARY, headers=headers)
    if not local.is_file():
        message = f"the file of host {row.host} is gone from the storage ({row.file})"
        raise InputNotFoundError(message)
    return FileResponse(local, media_type=_BINARY, filename=name)
