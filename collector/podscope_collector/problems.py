"""Errors of the REST API: every one becomes problem JSON (RFC 9457) here and nowhere else."""

from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from podscope_collector.errors import CollectorError
from podscope_protos.errors import ExitCode, PodscopeError

log = structlog.get_logger(__name__)

_STATUS_OF_EXIT_CODE = {
    ExitCode.USAGE: HTTPStatus.UNPROCESSABLE_ENTITY,
    ExitCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    ExitCode.INVALID_INPUT: HTTPStatus.UNPROCESSABLE_ENTITY,
    ExitCode.DENIED: HTTPStatus.FORBIDDEN,
}

# Python 3.13 renamed this status.
_CODES = {413: "request_too_large"}


def problem(status: int, code: str, detail: str) -> Response:
    """A response in problem JSON."""
    title = HTTPStatus(status).phrase
    return JSONResponse(
        {"type": "about:blank", "title": title, "status": status, "detail": detail, "code": code},
        status_code=status,
        media_type="application/problem+json",
        headers={"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None,
    )


def problem_of(error: Exception) -> Response:
    """The one mapping from errors to responses."""
    match error:
        case CollectorError():
            return problem(error.http_status, error.code, str(error))
        case PodscopeError():
            status = _STATUS_OF_EXIT_CODE.get(error.exit_code, HTTPStatus.INTERNAL_SERVER_ERROR)
            return problem(status, error.code, str(error))
        case RequestValidationError() if _names_nothing(error):
            return problem(HTTPStatus.NOT_FOUND, "not_found", _no_such_id(error))
        case RequestValidationError():
            return problem(HTTPStatus.UNPROCESSABLE_ENTITY, "bad_request", _first_line(error))
        case HTTPException():
            code = _CODES.get(error.status_code) or HTTPStatus(error.status_code).name.lower()
            return problem(error.status_code, code, str(error.detail))
        case OperationalError():
            log.error("database_unavailable", error=str(error.orig))
            return problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "database_unavailable",
                "the database does not answer; try again in a moment",
            )
        case _:
            log.error("request_failed", exc_info=error)
            return problem(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "internal_error",
                "podscope failed on this request; its log has the details",
            )


def _names_nothing(error: RequestValidationError) -> bool:
    """Whether the path has an id that cannot be one."""
    return str(error.errors()[0]["loc"][0]) == "path"


def _no_such_id(error: RequestValidationError) -> str:
    first = error.errors()[0]
    what = str(first["loc"][-1]).removesuffix("_id")
    return f"no {what} '{str(first.get('input'))[:80]}'; ids look like 01a1fcf8-d4ac-7efa-984a-…"


def _first_line(error: RequestValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    # What our own validators say is a whole sentence already.
    text = str(first["msg"]).removeprefix("Value error, ")
    return text if first["type"] == "value_error" or not where else f"{where}: {text}"


def install_problems(app: FastAPI) -> None:
    """Let every error of the app go through ``problem_of``."""

    async def handle(request: Request, error: Exception) -> Response:
        return problem_of(error)

    for kind in (PodscopeError, RequestValidationError, HTTPException, OperationalError, Exception):
        app.add_exception_handler(kind, handle)
