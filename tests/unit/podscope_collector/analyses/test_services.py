"""What a reduce is given of the hosts of its capture."""

from dataclasses import replace
from datetime import UTC, datetime

from podscope_collector.analyses.services import clocks_of
from podscope_collector.captures import progress, services
from podscope_collector.captures.clocks import ClockOffset
from podscope_collector.captures.models import Trigger
from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.states import HostState
from podscope_collector.db import Database

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_only_clocks_that_were_measured_are_given(database: Database) -> None:
    request = parse_request({"targets": "w[0-2]:9999", "labels": {"run": "r"}})
    with database.writing() as session:
        capture = services.create_capture(session, request, Trigger.API, NOW, name="s").id
    done = HostUpdate("w0:9999", "w0_9999", HostState.DONE, attempts=1, bytes=1, file="f")
    ahead = replace(done, clock=ClockOffset(offset_ns=-5_000_000_000, error_ns=40_000))
    unknown = replace(done, target="w1:9999", host="w1_9999")
    with database.writing() as session:
        progress.apply_updates(session, capture, {"w0_9999": ahead, "w1_9999": unknown}, NOW)
    with database.reading() as session:
        assert clocks_of(session, capture) == [("w0_9999", -5_000_000_000, 40_000)]
