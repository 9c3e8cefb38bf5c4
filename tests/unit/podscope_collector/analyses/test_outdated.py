"""Results of older podscopes are made anew, and never answered as they are."""

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from podscope_agent.simulator import Pod
from podscope_analyzers import partials
from podscope_analyzers.errors import PartialError
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.states import pack_state, unpack_state
from podscope_collector.analyses import results, services, tasks
from podscope_collector.analyses.models import HostSummary, StoredToolResult
from podscope_collector.analyses.outdated import MadeAgain, make_again
from podscope_collector.analyses.pod_states import StoredPartial
from podscope_collector.captures.queries import find_capture
from podscope_collector.captures.states import AnalysisState
from podscope_collector.db import JsonObject
from podscope_collector.work import context
from podscope_collector.work.models import WorkItem, WorkKind

POD = Pod("tpu-v5e", 2, 6, 3)
HOST = POD.hostname(0)
OLDER: JsonObject = {"tool": "an older podscope's"}


@pytest.fixture
def service(tmp_path: Path, serving: Any) -> Iterator[Any]:
    with serving(tmp_path, {"run": POD}) as found:
        yield found


def _ask(service: Any, tool: str, **query: str) -> Any:
    return service.client.get(f"/api/v1/captures/{service.ids['run']}/tools/{tool}", params=query)


def _capture(service: Any) -> uuid.UUID:
    return uuid.UUID(service.ids["run"])


def _make_result_older(service: Any, tool: str, host: str, by: int = 1) -> None:
    with service.runtime.database.writing() as session:
        session.execute(
            update(StoredToolResult)
            .where(StoredToolResult.tool == tool, StoredToolResult.host == host)
            .values(version=TOOLS[tool].version - by, body=OLDER, tables={}, file=None)
        )


def _stored(service: Any, tool: str, host: str) -> StoredToolResult:
    with service.runtime.database.reading() as session:
        found = services.find_result(session, _capture(service), tool, host)
    assert found is not None
    return found


def _partials(service: Any) -> list[StoredPartial]:
    with service.runtime.database.reading() as session:
        return services.partials_of(session, _capture(service))


def _make_partial_older(service: Any, host: str, by: int = 1) -> None:
    storage = service.runtime.storage
    (one,) = [stored for stored in _partials(service) if stored.host == host]
    state = unpack_state(storage.read(one.path))
    state["partial_version"] = partials.PARTIAL_VERSION - by
    (storage.folder / one.path).write_bytes(pack_state(state))


def _hosts_at_work(service: Any) -> int:
    with service.runtime.database.reading() as session:
        items = session.scalars(select(WorkItem)).all()
    return sum(item.kind is WorkKind.ANALYZE_HOST for item in items)


def _work(service: Any) -> None:
    """Do all work that there is, as a worker would."""
    context.install(service.runtime)
    run = {
        WorkKind.ANALYZE_HOST: tasks.analyze_host,
        WorkKind.REDUCE_CAPTURE: tasks.reduce_capture,
    }
    while True:
        with service.runtime.database.reading() as session:
            items = [(item.kind, str(item.id)) for item in session.scalars(select(WorkItem))]
        if not items:
            return
        for kind, work_id in items:
            run[kind](work_id)


@pytest.mark.parametrize(("tool", "host"), [("op_profile", HOST), ("overview_page", "")])
def test_a_result_of_an_older_version_is_made_anew_once(service: Any, tool: str, host: str) -> None:
    asked = {"host": host} if host else {}
    before = _ask(service, tool, **asked).json()
    _make_result_older(service, tool, host)
    assert _ask(service, tool, **asked).json() == before
    stored = _stored(service, tool, host)
    assert stored.version == TOOLS[tool].version
    assert stored.body != OLDER
    assert stored.size_bytes > len(json.dumps(stored.body))


def test_a_large_result_is_made_anew_too_and_its_old_file_goes(service: Any) -> None:
    before = _ask(service, "graph_viewer", host=HOST).json()
    path = ".podscope/results/older.json"
    (service.runtime.storage.folder / path).write_text(json.dumps({"body": OLDER, "tables": {}}))
    with service.runtime.database.writing() as session:
        session.execute(
            update(StoredToolResult)
            .where(StoredToolResult.tool == "graph_viewer")
            .values(version=TOOLS["graph_viewer"].version - 1, body=None, tables=None, file=path)
        )
    assert _ask(service, "graph_viewer", host=HOST).json() == before
    assert not (service.runtime.storage.folder / path).exists()


def test_a_result_that_cannot_be_stored_anew_is_answered_all_the_same(
    service: Any,
) -> None:
    before = _ask(service, "op_profile", host=HOST).json()
    _make_result_older(service, "op_profile", HOST)
    settings = service.runtime.settings.model_copy(update={"max_inline_result_bytes": 0})
    runtime = replace(service.runtime, settings=settings)
    # A file where the folder of large results would be made: nothing can be written there.
    folder = service.runtime.storage.folder / ".podscope" / "results"
    if folder.exists():
        shutil.rmtree(folder)
    folder.write_bytes(b"")
    question = results.ask(runtime, _capture(service), "op_profile", HOST, {})
    assert results.answer(runtime, question)["body"] == before
    assert _stored(service, "op_profile", HOST).version == TOOLS["op_profile"].version - 1


def test_a_result_of_a_newer_version_is_answered_while_services_are_upgraded(
    service: Any,
) -> None:
    _make_result_older(service, "op_profile", HOST, by=-1)
    assert _ask(service, "op_profile", host=HOST).json() == OLDER


def test_csv_and_comparisons_are_of_the_new_result(service: Any) -> None:
    before = _ask(service, "hlo_stats", host=HOST, format="csv", table="instructions").text
    _make_result_older(service, "hlo_stats", HOST)
    shown = _ask(service, "hlo_stats", host=HOST, format="csv", table="instructions").text
    assert shown == before
    _make_result_older(service, "hlo_stats", HOST)
    path = f"/api/v1/captures/{service.ids['run']}/tools/hlo_stats/diff"
    hosts = {"base_host": HOST, "host": POD.hostname(1)}
    assert service.client.get(path, params=hosts).json()["status"] == "ok"


def test_an_older_partial_is_made_again_from_the_profile(service: Any) -> None:
    asked = {"host": HOST, "group_by": "category"}
    expected = {
        "of one": _ask(service, "op_profile", **asked).json(),
        "of all": _ask(service, "overview_page").json(),
    }
    for host in range(2):
        _make_partial_older(service, POD.hostname(host))
    for _ in range(2):
        answer = _ask(service, "op_profile", **asked)
        assert answer.status_code == 409
        assert "analysed" in answer.json()["detail"]
        assert "ask again in a moment" in answer.json()["detail"]
        # Both hosts, and asking twice makes the work once.
        assert _hosts_at_work(service) == 2
    of_all = _ask(service, "overview_page")
    assert (of_all.status_code, of_all.json()["code"]) == (409, "not_analyzed")
    _work(service)
    assert _ask(service, "op_profile", **asked).json() == expected["of one"]
    assert _ask(service, "overview_page").json() == expected["of all"]
    shown = service.client.get(f"/api/v1/captures/{service.ids['run']}").json()
    assert shown["analysis"]["state"] == AnalysisState.DONE.value


def test_a_late_reduce_has_older_hosts_analysed_again_first(service: Any) -> None:
    expected = _ask(service, "pod_viewer").json()
    _make_partial_older(service, POD.hostname(1))
    with service.runtime.database.writing() as session:
        services.analyze_again(session, _capture(service), [HOST], service.runtime.clock())
    _work(service)
    assert _ask(service, "pod_viewer").json() == expected


def test_older_hosts_whose_profiles_are_gone_say_so(service: Any) -> None:
    folder = service.runtime.storage.folder
    for file in folder.rglob("*.xplane.pb"):
        file.unlink()
    stored = _ask(service, "op_profile", host=HOST).json()
    _make_partial_older(service, HOST)
    answer = _ask(service, "op_profile", host=HOST, group_by="category")
    assert answer.status_code == 409
    assert "its profiles are gone" in answer.json()["detail"]
    assert _hosts_at_work(service) == 0
    # What does not need it is still there.
    assert _ask(service, "op_profile", host=HOST).json() == stored


def test_a_newer_partial_asks_for_an_upgrade_and_is_left_alone(service: Any) -> None:
    _make_partial_older(service, HOST, by=-1)
    answer = _ask(service, "op_profile", host=HOST, group_by="category")
    assert "upgrade podscope" in answer.json()["detail"]
    assert _hosts_at_work(service) == 0


def _host_states(service: Any) -> dict[str, tuple[AnalysisState | None, str | None]]:
    with service.runtime.database.reading() as session:
        hosts = find_capture(session, _capture(service)).hosts
        return {host.host: (host.analysis_state, host.analysis_error) for host in hosts}


def _analyze_once_more(service: Any, host: str) -> None:
    with service.runtime.database.writing() as session:
        services.analyze_again(session, _capture(service), [host], service.runtime.clock())


def _replace_partial(service: Any, host: str, packed: bytes, *, is_of_analysis: bool) -> None:
    storage = service.runtime.storage
    (one,) = [stored for stored in _partials(service) if stored.host == host]
    (storage.folder / one.path).write_bytes(packed)
    if is_of_analysis:
        with service.runtime.database.writing() as session:
            session.execute(
                update(HostSummary)
                .where(HostSummary.host == host)
                .values(partial_digest=hashlib.sha256(packed).hexdigest())
            )


def _without_steps() -> bytes:
    return pack_state({"partial_version": partials.PARTIAL_VERSION, "host": HOST})


def test_a_host_whose_analysis_cannot_be_read_fails_and_the_others_go_on(service: Any) -> None:
    _replace_partial(service, HOST, _without_steps(), is_of_analysis=True)
    _analyze_once_more(service, POD.hostname(1))
    _work(service)
    states = _host_states(service)
    assert states[POD.hostname(1)] == (AnalysisState.DONE, None)
    state, reason = states[HOST]
    assert state is AnalysisState.FAILED
    assert "damaged" in (reason or "")
    found = _ask(service, "pod_viewer").json()["scope"]
    assert found["hosts"] == [POD.hostname(1)]
    assert found["missing_hosts"] == [{"host": HOST, "reason": "analysis_failed"}]


@pytest.mark.parametrize("damaged", [b"", b"no partial", _without_steps()])
def test_a_partial_that_was_damaged_since_is_made_again(service: Any, damaged: bytes) -> None:
    expected = _ask(service, "pod_viewer").json()
    _replace_partial(service, HOST, damaged, is_of_analysis=False)
    _analyze_once_more(service, POD.hostname(1))
    _work(service)
    assert _ask(service, "pod_viewer").json() == expected
    assert set(_host_states(service).values()) == {(AnalysisState.DONE, None)}


def test_a_late_reduce_without_profiles_keeps_what_there_is(service: Any) -> None:
    stored = _ask(service, "op_profile", host=HOST).json()
    for host in range(2):
        _make_partial_older(service, POD.hostname(host))
    for file in service.runtime.storage.folder.rglob("*.xplane.pb"):
        file.unlink()
    with service.runtime.database.writing() as session:
        capture = find_capture(session, _capture(service))
        capture.analysis_state, capture.reduce_claimed_at = AnalysisState.PENDING, None
        assert services.claim_reduce(session, capture.id, service.runtime.clock())
        known = services.find_state(session, capture.id)
        assert known is not None
        files = list(known.files)
    context.install(service.runtime)
    with service.runtime.database.reading() as session:
        (work_id,) = [str(item.id) for item in session.scalars(select(WorkItem))]
    tasks.reduce_capture(work_id)
    assert _hosts_at_work(service) == 0
    assert {state for state, _ in _host_states(service).values()} == {AnalysisState.DONE}
    assert _ask(service, "op_profile", host=HOST).json() == stored
    with service.runtime.database.reading() as session:
        known = services.find_state(session, _capture(service))
        assert known is not None
        assert known.files == files
    assert all((service.runtime.storage.folder / file).exists() for file in files)
    assert _stored(service, "overview_page", "").status


def test_only_hosts_with_a_profile_are_analysed_again(service: Any) -> None:
    other = POD.hostname(1)
    stored = _ask(service, "op_profile", host=HOST).json()
    for host in (HOST, other):
        _make_partial_older(service, host)
    (profile,) = service.runtime.storage.folder.rglob(f"{HOST}.xplane.pb")
    profile.unlink()
    assert _ask(service, "op_profile", host=other, group_by="category").status_code == 409
    assert _hosts_at_work(service) == 1
    assert {name: state for name, (state, _) in _host_states(service).items()} == {
        HOST: AnalysisState.DONE,
        other: AnalysisState.PENDING,
    }
    assert _ask(service, "op_profile", host=HOST).json() == stored


def test_hosts_under_way_are_not_read_to_say_so(service: Any) -> None:
    _make_partial_older(service, HOST)
    assert make_again(service.runtime, _capture(service)) is MadeAgain.UNDER_WAY
    # To read it would raise: a newer podscope's.
    _make_partial_older(service, POD.hostname(1), by=-1)
    assert make_again(service.runtime, _capture(service)) is MadeAgain.UNDER_WAY
    assert _hosts_at_work(service) == 1


def test_what_another_analysis_would_not_help_is_said_and_not_made_again(service: Any) -> None:
    with service.runtime.database.reading() as session:
        folder = find_capture(session, _capture(service)).session
    packed = pack_state({"part_version": partials.PART_VERSION, "programs": 3})
    service.runtime.storage.put_derived("parts", folder, f"{HOST}.programs", packed)
    question = results.ask(service.runtime, _capture(service), "graph_viewer", HOST, {"limit": "2"})
    with pytest.raises(PartialError, match="the stored programs are damaged"):
        results.answer(service.runtime, question)
    assert _hosts_at_work(service) == 0
