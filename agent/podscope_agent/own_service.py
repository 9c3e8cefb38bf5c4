"""The agent's own RPCs, for collectors: clocks, description, captures by id, their profiles."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import psutil

from podscope._version import __version__
from podscope_agent.host_captures import HostCaptures
from podscope_agent.inventory import KnownTarget, TargetState
from podscope_agent.live.exporter import LiveFigures
from podscope_agent.live.reported import ALL_CHIPS, ReportedFigures
from podscope_agent.repository import Repository
from podscope_agent.results import ResultSpool
from podscope_agent.session import HostSession
from podscope_protos.v1 import agent_service_pb2 as own

_STATES: Final = {
    None: own.TargetDescription.STATE_UNSPECIFIED,
    TargetState.READY: own.TargetDescription.STATE_READY,
    TargetState.BUSY: own.TargetDescription.STATE_BUSY,
    TargetState.UNREACHABLE: own.TargetDescription.STATE_UNREACHABLE,
    TargetState.INCOMPATIBLE: own.TargetDescription.STATE_INCOMPATIBLE,
}


class OwnService:
    """Answers with messages; the server turns them into bytes and failures into statuses."""

    def __init__(
        self,
        host: str,
        labels: Mapping[str, str],
        session: HostSession,
        captures: HostCaptures,
        live: LiveFigures,
        spool: ResultSpool,
        repository: Repository,
        reported: ReportedFigures | None = None,
    ) -> None:
        """Answer for the host called `host`."""
        self._host = host
        self._labels = dict(labels)
        self._session = session
        self._captures = captures
        self._live = live
        self._spool = spool
        self._repository = repository
        self._reported = ReportedFigures() if reported is None else reported

    def clock_ping(self, received_wall_ns: int, received_monotonic_ns: int) -> bytes:
        """The host's clocks; the caller has read them first when the request arrived."""
        return own.ClockPingResponse(
            received_wall_ns=received_wall_ns,
            received_monotonic_ns=received_monotonic_ns,
            sent_wall_ns=time.time_ns(),
            sent_monotonic_ns=time.monotonic_ns(),
        ).SerializeToString()

    async def targets(self) -> tuple[KnownTarget, ...]:
        """What can be captured here, each with its state now."""
        return await self._session.inventory.examined(
            self._session.channel, is_busy=self._session.is_busy
        )

    def report_figures(self, request: own.ReportFiguresRequest) -> own.ReportFiguresResponse:
        """Take over what a collector's analysis of the last capture found."""
        before_s = self._session.step_time_before_s
        return own.ReportFiguresResponse(was_taken=self._reported.take(request, before_s))

    async def describe(self, request: own.DescribeRequest) -> own.DescribeResponse:
        """What runs here and what the agent allows."""
        targets = await self.targets()
        refusal = self._session.guard.refusal(request.duration_ms / 1000)
        return await asyncio.to_thread(self._described, targets, refusal)

    def _described(self, targets: Sequence[KnownTarget], refusal: str) -> own.DescribeResponse:
        budget = self._session.guard.budget
        response = own.DescribeResponse(
            version=__version__,
            host=self._host,
            labels=self._labels,
            is_busy=self._session.is_busy,
            spool_free_bytes=self._spool.free_bytes(),
            memory_available_bytes=psutil.virtual_memory().available,
            refusal=refusal,
        )
        for target in targets:
            response.targets.add(
                address=target.address,
                state=_STATES[target.state],
                detail=target.detail,
                source=target.source,
                pid=target.pid,
                framework=target.framework,
                labels=target.labels,
                started_at_ns=target.started_at_ns,
            )
        for sample in self._live.samples():
            if sample.chip == ALL_CHIPS:
                continue
            kind = sample.model or sample.accelerator.upper()
            response.devices.add(kind=kind, id=sample.chip)
        step_time = _step_time(targets, self._reported)
        if step_time is not None:
            response.step_time.CopyFrom(step_time)
        limits = response.limits
        limits.max_duration_ms = round(1000 * budget.max_duration_s)
        limits.min_interval_ms = round(1000 * budget.min_interval_s)
        limits.max_time_ratio = budget.max_time_ratio
        limits.spool_bytes = self._spool.max_bytes
        limits.keep_ms = round(1000 * self._spool.keep_s)
        limits.allowed_roots.extend(self._repository.allowed_roots)
        return response

    async def capture(
        self, request: own.CaptureRequest, time_remaining_s: float | None
    ) -> own.CaptureResponse:
        """Begin a capture, or tell what became of it."""
        return await self._captures.capture(request, time_remaining_s)

    async def cancel(self, request: own.CancelRequest) -> own.CancelResponse:
        """End a capture without a result."""
        return own.CancelResponse(was_running=await self._captures.cancel(request.capture_id))

    def fetch(self, request: own.FetchRequest) -> AsyncIterator[own.FetchResponse]:
        """The profile of a capture in pieces."""
        return self._captures.fetch(request)


def _step_time(targets: Sequence[KnownTarget], reported: ReportedFigures) -> own.StepTime | None:
    """What the processes say now, else what the analysis of the last capture found."""
    told = [target.step_time_s for target in targets if target.step_time_s is not None]
    if told:
        return own.StepTime(seconds=max(told), source="process")
    analysed = reported.step_time_s
    return None if not analysed else own.StepTime(seconds=analysed, source="profile")
