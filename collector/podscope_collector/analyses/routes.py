"""Routes of tools and their results."""

import uuid
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy import select

from podscope_analyzers.registry import TOOLS
from podscope_collector.analyses import results
from podscope_collector.analyses.comparisons import AskedSide, compare_stored
from podscope_collector.analyses.csv_tables import csv_answer
from podscope_collector.analyses.models import StoredToolResult
from podscope_collector.analyses.schemas import ToolList, ToolView
from podscope_collector.captures.queries import find_capture
from podscope_collector.dependencies import ServiceNow
from podscope_collector.errors import RequestError
from podscope_collector.step_ranges import parse_steps

router = APIRouter(prefix="/captures/{capture_id}/tools", tags=["results"])

_OUR_PARAMETERS = frozenset({"host", "format", "table"})
_OF_COMPARISONS = _OUR_PARAMETERS | {"base", "base_host", "steps", "base_steps"}


@router.get("")
def list_tools(service: ServiceNow, capture_id: uuid.UUID) -> ToolList:
    """The tools, and for which hosts each has a result."""
    with service.runtime.database.reading() as session:
        capture = find_capture(session, capture_id)
        rows = session.execute(
            select(StoredToolResult.tool, StoredToolResult.host, StoredToolResult.status).where(
                StoredToolResult.capture_id == capture_id
            )
        ).all()
    items = []
    for tool in TOOLS.values():
        mine = [(host, status) for name, host, status in rows if name == tool.name]
        statuses = {status for _, status in mine}
        items.append(
            ToolView(
                name=tool.name,
                title=tool.title,
                scope=tool.scope,
                state=capture.analysis_state,
                status=None if not statuses else "ok" if "ok" in statuses else "empty",
                hosts=sorted(host for host, _ in mine if host),
            )
        )
    return ToolList(items=items)


def as_xprof(answer: object) -> Response:
    """XProf's answer: JSON, or a page, text or bytes of some tools as they are."""
    if isinstance(answer, bytes):
        return Response(answer, media_type="application/octet-stream")
    if not isinstance(answer, str):
        return JSONResponse(answer)
    if not answer.startswith("<!DOCTYPE html>"):
        return Response(answer, media_type="text/plain")
    # Its style is its own; nothing in it may run or load.
    policy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    return Response(answer, media_type="text/html", headers={"Content-Security-Policy": policy})


@router.get("/{tool}", response_class=JSONResponse)
def show_result(
    service: ServiceNow,
    request: Request,
    capture_id: uuid.UUID,
    tool: str,
    host: str = "",
    format: Literal["json", "xprof", "csv"] = "json",
    table: str | None = None,
) -> Response:
    """The result for one host, or for all of them; further parameters are the tool's own."""
    parameters = {
        name: text for name, text in request.query_params.items() if name not in _OUR_PARAMETERS
    }
    question = results.ask(
        service.runtime, capture_id, tool, host, parameters, as_xprof=format == "xprof"
    )
    if format == "xprof":
        return as_xprof(results.answer_xprof(service.runtime, question))
    found = results.answer(service.runtime, question)
    if format == "json":
        return JSONResponse(found["body"])
    content_type, content = csv_answer(found["tables"], table)
    ending = "zip" if content_type.endswith("zip") else "csv"
    name = f"{tool}.{question.host or results.ALL_HOSTS}.{ending}"
    return Response(
        content,
        media_type=content_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.get("/{tool}/diff", response_class=JSONResponse)
def show_comparison(
    service: ServiceNow,
    request: Request,
    capture_id: uuid.UUID,
    tool: str,
    base: uuid.UUID | None = None,
    host: str = "",
    base_host: str = "",
    steps: str = "",
    base_steps: str = "",
    format: Literal["json", "csv"] = "json",
    table: str | None = None,
) -> Response:
    """What changed from the base to this capture, both as they were analysed.

    Without ``base`` another host or range of steps of the same capture. Further parameters are
    the tool's own.
    """
    parameters = {
        name: text for name, text in request.query_params.items() if name not in _OF_COMPARISONS
    }
    other = AskedSide(capture_id, host, parse_steps(steps))
    asked = AskedSide(base or capture_id, base_host, parse_steps(base_steps))
    if asked == other:
        message = "both sides are the same; name another base, base_host or base_steps"
        raise RequestError(message)
    found = compare_stored(service.runtime, tool, parameters, asked, other).to_json()
    if format == "json":
        return JSONResponse(found)
    content_type, content = csv_answer(found["tables"], table)
    ending = "zip" if content_type.endswith("zip") else "csv"
    return Response(
        content,
        media_type=content_type,
        headers={"Content-Disposition": f'attachment; filename="{tool}.diff.{ending}"'},
    )
