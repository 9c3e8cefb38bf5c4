"""The kept state of a pod: late hosts are merged, and it is made anew whenever it does not fit."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers import pod_state
from podscope_analyzers.errors import PartialError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host
from podscope_collector.analyses import pod_states, services
from podscope_collector.analyses.jobs import reduce_stored_capture
from podscope_collector.analyses.models import StoredToolResult
from podscope_collector.analyses.pod_states import KeptState, StoredPartial, bring_up_to_date
from podscope_collector.captures.models import Capture, Trigger
from podscope_collector.captures.states import AnalysisState, CaptureState
from podscope_collector.db import Database
from podscope_collector.errors import InputNotFoundError
from podscope_collector.storage import Storage

SESSION = "2026_01_01_00_00_00_000"
POD = Pod(device="cpu", hosts=4, steps=3, seed=5, slow_host=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def analyzed() -> list[HostPartial]:
    return [analyze_host(build_xspace(POD, n), f"h{n}") for n in range(POD.hosts)]


@dataclass
class Kept:
    """Partials in a storage, and the state that was made of them last."""

    storage: Storage
    analyzed: Sequence[HostPartial]
    partials: list[StoredPartial] = field(default_factory=list)
    files: tuple[str, ...] = ()

    def put(self, *hosts: int, twist: Callable[[HostPartial], HostPartial] | None = None) -> None:
        """Store the partials of some hosts, as their analysis does."""
        for host in hosts:
            one = self.analyzed[host] if twist is None else twist(self.analyzed[host])
            file = self.storage.put_derived(
                "partials", SESSION, f"{one.host}.partial", one.to_bytes()
            )
            self.partials = [p for p in self.partials if p.host != one.host]
            self.partials.append(StoredPartial(one.host, file.path, file.sha256))

    def update(self) -> KeptState:
        kept = bring_up_to_date(self.storage, SESSION, self.partials, self.files)
        self.files = kept.files
        return kept

    def results(self) -> dict[str, Any]:
        names = sorted(partial.host for partial in self.partials)
        return reduce_stored_capture(
            self.storage.root, SESSION, "id", names, [], self.files, 1 << 30
        )

    def is_right(self) -> bool:
        """Whether the results are those of all partials at once."""
        fresh = Kept(self.storage, self.analyzed, self.partials)
        fresh.update()
        return self.results() == fresh.results()


@pytest.fixture
def kept(tmp_path: Path, analyzed: list[HostPartial]) -> Kept:
    return Kept(Storage(str(tmp_path)), analyzed)


def test_a_late_host_adds_a_file_and_leaves_the_others(kept: Kept) -> None:
    kept.put(0, 2, 3)
    first = kept.update()
    before = {path: kept.storage.read(path) for path in first.files}
    kept.put(1)
    second = kept.update()

    assert (first.merged, second.merged, second.why_anew) == (3, 1, "")
    assert second.files[:-1] == first.files
    assert {path: kept.storage.read(path) for path in first.files} == before
    assert kept.is_right()


def test_nothing_new_changes_nothing(kept: Kept) -> None:
    kept.put(0, 1)
    first = kept.update()
    again = kept.update()

    assert (again.files, again.merged) == (first.files, 0)


def test_several_late_hosts_are_merged_at_once(kept: Kept) -> None:
    kept.put(1)
    kept.update()
    kept.put(3, 0, 2)

    assert (kept.update().merged, len(kept.files)) == (3, 2)
    assert kept.is_right()


def test_a_host_that_was_analysed_again_makes_it_anew(kept: Kept) -> None:
    kept.put(0, 1, 2)
    before = kept.update()
    kept.put(1, twist=lambda one: replace(one, hostname="another"))
    kept.put(3)
    after = kept.update()

    assert (after.merged, len(after.files)) == (4, 1)
    assert "h1" in after.why_anew
    assert after.files[0] not in before.files
    assert kept.is_right()


def test_a_host_that_is_gone_makes_it_anew(kept: Kept) -> None:
    kept.put(0, 1, 2)
    kept.update()
    kept.partials = kept.partials[:2]

    assert kept.update().merged == 2
    assert kept.is_right()


def test_a_partial_without_a_digest_is_never_taken_for_the_same(kept: Kept) -> None:
    kept.put(0, 1)
    kept.partials = [partial._replace(digest=None) for partial in kept.partials]
    kept.update()

    assert kept.update().merged == 2


def test_a_partial_that_was_replaced_before_it_was_read_is_noticed_the_next_time(
    kept: Kept,
) -> None:
    kept.put(0, 1)
    analysed_then = kept.partials[1]
    kept.put(1, twist=lambda one: replace(one, hostname="another"))
    now = kept.partials[1]
    # The row is written after the file: for a moment it still has the old digest.
    kept.partials[1] = analysed_then
    kept.update()
    kept.partials[1] = now
    settled = kept.update()
    assert settled.merged == 0
    kept.partials[1] = analysed_then
    assert kept.update().merged == 2


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "foreign"])
def test_a_damaged_file_makes_it_anew(kept: Kept, damage: str) -> None:
    kept.put(0, 1)
    path = kept.update().files[0]
    local = kept.storage.local_path(path)
    assert local is not None
    content = bytearray(local.read_bytes())
    if damage == "gone":
        local.unlink()
    else:
        content[len(content) // 2] ^= 1
        bad = {
            "cut": bytes(content[:-7]),
            "flipped": bytes(content),
            "foreign": b"something else" * 99,
        }[damage]
        # As all files here: whole, under the name, or not at all.
        other = local.with_name("other")
        other.write_bytes(bad)
        other.replace(local)
    kept.put(2)
    after = kept.update()

    assert (after.merged, len(after.files)) == (3, 1)
    assert after.why_anew
    assert kept.is_right()


def test_a_state_of_another_version_is_made_anew(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.put(0, 1)
    with monkeypatch.context() as old:
        old.setattr(pod_state, "POD_STATE_VERSION", pod_state.POD_STATE_VERSION - 1)
        kept.update()
    kept.put(2)

    after = kept.update()
    assert after.merged == 3
    assert "version" in after.why_anew


def test_too_many_files_become_one(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_states, "MAX_SEGMENTS", 2)
    counts = []
    for host in range(4):
        kept.put(host)
        counts.append(len(kept.update().files))

    assert counts == [1, 2, 1, 2]
    assert kept.is_right()


def test_a_partial_that_is_gone_or_damaged_is_an_error_and_leaves_the_state(kept: Kept) -> None:
    kept.put(0, 1)
    kept.update()
    kept.put(2)
    path = kept.partials[2].path
    kept.storage.delete([path])
    with pytest.raises(InputNotFoundError):
        kept.update()
    kept.storage.put_derived("partials", SESSION, "h2.partial", b"none")
    with pytest.raises(PartialError):
        kept.update()
    kept.put(2)

    assert kept.update().merged == 1
    assert kept.is_right()


def test_the_state_says_what_it_really_read(kept: Kept) -> None:
    kept.put(0)
    state = kept.update().state
    packed = kept.storage.read(kept.partials[0].path)

    assert [host.digest for host in state.hosts] == [hashlib.sha256(packed).hexdigest()]


@pytest.fixture
def capture(database: Database) -> Capture:
    """A capture whose reduce is under way."""
    with database.writing() as session:
        row = Capture(
            session=SESSION,
            run="llm",
            trigger=Trigger.MANUAL,
            state=CaptureState.COMPLETE,
            analysis_state=AnalysisState.RUNNING,
            created_at=NOW,
            finished_at=NOW,
            reduce_claimed_at=NOW,
            duration_ms=1,
            attempts=1,
            quorum="all",
            labels={},
            request={},
            hosts_total=1,
        )
        session.add(row)
        session.flush()
        session.expunge(row)
    return row


def test_of_two_workers_one_publishes(database: Database, capture: Capture) -> None:
    def publish(known: int, *files: str) -> int | None:
        with database.writing() as session:
            return services.publish_state(session, capture.id, known, files, NOW)

    assert publish(0, "a") == 1
    assert publish(0, "b") is None
    assert publish(1, "a", "late") == 2
    assert publish(1, "a", "other late") is None
    with database.reading() as session:
        state = services.find_state(session, capture.id)
    assert state is not None
    assert (state.generation, state.files) == (2, ["a", "late"])


def _found(text: str, file: str | None = None) -> dict[str, Any]:
    result = {
        "tool": "overview_page",
        "version": 1,
        "status": "ok",
        "body": None if file else {"text": text},
        "tables": None if file else {},
        "file": file,
        "size_bytes": 9,
    }
    return {
        "summary": {"text": text},
        "common_ends": None,
        "pod_viewer_rows": [],
        "results": [result],
    }


def test_results_of_a_state_that_was_replaced_are_dropped(
    database: Database, capture: Capture
) -> None:
    def stored() -> StoredToolResult | None:
        with database.reading() as session:
            return services.find_result(session, capture.id, "overview_page", "")

    def store(text: str, generation: int, file: str | None = None) -> list[str]:
        with database.writing() as session:
            return services.store_capture(session, capture.id, _found(text, file), generation, NOW)

    def publish(known: int) -> None:
        with database.writing() as session:
            assert services.publish_state(session, capture.id, known, [str(known)], NOW)

    publish(0)
    assert store("first", 1, "first file") == []
    assert stored() is not None
    publish(1)
    # Of hosts that are not all: to be computed, not to be read.
    assert stored() is None
    assert store("too late", 1) == []
    assert stored() is None
    assert store("second", 2) == ["first file"]
    found = stored()
    assert found is not None
    assert found.body == {"text": "second"}
    with database.reading() as session:
        row = session.get_one(Capture, capture.id)
        assert (row.summary, row.analysis_state) == (
            {"text": "second", "clock_check": None},
            AnalysisState.DONE,
        )
