"""``podscope captures`` tells who asked, how the hosts started, and what was left out."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.answering import answering

from podscope_collector.captures.models import Trigger
from podscope_collector.captures.schemas import (
    AlignmentView,
    AskedOptions,
    CaptureAnalysis,
    CaptureSummary,
    CaptureView,
    ClockCheckView,
)
from podscope_collector.captures.states import AnalysisState, CaptureState
from podscope_collector.cli import captures
from podscope_collector.clock import utc_now
from podscope_collector.identifiers import uuid7

VIEW = CaptureView(
    id=uuid7(),
    session="s",
    run="llm",
    state=CaptureState.PARTIAL,
    trigger=Trigger.API,
    requested_by="ann",
    created_at=utc_now(),
    started_at=None,
    finished_at=None,
    duration_ms=2000,
    attempts=3,
    quorum="any",
    labels={"run": "llm", "job": "7"},
    options=AskedOptions(
        host_tracer_level=2,
        python_tracer_level=0,
        synchronized=False,
        retry_empty=True,
        advanced_configuration={"tpu_trace_mode": "TRACE_COMPUTE", "tpu_perf_counters": True},
    ),
    left_out=["pod w3 does not run"],
    hosts_total=3,
    hosts_done=2,
    bytes=10,
    error=None,
    analysis=CaptureAnalysis(state=AnalysisState.DONE, hosts_done=2, hosts_total=2, error=None),
    summary=CaptureSummary(
        clock_check=ClockCheckView(
            basis="collective_ends",
            hosts=2,
            ends=1200,
            residual_ns=40_000,
            error_ns=3_000,
            promised_ns=500_000,
            ahead="w1",
            behind="w0",
            unplaced=[],
            skew_ns=1_460_000,
        )
    ),
    alignment=AlignmentView(
        hosts=2,
        skew_ns=1_500_000,
        error_ns=250_000,
        common_start_ns=1,
        common_ns=1_998_500_000,
        outside=[],
    ),
    schedule_id=None,
)


@contextmanager
def service(view: CaptureView = VIEW) -> Iterator[str]:
    """Answers as the service does, one capture without hosts."""

    def answer(path: str, body: bytes) -> tuple[int, bytes]:
        del body
        capture = view.model_dump(mode="json")
        found: dict[str, Any] = {"items": [capture], "next": None}
        if path.endswith("/hosts"):
            found = {"items": []}
        elif str(view.id) in path:
            found = capture
        return 200, json.dumps(found).encode()

    with answering(answer) as url:
        yield url


def test_a_capture_is_shown_with_who_asked_its_labels_and_how_its_hosts_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with service() as url:
        captures.app(["show", str(VIEW.id), "--url", url], standalone_mode=False)
    lines = {line[:10].strip(): line[11:] for line in capsys.readouterr().out.splitlines()}
    assert lines["asked by"] == "api (ann)"
    assert lines["labels"] == "job=7"
    assert lines["options"] == (
        "host_tracer_level=2, python_tracer_level=0, retry_empty=true, "
        "tpu_trace_mode=TRACE_COMPUTE, tpu_perf_counters=true"
    )
    assert lines["started"] == "started within 1.50 ms (± 0.25 ms), 1,998 ms in common"
    assert lines["clocks"] == (
        "apart by 0.040 ms (± 0.003 ms) at the common ends of 1,200 collectives of 2 hosts; "
        "measured to within 0.500 ms; by these ends started within 1.46 ms"
    )


def test_clocks_are_unknown_until_the_analysis_and_else_may_have_nothing_to_go_by(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = []
    for summary in (None, CaptureSummary()):
        with service(VIEW.model_copy(update={"summary": summary})) as url:
            captures.app(["show", str(VIEW.id), "--url", url], standalone_mode=False)
        lines = {line[:10].strip(): line[11:] for line in capsys.readouterr().out.splitlines()}
        found.append(lines["clocks"])
    assert found == ["unknown until the profiles have been analysed", "no common ends"]


def test_the_list_has_them_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    with service() as url:
        captures.app(["list", "--url", url], standalone_mode=False)
    head, row = capsys.readouterr().out.splitlines()[:2]
    for name in ("asked by", "skew ms", "labels"):
        assert name in head
    assert "api (ann)" in row
    assert row[head.index("skew ms") :].startswith("1.50")
    assert row[head.index("labels") :].strip() == "job=7"
