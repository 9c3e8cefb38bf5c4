import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from podscope_collector.captures import progress, queries, services
from podscope_collector.captures.addresses import Target
from podscope_collector.captures.models import Capture, CaptureHost, Trigger
from podscope_collector.captures.outcome import Attempt, HostUpdate
from podscope_collector.captures.request import parse_request
from podscope_collector.captures.resolving.found import LeftOut, Resolution, Unresolved
from podscope_collector.captures.states import AnalysisState, CaptureState, HostState, ReasonCode
from podscope_collector.db import Database
from podscope_collector.errors import ConflictError, InputNotFoundError
from podscope_collector.identifiers import uuid7
from podscope_collector.work.models import WorkItem, WorkKind

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def create(
    database: Database, hosts: int = 3, quorum: str = "any", run: str = "r", name: str = "s"
) -> uuid.UUID:
    request = parse_request(
        {"targets": f"w[0-{hosts - 1}]:9999", "quorum": quorum, "labels": {"run": run}}
    )
    with database.writing() as session:
        return services.create_capture(session, request, Trigger.API, NOW, name=name).id


def update(host: str, state: HostState, size: int = 0) -> HostUpdate:
    return HostUpdate(
        target=host.replace("_", ":"), host=host, state=state, attempts=1, bytes=size, file="f"
    )


def apply(database: Database, capture_id: uuid.UUID, *updates: HostUpdate) -> None:
    with database.writing() as session:
        progress.apply_updates(session, capture_id, {u.host: u for u in updates}, NOW)


def finish(database: Database, capture_id: uuid.UUID, error: str | None = None) -> Capture:
    with database.writing() as session:
        services.finish_capture(session, capture_id, NOW + timedelta(seconds=7), error=error)
    return load(database, capture_id)


def load(database: Database, capture_id: uuid.UUID) -> Capture:
    with database.reading() as session:
        capture = session.get_one(Capture, capture_id)
        assert capture.hosts
        return capture


def work_kinds(database: Database) -> list[WorkKind]:
    with database.reading() as session:
        return sorted(session.scalars(select(WorkItem.kind)))


def test_a_capture_is_rows_and_work_before_it_is_anything_else(database: Database) -> None:
    capture = load(database, create(database))
    assert (capture.state, capture.run, capture.hosts_total) == (CaptureState.PENDING, "r", 3)
    assert [(h.position, h.target, h.host, h.state) for h in capture.hosts] == [
        (n, f"w{n}:9999", f"w{n}_9999", HostState.PENDING) for n in range(3)
    ]
    assert work_kinds(database) == [WorkKind.RUN_CAPTURE]


def test_a_host_becomes_work_to_analyse_when_its_profile_is_stored(database: Database) -> None:
    capture_id = create(database)
    apply(database, capture_id, update("w0_9999", HostState.CAPTURING))
    assert work_kinds(database) == [WorkKind.RUN_CAPTURE]
    apply(
        database,
        capture_id,
        update("w0_9999", HostState.DONE, 100),
        update("w1_9999", HostState.DONE, 50),
        update("w2_9999", HostState.FAILED),
    )
    assert work_kinds(database) == [WorkKind.ANALYZE_HOST] * 2 + [WorkKind.RUN_CAPTURE]
    capture = load(database, capture_id)
    assert (capture.hosts_done, capture.bytes) == (2, 150)
    assert [h.analysis_state for h in capture.hosts] == [
        AnalysisState.PENDING,
        AnalysisState.PENDING,
        None,
    ]


def test_a_host_that_has_ended_stays_as_it_is(database: Database) -> None:
    capture_id = create(database)
    done = update("w0_9999", HostState.DONE, 100)
    apply(database, capture_id, done)
    apply(database, capture_id, done)
    apply(database, capture_id, replace(done, state=HostState.FAILED))
    capture = load(database, capture_id)
    assert capture.hosts[0].state is HostState.DONE
    assert (capture.hosts_done, capture.bytes) == (1, 100)


@pytest.mark.parametrize(
    ("quorum", "done", "expected"),
    [
        ("any", 3, CaptureState.COMPLETE),
        ("any", 1, CaptureState.PARTIAL),
        ("all", 2, CaptureState.FAILED),
        ("2", 2, CaptureState.PARTIAL),
        ("50%", 1, CaptureState.FAILED),
        ("any", 0, CaptureState.FAILED),
    ],
)
def test_the_quorum_decides_how_a_capture_ends(
    database: Database, quorum: str, done: int, expected: CaptureState
) -> None:
    capture_id = create(database, quorum=quorum)
    states = [HostState.DONE] * done + [HostState.FAILED] * (3 - done)
    apply(database, capture_id, *(update(f"w{n}_9999", s) for n, s in enumerate(states)))
    assert finish(database, capture_id).state is expected


def test_the_parts_of_a_host_are_analysed_like_hosts_and_count_in_no_quorum(
    database: Database,
) -> None:
    capture_id = create(database, 2, quorum="60%")
    done = update("w0_9999", HostState.DONE, 10)
    parts = [
        replace(done, host=f"w0_9999.process-{number}", part_of="w0_9999", bytes=number)
        for number in (7, 8)
    ]
    for _ in range(2):  # a report that is repeated adds nothing
        apply(database, capture_id, *parts, done)
    apply(database, capture_id, update("w1_9999", HostState.FAILED))
    capture = finish(database, capture_id)
    assert [(host.host, host.position) for host in capture.hosts] == [
        ("w0_9999", 0),
        ("w1_9999", 1),
        ("w0_9999.process-7", 2),
        ("w0_9999.process-8", 3),
    ]
    assert {host.target for host in capture.hosts if host.host != "w1_9999"} == {done.target}
    assert (capture.hosts_total, capture.hosts_done, capture.bytes) == (4, 3, 25)
    # Three of four profiles are there, one of two hosts.
    assert capture.state is CaptureState.FAILED
    assert work_kinds(database).count(WorkKind.ANALYZE_HOST) == 3


def test_hosts_of_a_lost_worker_end_interrupted_and_stored_profiles_stay(
    database: Database,
) -> None:
    capture_id = create(database)
    with database.writing() as session:
        services.start_capture(session, capture_id, NOW)
    apply(
        database,
        capture_id,
        update("w0_9999", HostState.DONE, 9),
        update("w1_9999", HostState.CAPTURING),
    )
    with database.writing() as session:
        services.interrupt_capture(session, capture_id, NOW + timedelta(seconds=7))
    capture = load(database, capture_id)
    assert capture.state is CaptureState.PARTIAL
    assert capture.capture_seconds == 7
    assert [(h.state, h.reason) for h in capture.hosts] == [
        (HostState.DONE, None),
        (HostState.FAILED, ReasonCode.INTERRUPTED),
        (HostState.FAILED, ReasonCode.INTERRUPTED),
    ]
    assert all("captures retry" in (h.message or "") for h in capture.hosts[1:])
    # What was in flight was a try; the third host was never reached.
    with database.reading() as session:
        tries = queries.list_attempts(session, capture_id)
    assert [(name, one.number, one.state, one.reason) for name, one in tries] == [
        ("w1_9999", 1, HostState.FAILED, ReasonCode.INTERRUPTED)
    ]


def test_a_try_that_was_lost_with_its_worker_is_in_the_history_once(database: Database) -> None:
    capture_id = create(database)
    ended = Attempt(1, HostState.FAILED, ReasonCode.BUSY, "m", None, 0, {}, NOW, NOW)
    apply(
        database,
        capture_id,
        update("w0_9999", HostState.CAPTURING),
        replace(update("w1_9999", HostState.PENDING), history=(ended,)),
    )
    for _ in range(2):
        with database.writing() as session:
            names = {"w0_9999", "w1_9999", "w2_9999"}
            services.note_takeover(session, capture_id, names, NOW)
    with database.reading() as session:
        tries = queries.list_attempts(session, capture_id)
    assert [(name, one.number, one.reason) for name, one in tries] == [
        ("w0_9999", 1, ReasonCode.INTERRUPTED),
        ("w1_9999", 1, ReasonCode.BUSY),
    ]


def test_a_capture_without_any_profile_has_its_analysis_over(database: Database) -> None:
    capture = finish(database, create(database), "no storage")
    assert (capture.state, capture.error) == (CaptureState.FAILED, "no storage")
    assert capture.analysis_state is AnalysisState.FAILED


def test_a_capture_ends_once(database: Database) -> None:
    capture_id = create(database)
    finish(database, capture_id)
    again = finish(database, capture_id, "too late")
    assert again.error is None


def test_every_change_raises_the_revision_that_live_status_follows(database: Database) -> None:
    capture_id = create(database)
    seen = [load(database, capture_id).revision]
    apply(database, capture_id, update("w1_9999", HostState.CONNECTING))
    seen.append(load(database, capture_id).revision)
    finish(database, capture_id)
    seen.append(load(database, capture_id).revision)
    assert seen == sorted(set(seen))
    assert [h.revision for h in load(database, capture_id).hosts] == [seen[2]] * 3


def test_captures_are_listed_newest_first_in_pages_without_gaps(database: Database) -> None:
    made = [create(database, run=f"r{n % 2}", name=f"s{n}") for n in range(7)]
    found: list[uuid.UUID] = []
    before = None
    while True:
        with database.reading() as session:
            page, before = queries.list_captures(session, limit=3, before=before)
        found += [capture.id for capture in page]
        if before is None:
            break
    assert found == made[::-1]
    with database.reading() as session:
        odd, _ = queries.list_captures(session, limit=9, run="r1")
        none, _ = queries.list_captures(session, limit=9, state=CaptureState.FAILED)
    assert [capture.id for capture in odd] == made[1::2][::-1]
    assert none == []


def test_what_is_not_there_is_told(database: Database) -> None:
    capture_id = create(database)
    with database.reading() as session:
        with pytest.raises(InputNotFoundError, match="no capture"):
            queries.find_capture(session, uuid7())
        with pytest.raises(InputNotFoundError, match="has no host 'nope'"):
            queries.find_host(session, capture_id, "nope")
        assert queries.find_host(session, capture_id, "w2_9999").position == 2


def test_removing_a_capture_removes_its_hosts(database: Database) -> None:
    capture_id = create(database)
    with database.writing() as session:
        session.delete(session.get_one(Capture, capture_id))
    with database.reading() as session:
        assert session.scalars(select(CaptureHost)).all() == []


def capture_of(database: Database, targets: str, **more: object) -> uuid.UUID:
    request = parse_request({"targets": targets, **more})
    with database.writing() as session:
        return services.create_capture(session, request, Trigger.API, NOW, name="s").id


def settle(database: Database, capture_id: uuid.UUID, found: Resolution) -> Capture:
    with database.writing() as session:
        services.settle_lookups(session, capture_id, found, NOW)
    return load(database, capture_id)


def test_a_lookup_is_one_row_until_its_hosts_take_its_place(database: Database) -> None:
    capture_id = capture_of(database, "w0:1 k8s:n/a=b:1 tpu:x")
    before = load(database, capture_id)
    assert [h.target for h in before.hosts] == ["w0:1", "k8s:n/a=b:1", "tpu:x"]
    with database.reading() as session:
        assert services.open_lookups(session, capture_id) == ["k8s:n/a=b:1", "tpu:x"]
    found = Resolution(
        targets=(
            Target("10.0.0.1:1", "k8s:n/a=b:1", "10.0.0.1", 1, name="pod-a:1"),
            Target("w0:1", "k8s:n/a=b:1", "w0", 1),
        ),
        unresolved=(Unresolved("tpu:x", "not ready"),),
        left_out=(LeftOut("k8s:n/a=b:1", "pod-b", "pod pod-b is being deleted"),),
    )
    after = settle(database, capture_id, found)
    assert [(h.target, h.host, h.state) for h in after.hosts] == [
        ("w0:1", "w0_1", HostState.PENDING),
        ("tpu:x", "tpu_x", HostState.FAILED),
        ("10.0.0.1:1", "pod-a_1", HostState.PENDING),
        ("pod-b", "pod-b", HostState.SKIPPED),
    ]
    assert (after.hosts[3].reason, after.hosts[3].message) == (
        ReasonCode.NOT_RUNNING,
        "pod pod-b is being deleted",
    )
    assert after.hosts[1].reason is ReasonCode.UNRESOLVED
    assert after.hosts[1].message == "not ready"
    assert after.hosts[2].given == "k8s:n/a=b:1"
    assert after.left_out == ["pod pod-b is being deleted"]
    assert after.hosts_total == 3
    with database.reading() as session:
        assert services.open_lookups(session, capture_id) == []
        assert [h.target.address for h in services.open_hosts(session, capture_id)] == [
            "w0:1",
            "10.0.0.1:1",
        ]


def test_a_retry_looks_for_the_pods_that_were_not_done_where_they_are_now(
    database: Database,
) -> None:
    given = "k8s:n/a=b:1"

    def at(address: str, name: str) -> Target:
        return Target(f"{address}:1", given, address, 1, name=f"{name}:1")

    capture_id = capture_of(database, given)
    skipped = LeftOut(given, "pod-c", "pod pod-c is not running (Pending)")
    first = Resolution((at("10.0.0.1", "pod-a"), at("10.0.0.2", "pod-b")), (), (skipped,))
    assert settle(database, capture_id, first).hosts_total == 2
    apply(
        database,
        capture_id,
        update("pod-a_1", HostState.DONE, 5),
        update("pod-b_1", HostState.FAILED),
    )
    # A pod that does not run is nobody's loss, and no host.
    assert (finish(database, capture_id).state, len(load(database, capture_id).hosts)) == (
        CaptureState.PARTIAL,
        3,
    )
    retry(database, capture_id)
    with database.reading() as session:
        assert services.open_lookups(session, capture_id) == [given]
    # One pod was started again elsewhere, the other one runs by now.
    found = (at("10.0.0.1", "pod-a"), at("10.0.0.9", "pod-b"), at("10.0.0.3", "pod-c"))
    after = settle(database, capture_id, Resolution(found, (), ()))
    assert [(h.host, h.target, h.state) for h in after.hosts] == [
        ("pod-a_1", "10.0.0.1:1", HostState.DONE),
        ("pod-b_1", "10.0.0.9:1", HostState.PENDING),
        ("pod-c_1", "10.0.0.3:1", HostState.PENDING),
    ]
    assert after.hosts_total == 3


def test_pods_that_were_started_again_keep_their_names_whose_addresses_they_have(
    database: Database,
) -> None:
    given = "k8s:n/a=b:1"

    def at(**addresses: str) -> Resolution:
        found = [
            Target(f"10.0.0.{end}:1", given, f"10.0.0.{end}", 1, name=f"{name}:1")
            for name, end in addresses.items()
        ]
        return Resolution(tuple(found), (), ())

    capture_id = capture_of(database, given)
    settle(database, capture_id, at(w0="1", w1="2", w2="3"))
    apply(
        database,
        capture_id,
        update("w0_1", HostState.FAILED),
        update("w1_1", HostState.FAILED),
        update("w2_1", HostState.DONE, 5),
    )
    finish(database, capture_id)
    retry(database, capture_id)
    swapped = settle(database, capture_id, at(w0="2", w1="1", w2="3"))
    assert [(h.host, h.target, h.state) for h in swapped.hosts] == [
        ("w0_1", "10.0.0.2:1", HostState.PENDING),
        ("w1_1", "10.0.0.1:1", HostState.PENDING),
        ("w2_1", "10.0.0.3:1", HostState.DONE),
    ]
    apply(
        database,
        capture_id,
        update("w0_1", HostState.FAILED),
        update("w1_1", HostState.DONE, 5),
    )
    finish(database, capture_id)
    retry(database, capture_id)
    # One has the address that another had when it was captured; a new one has what it left.
    after = settle(database, capture_id, at(w0="3", w1="1", w2="4", w3="2"))
    assert [(h.host, h.target, h.state) for h in after.hosts] == [
        ("w0_1", "10.0.0.3:1", HostState.PENDING),
        ("w1_1", "10.0.0.1:1", HostState.DONE),
        ("w2_1", "10.0.0.3:1", HostState.DONE),
        ("w3_1", "10.0.0.2:1", HostState.PENDING),
    ]


def test_pods_that_cannot_be_looked_up_again_are_tried_where_they_were(database: Database) -> None:
    given = "k8s:n/a=b:1"
    capture_id = capture_of(database, given)
    target = Target("10.0.0.1:1", given, "10.0.0.1", 1, name="pod-a:1")
    settle(database, capture_id, Resolution((target,), (), ()))
    apply(database, capture_id, update("pod-a_1", HostState.FAILED))
    finish(database, capture_id)
    retry(database, capture_id)
    lost = Resolution((), (Unresolved(given, "the API is away"),), ())
    after = settle(database, capture_id, lost)
    assert [(h.host, h.target, h.state) for h in after.hosts] == [
        ("pod-a_1", "10.0.0.1:1", HostState.PENDING)
    ]


def cancel(database: Database, capture_id: uuid.UUID) -> Capture:
    with database.writing() as session:
        services.cancel_capture(session, capture_id, NOW)
    return load(database, capture_id)


def test_a_capture_that_nobody_has_begun_is_cancelled_at_once(database: Database) -> None:
    capture = cancel(database, create(database))
    assert capture.state is CaptureState.CANCELLED
    assert {(h.state, h.reason) for h in capture.hosts} == {
        (HostState.CANCELLED, ReasonCode.CANCELLED)
    }


def test_a_running_capture_ends_cancelled_and_keeps_what_it_has(database: Database) -> None:
    capture_id = create(database)
    with database.writing() as session:
        services.start_capture(session, capture_id, NOW)
    apply(database, capture_id, update("w0_9999", HostState.DONE, 5))
    assert cancel(database, capture_id).finished_at is None
    with database.reading() as session:
        assert queries.is_cancelled(session, capture_id)
    capture = finish(database, capture_id)
    assert (capture.state, capture.hosts_done) == (CaptureState.CANCELLED, 1)
    with pytest.raises(ConflictError, match="has ended already"):
        cancel(database, capture_id)


def retry(database: Database, capture_id: uuid.UUID) -> Capture:
    with database.writing() as session:
        services.retry_capture(session, capture_id, NOW + timedelta(minutes=1))
    return load(database, capture_id)


def test_a_retry_repeats_only_what_failed_and_joins_the_results(database: Database) -> None:
    capture_id = create(database)
    with pytest.raises(ConflictError, match="still runs"):
        retry(database, capture_id)
    apply(
        database,
        capture_id,
        update("w0_9999", HostState.DONE, 5),
        update("w1_9999", HostState.FAILED),
        update("w2_9999", HostState.EMPTY),
    )
    finish(database, capture_id)
    capture = retry(database, capture_id)
    assert (capture.state, capture.session) == (CaptureState.PENDING, "s")
    assert capture.finished_at is None
    assert [h.state for h in capture.hosts] == [
        HostState.DONE,
        HostState.PENDING,
        HostState.PENDING,
    ]
    assert capture.hosts[0].sha256 == load(database, capture_id).hosts[0].sha256
    with database.reading() as session:
        again = services.open_hosts(session, capture_id)
    assert [(h.name, h.attempts) for h in again] == [("w1_9999", 1), ("w2_9999", 1)]
    apply(
        database,
        capture_id,
        update("w1_9999", HostState.DONE, 1),
        update("w2_9999", HostState.DONE, 1),
    )
    capture = finish(database, capture_id)
    assert (capture.state, capture.hosts_done, capture.bytes) == (CaptureState.COMPLETE, 3, 7)
    with pytest.raises(ConflictError, match="all 3 hosts are done"):
        retry(database, capture_id)


def test_every_attempt_is_a_row_of_its_own(database: Database) -> None:
    capture_id = create(database)

    def attempt(number: int, state: HostState, reason: ReasonCode | None) -> Attempt:
        return Attempt(number, state, reason, "m", None, 0, {"connecting": 3}, NOW, NOW)

    first = attempt(1, HostState.FAILED, ReasonCode.BUSY)
    second = attempt(2, HostState.DONE, None)
    waiting = replace(update("w1_9999", HostState.PENDING), history=(first,))
    apply(database, capture_id, waiting)
    apply(database, capture_id, replace(update("w1_9999", HostState.DONE), history=(first, second)))
    with database.reading() as session:
        rows = queries.list_attempts(session, capture_id)
        assert queries.list_attempts(session, capture_id, "w0_9999") == []
    assert [(name, row.number, row.state, row.reason) for name, row in rows] == [
        ("w1_9999", 1, HostState.FAILED, ReasonCode.BUSY),
        ("w1_9999", 2, HostState.DONE, None),
    ]
    assert rows[0][1].timings_ms == {"connecting": 3}


def test_a_host_is_taken_for_the_largest_of_the_runs_last_capture_that_got_any(
    database: Database,
) -> None:
    request = parse_request({"targets": "w0:1", "labels": {"run": "r"}, "duration_ms": 1000})

    def usual(**changes: object) -> int | None:
        with database.reading() as session:
            return services.usual_host_bytes(session, request.model_copy(update=changes))

    assert usual() is None
    first = create(database, name="s1")
    apply(database, first, update("w0_9999", HostState.DONE, 700))
    apply(database, first, update("w1_9999", HostState.DONE, 900))
    create(database, name="s2")
    other = create(database, run="another", name="s3")
    apply(database, other, update("w0_9999", HostState.DONE, 5_000))
    assert usual() == 900, "its window was longer, which promises nothing"
    assert usual(duration_ms=6_000) == 2_700, "three times 2 s"
