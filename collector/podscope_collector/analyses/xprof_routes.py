"""XProf's own routes over our results, so that what reads XProf's server reads podscope.

A run is a capture by its session's name. Paths, parameters and shapes are those of XProf 2.24.2;
parameters that it takes and we have no use for are let pass.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from fastapi.routing import APIRoute
from sqlalchemy import select

from podscope_analyzers.registry import TOOLS, Tool
from podscope_collector.analyses import results, services
from podscope_collector.analyses.csv_tables import data_table_csv
from podscope_collector.analyses.models import StoredToolResult
from podscope_collector.analyses.routes import as_xprof
from podscope_collector.captures.models import Capture
from podscope_collector.dependencies import ServiceNow
from podscope_collector.errors import CollectorError, InputNotFoundError
from podscope_collector.problems import problem_of
from podscope_collector.runtime import Runtime
from podscope_protos.errors import PodscopeError

XPROF_VERSION: Final = "2.24.2"
"""Of the release whose routes these are; clients ask for it."""

_MAX_HOSTS_OF_MODULES: Final = 16


class _TextErrors(APIRoute):
    """Errors as XProf tells them: a line of text."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle = super().get_route_handler()

        async def handle_in_text(request: Request) -> Response:
            try:
                return await handle(request)
            except (CollectorError, PodscopeError) as error:
                status = problem_of(error).status_code
                return PlainTextResponse(str(error), status_code=status)

        return handle_in_text


router = APIRouter(prefix="/data/plugin/profile", include_in_schema=False, route_class=_TextErrors)


@router.get("/runs")
def list_runs(service: ServiceNow) -> list[str]:
    """Sessions of all captures with a host, in the order of their names backwards."""
    with service.runtime.database.reading() as session:
        names = session.scalars(select(Capture.session).where(Capture.hosts_done > 0)).all()
    return sorted(set(names), reverse=True)


@router.get("/run_tools")
def list_tools_of_run(service: ServiceNow, run: str) -> list[str]:
    """Tools that have something to show of a capture."""
    capture = _capture(service.runtime, run)
    with service.runtime.database.reading() as session:
        found = set(
            session.scalars(
                select(StoredToolResult.tool).where(
                    StoredToolResult.capture_id == capture.id, StoredToolResult.status == "ok"
                )
            )
        )
    return [name for name in TOOLS if name in found]


@router.get("/hosts")
def list_hosts(service: ServiceNow, run: str, tag: str) -> list[dict[str, str]]:
    """For which hosts a tool can be asked; ``ALL_HOSTS`` where all together."""
    names = _hosts(service.runtime, _capture(service.runtime, run))
    tool = TOOLS.get(tag)
    if len(names) > 1 and tool is not None:
        names = _asked_of(tool, names)
    return [{"hostname": name} for name in sorted(names)]


@router.get("/module_list")
def list_modules(service: ServiceNow, run: str) -> PlainTextResponse:
    """Programs of a capture, separated by commas."""
    runtime = service.runtime
    capture = _capture(runtime, run)
    found: set[str] = set()
    # The hosts of a job run the same programs.
    for host in _hosts(runtime, capture)[:_MAX_HOSTS_OF_MODULES]:
        question = results.ask(runtime, capture.id, "graph_viewer", host, {})
        table = results.answer(runtime, question)["tables"].get("programs", {"rows": []})
        found.update(str(row[0]) for row in table["rows"])
    return PlainTextResponse(",".join(sorted(found)))


@router.get("/version")
def show_version() -> PlainTextResponse:
    """Of the XProf whose routes these are."""
    return PlainTextResponse(XPROF_VERSION)


@router.get("/config")
def show_config() -> dict[str, Any]:
    """What XProf's pages ask first. Captures are taken on our own pages."""
    return {"enableTabNameLabel": False, "hideCaptureProfileButton": True, "srcPathPrefix": None}


@router.get("/data")
def show_data(service: ServiceNow, request: Request, run: str, tag: str) -> Response:
    """A tool's result as XProf answers it; with ``tqx=out:csv`` as a table."""
    if tag not in TOOLS:
        return PlainTextResponse("No Data", status_code=404)
    found = _answer(service.runtime, request, run, tag)
    if "out:csv" in request.query_params.get("tqx", ""):
        return _csv(found, run, tag)
    return as_xprof(found)


@router.get("/data_csv")
def show_data_as_csv(service: ServiceNow, request: Request, run: str, tag: str) -> Response:
    """The same as a table: the first one, where a tool has several."""
    if tag not in TOOLS:
        return PlainTextResponse("No Data Found", status_code=404)
    return _csv(_answer(service.runtime, request, run, tag), run, tag)


def _answer(runtime: Runtime, request: Request, run: str, tag: str) -> object:
    capture = _capture(runtime, run)
    given = request.query_params
    tool = TOOLS[tag]
    host = given.get("host") or ""
    if tool.scope == "all_hosts":
        # The reference takes a host here and answers for all of them.
        host = ""
    elif not host and "," not in given.get("hosts", ""):
        host = given.get("hosts", "")
    parameters = {name: text for name, text in given.items() if name in tool.parameters and text}
    question = results.ask(runtime, capture.id, tag, host, parameters, as_xprof=True)
    return results.answer_xprof(runtime, question)


def _csv(found: object, run: str, tag: str) -> Response:
    text = data_table_csv(found)
    if text is None:
        return PlainTextResponse(f"{tag} is no table; ask for its JSON", status_code=400)
    # Headers are Latin-1, and folders that were imported have names of any script.
    name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{run}_{tag}")
    return Response(
        text,
        media_type="text/csv",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )


def _capture(runtime: Runtime, run: str) -> Capture:
    with runtime.database.reading() as session:
        found = session.scalars(
            select(Capture).where(Capture.session == run).order_by(Capture.id.desc()).limit(1)
        ).first()
    if found is None:
        message = f"no run '{run[:120]}'; /data/plugin/profile/runs lists those there are"
        raise InputNotFoundError(message)
    return found


def _hosts(runtime: Runtime, capture: Capture) -> list[str]:
    with runtime.database.reading() as session:
        return sorted(one.host for one in services.partials_of(session, capture.id))


def _asked_of(tool: Tool, hosts: list[str]) -> list[str]:
    if tool.scope == "all_hosts":
        return [results.ALL_HOSTS]
    if tool.scope == "both" and not tool.first_host_in_xprof:
        return [results.ALL_HOSTS, *hosts]
    return hosts
