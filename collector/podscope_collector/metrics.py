"""The service's metrics, made from the database at every scrape.

What is counted is in the database already, so the figures are the same whichever process of
whichever replica answers, and survive restarts. Series of a run come from its last capture and
vanish with it.
"""

import math
import platform
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from sqlalchemy import ColumnElement, Subquery, case, exists, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from podscope._version import __version__
from podscope_collector.analyses.models import HostSummary, PodViewerRow
from podscope_collector.captures.models import Capture, CaptureHost
from podscope_collector.captures.states import AnalysisState, HostState
from podscope_collector.runtime import Runtime
from podscope_collector.work.models import WorkItem, WorkState

STAGE_BUCKETS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 600, 1800)
STEP_BUCKETS = tuple(0.01 * 2**power for power in range(14))


def exposition(runtime: Runtime, accept: str) -> tuple[str, bytes]:
    """Content type and text, in the format that the client asks for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_DatabaseCollector(runtime))
    encoder, content_type = choose_encoder(accept)
    return content_type, encoder(registry)


class _DatabaseCollector(Collector):
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "podscope_build_info", "Version of podscope.", labels=["version", "python"]
        )
        build.add_metric([__version__, platform.python_version()], 1)
        yield build
        with self._runtime.database.reading() as session:
            yield from _captures(session)
            yield from _work(session, self._runtime)
            yield from _last_captures(session, self._runtime)


def _captures(session: Session) -> Iterator[Metric]:
    captures = CounterMetricFamily(
        "podscope_captures", "Captures that ended.", labels=["trigger", "result"]
    )
    ended = (
        select(Capture.trigger, Capture.state, func.count())
        .where(Capture.finished_at.is_not(None))
        .group_by(Capture.trigger, Capture.state)
    )
    for trigger, state, count in session.execute(ended):
        captures.add_metric([trigger.value, state.value], count)
    yield captures

    hosts = CounterMetricFamily(
        "podscope_capture_hosts", "Hosts of captures that ended.", labels=["result", "reason"]
    )
    finals = [state for state in HostState if state.is_final]
    counted = (
        select(CaptureHost.state, CaptureHost.reason, func.count())
        .where(CaptureHost.state.in_(finals))
        .group_by(CaptureHost.state, CaptureHost.reason)
    )
    for host_state, reason, count in session.execute(counted):
        hosts.add_metric([host_state.value, "" if reason is None else reason.value], count)
    yield hosts

    size = CounterMetricFamily("podscope_capture_bytes", "Bytes of profiles stored.")
    size.add_metric([], session.scalar(select(func.sum(Capture.bytes))) or 0)
    yield size

    stages = HistogramMetricFamily(
        "podscope_capture_duration_seconds", "Time that captures took.", labels=["stage"]
    )
    for stage, column in (
        ("capture", Capture.capture_seconds),
        ("analyze", Capture.analysis_seconds),
    ):
        buckets, total = _histogram(session, column, STAGE_BUCKETS)
        stages.add_metric([stage], buckets, total)
    yield stages


def _histogram(
    session: Session, column: InstrumentedAttribute[float | None], bounds: tuple[float, ...]
) -> tuple[list[tuple[str, float]], float]:
    within: list[ColumnElement[Any]] = [
        func.sum(case((column <= bound, 1), else_=0)) for bound in bounds
    ]
    row = session.execute(
        select(func.count(column), func.sum(column), *within).where(column.is_not(None))
    ).one()
    count, total, *counts = [number or 0 for number in row]
    buckets = [(f"{bound:g}", float(n)) for bound, n in zip(bounds, counts, strict=True)]
    return [*buckets, ("+Inf", float(count))], float(total)


def _work(session: Session, runtime: Runtime) -> Iterator[Metric]:
    length = GaugeMetricFamily(
        "podscope_queue_length", "Work that waits for a worker.", labels=["queue"]
    )
    age = GaugeMetricFamily(
        "podscope_queue_oldest_task_age_seconds", "Age of the work waiting.", labels=["queue"]
    )
    parked = GaugeMetricFamily("podscope_parked_tasks", "Work given up.", labels=["queue"])
    rows = session.execute(
        select(WorkItem.queue, WorkItem.state, func.count(), func.min(WorkItem.created_at))
        .where(WorkItem.state != WorkState.RUNNING)
        .group_by(WorkItem.queue, WorkItem.state)
    )
    now = runtime.clock()
    found = {(queue, state): (count, since) for queue, state, count, since in rows}
    for queue in ("capture", "analyze"):
        count, since = found.get((queue, WorkState.PENDING), (0, now))
        length.add_metric([queue], count)
        age.add_metric([queue], max(0.0, (now - since).total_seconds()))
        parked.add_metric([queue], found.get((queue, WorkState.PARKED), (0, now))[0])
    yield from (length, age, parked)


def _last_captures(session: Session, runtime: Runtime) -> Iterator[Metric]:
    """Figures of the last analysed capture of each run."""
    newer = aliased(Capture)
    since = runtime.clock() - runtime.settings.metrics_window
    last = (
        select(Capture.id, Capture.run, Capture.finished_at)
        .where(
            Capture.analysis_state == AnalysisState.DONE,
            Capture.finished_at > since,
            ~exists().where(
                newer.run == Capture.run,
                newer.id > Capture.id,
                newer.analysis_state == AnalysisState.DONE,
            ),
        )
        .subquery()
    )
    yield _last_success(session, last)
    yield from _host_figures(session, last)
    yield _step_durations(session, last)


def _last_success(session: Session, last: Subquery) -> Metric:
    stamp = GaugeMetricFamily(
        "podscope_last_successful_capture_timestamp_seconds",
        "End of the last capture of the run that was analysed.",
        labels=["run"],
    )
    for run, finished_at in session.execute(select(last.c.run, last.c.finished_at)):
        stamp.add_metric([run], finished_at.timestamp())
    return stamp


def _host_figures(session: Session, last: Subquery) -> Iterator[Metric]:
    labels = ["run", "host", "accelerator"]
    duty = GaugeMetricFamily(
        "podscope_device_duty_cycle_ratio",
        "Share of time that the devices of the host were busy in the last capture.",
        labels=labels,
    )
    flops = GaugeMetricFamily(
        "podscope_device_flops_per_second",
        "Achieved by one device of the host on average in the last capture.",
        labels=labels,
    )
    peak = GaugeMetricFamily(
        "podscope_device_peak_flops_per_second",
        "What one device of the host could achieve.",
        labels=labels,
    )
    step = GaugeMetricFamily(
        "podscope_step_time_mean_seconds",
        "Mean step time of the host in the last capture.",
        labels=labels,
    )
    rows = session.execute(
        select(last.c.run, HostSummary)
        .join(HostSummary, HostSummary.capture_id == last.c.id)
        .order_by(last.c.run, HostSummary.host)
    )
    for run, host in rows:
        names = [run, host.host, host.device_type or ""]
        for family, value, unit in (
            (duty, host.duty_cycle_ratio, 1.0),
            (flops, host.flops_per_second, 1.0),
            (peak, host.peak_flops_per_second, 1.0),
            (step, host.step_time_ms, 1e-3),
        ):
            if value is not None:
                family.add_metric(names, value * unit)
    yield from (duty, flops, peak, step)


def _step_durations(session: Session, last: Subquery) -> Metric:
    family = HistogramMetricFamily(
        "podscope_step_duration_seconds",
        "Steps of the host in the last capture of the run.",
        labels=["run", "host"],
    )
    # All cores of a host make one step together: the slowest tells its duration.
    steps = (
        select(
            last.c.run,
            PodViewerRow.capture_id,
            PodViewerRow.host,
            (func.max(PodViewerRow.total_duration_us) / 1e6).label("seconds"),
        )
        .join(last, last.c.id == PodViewerRow.capture_id)
        .group_by(last.c.run, PodViewerRow.capture_id, PodViewerRow.host, PodViewerRow.step_num)
        .subquery()
    )
    within = [func.sum(case((steps.c.seconds <= bound, 1), else_=0)) for bound in STEP_BUCKETS]
    rows = session.execute(
        select(
            steps.c.run,
            steps.c.capture_id,
            steps.c.host,
            func.count(),
            func.sum(steps.c.seconds),
            func.max(steps.c.seconds),
            *within,
        )
        .group_by(steps.c.run, steps.c.capture_id, steps.c.host)
        .order_by(steps.c.run, steps.c.host)
    )
    for run, capture_id, host, count, total, slowest, *counts in rows:
        exemplar = Exemplar({"capture_id": str(capture_id)}, slowest)
        bounds = [*zip(STEP_BUCKETS, counts, strict=True), (math.inf, count)]
        holder = next(bound for bound, _ in bounds if slowest <= bound)
        family.add_metric(
            [run, host],
            [
                (_bound(bound), float(n), exemplar)
                if bound == holder
                else (_bound(bound), float(n))
                for bound, n in bounds
            ],
            total,
        )
    return family


def _bound(seconds: float) -> str:
    return "+Inf" if math.isinf(seconds) else f"{seconds:g}"
