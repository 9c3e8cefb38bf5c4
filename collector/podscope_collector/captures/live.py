"""Live status: what changed in a capture since a client last looked, as server-sent events."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

from pydantic import BaseModel
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from podscope_collector.captures.models import Capture, CaptureHost
from podscope_collector.captures.queries import analyzed_hosts, find_capture
from podscope_collector.captures.schemas import CaptureView, HostView
from podscope_collector.captures.states import AnalysisState
from podscope_collector.db import Database

_POLL_SECONDS = 0.3
_KEEP_ALIVE_POLLS = 50


@dataclass(frozen=True)
class _News:
    revision: int
    capture: CaptureView
    hosts: list[HostView]
    is_over: bool


def _look(database: Database, capture_id: uuid.UUID, seen: int) -> _News | None:
    with database.reading() as session:
        revision = session.scalar(select(Capture.revision).where(Capture.id == capture_id))
        if revision == seen:
            return None
        capture = find_capture(session, capture_id)
        hosts = session.scalars(
            select(CaptureHost)
            .where(CaptureHost.capture_id == capture_id, CaptureHost.revision > seen)
            .order_by(CaptureHost.position)
        )
        is_over = capture.finished_at is not None and capture.analysis_state in {
            AnalysisState.DONE,
            AnalysisState.FAILED,
        }
        return _News(
            capture.revision,
            CaptureView.of(capture, analyzed_hosts(session, [capture_id]).get(capture_id, 0)),
            [HostView.of(host) for host in hosts],
            is_over,
        )


def _event(name: str, view: BaseModel) -> str:
    return f"event: {name}\ndata: {json.dumps(view.model_dump(mode='json'))}\n\n"


async def capture_events(database: Database, capture_id: uuid.UUID) -> AsyncIterator[str]:
    """Server-sent events from the state now until the analysis has ended."""
    seen = -1
    quiet = 0
    while True:
        news = await run_in_threadpool(_look, database, capture_id, seen)
        if news is not None:
            seen = news.revision
            quiet = 0
            for host in news.hosts:
                yield _event("host", host)
            yield _event("capture", news.capture)
            if news.is_over:
                return
        else:
            quiet += 1
            if quiet % _KEEP_ALIVE_POLLS == 0:
                # Keeps proxies from closing the stream, and notices a client that left.
                yield ": still here\n\n"
        await asyncio.sleep(_POLL_SECONDS)
