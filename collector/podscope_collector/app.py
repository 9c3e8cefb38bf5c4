"""The collector's HTTP service: REST API, metrics and web pages on one port."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Header
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from podscope._version import __version__
from podscope_collector.analyses.routes import router as analyses
from podscope_collector.analyses.xprof_routes import router as xprof
from podscope_collector.captures.doctor_routes import router as doctor
from podscope_collector.captures.routes import router as captures
from podscope_collector.celery_app import create_celery
from podscope_collector.dependencies import Service, ServiceNow
from podscope_collector.metrics import exposition
from podscope_collector.problems import install_problems
from podscope_collector.readiness import check_ready
from podscope_collector.runtime import Runtime
from podscope_collector.schedules.routes import router as schedules
from podscope_collector.security import Gate, is_loopback, token_for
from podscope_collector.settings import CollectorSettings
from podscope_collector.work.dispatch import Sender

STATIC = Path(__file__).parent / "static"
_NOT_BUILT = "podscope runs; its web pages are not built (make web). The API is at /api/v1.\n"

_probes = APIRouter(include_in_schema=False)


@_probes.get("/healthz")
def healthz() -> JSONResponse:
    """Alive."""
    return JSONResponse({"status": "ok"})


@_probes.get("/readyz")
def readyz(service: ServiceNow) -> JSONResponse:
    """200 when captures can be taken, else 503 with the reason."""
    check_ready(service.runtime)
    return JSONResponse({"status": "ready"})


@_probes.get("/metrics")
def metrics(service: ServiceNow, accept: Annotated[str, Header()] = "") -> Response:
    """Prometheus or OpenMetrics text."""
    content_type, text = exposition(service.runtime, accept)
    return Response(text, media_type=content_type)


def create_app(
    settings: CollectorSettings, *, runtime: Runtime | None = None, sender: Sender | None = None
) -> FastAPI:
    """The ASGI app.

    Raises:
        CollectorError: the settings let strangers in, or name no broker.
    """
    token = token_for(settings)
    app = FastAPI(
        title="podscope",
        version=__version__,
        summary="Distributed profiling for machine-learning jobs.",
        openapi_url="/api/v1/openapi.json",
        # Their pages load scripts from elsewhere; no request leaves the origin here.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = Service(
        runtime or Runtime.from_settings(settings), sender or create_celery(settings)
    )
    install_problems(app)
    for router in (captures, doctor, analyses, schedules):
        app.include_router(router, prefix="/api/v1")
    app.include_router(xprof)
    app.include_router(_probes)
    _serve_pages(app, STATIC)
    app.add_middleware(
        Gate,
        token=token,
        loopback_only=is_loopback(settings.host) and token is None,
        allowed_hosts=settings.allowed_hosts,
        max_request_bytes=settings.max_request_bytes,
    )
    return app


def _serve_pages(app: FastAPI, folder: Path) -> None:
    root = folder.resolve()

    @app.get("/{path:path}", include_in_schema=False)
    def page(path: str) -> Response:
        if path.startswith(("api/", "data/")):
            raise HTTPException(404, f"no route /{path[:200]}")
        index = root / "index.html"
        if not index.is_file():
            return PlainTextResponse(_NOT_BUILT, status_code=200 if path == "" else 404)
        asset = (root / path).resolve() if "\0" not in path else index
        if path and asset.is_relative_to(root) and asset.is_file():
            # Built files carry a hash of their content in their name.
            lasting = "assets" in asset.relative_to(root).parts
            cache = "public, max-age=31536000, immutable" if lasting else "no-cache"
            return FileResponse(asset, headers={"Cache-Control": cache})
        if "." in Path(path).name and path.startswith("assets/"):
            raise HTTPException(404, f"no file /{path[:200]}")
        # Every other path is the page's own: it shows what the address says.
        return FileResponse(index, headers={"Cache-Control": "no-cache"})
