from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from podscope_collector.captures import importing, services
from podscope_collector.captures.importing import FoundProfile, FoundRun, Imported
from podscope_collector.captures.models import Capture, Trigger
from podscope_collector.captures.states import AnalysisState, CaptureState, HostState, ReasonCode
from podscope_collector.db import Database
from podscope_collector.errors import ConflictError
from podscope_collector.profiles import find_runs
from podscope_collector.runtime import Runtime
from podscope_collector.settings import CollectorSettings
from podscope_collector.work.models import WorkItem, WorkKind
from podscope_protos.v1 import xplane_pb2


def xspace(name: str) -> bytes:
    space = xplane_pb2.XSpace(hostnames=[name])
    line = space.planes.add(name="/host:CPU").lines.add(id=1, name="main")
    line.events.add(metadata_id=1, duration_ps=1000)
    return space.SerializeToString()


@pytest.fixture
def runtime(database: Database, tmp_path: Path) -> Runtime:
    return Runtime(CollectorSettings(data_dir=tmp_path / "data"), database)


def write(logdir: Path, session: str, **profiles: bytes) -> Path:
    folder = logdir / "plugins" / "profile" / session
    folder.mkdir(parents=True)
    for host, content in profiles.items():
        (folder / f"{host}.xplane.pb").write_bytes(content)
    return logdir


def found(logdir: Path) -> list[FoundRun]:
    return [
        FoundRun(
            run.session or "",
            (run.session or "",),
            tuple(FoundProfile(f.host, f.place, f.read) for f in run.files),
        )
        for run in find_runs(str(logdir))
    ]


def bring(runtime: Runtime, runs: Sequence[FoundRun]) -> list[Imported]:
    return list(importing.import_runs(runtime, runs, "llm", lambda: None))


def only_capture(runtime: Runtime) -> Capture:
    with runtime.database.reading() as session:
        capture = session.scalars(select(Capture)).one()
        assert capture.hosts
        return capture


def test_a_folder_becomes_a_capture_whose_hosts_are_to_be_analysed(
    runtime: Runtime, tmp_path: Path
) -> None:
    logdir = write(tmp_path / "logs", "2026_01_02_03_04_05", w0=xspace("w0"), w1=xspace("w1"))
    (result,) = bring(runtime, found(logdir))
    assert (result.hosts_done, result.hosts_total, result.problem) == (2, 2, None)
    capture = only_capture(runtime)
    assert (capture.session, capture.run) == ("2026_01_02_03_04_05", "llm")
    assert (capture.state, capture.trigger) == (CaptureState.COMPLETE, Trigger.IMPORT)
    assert [host.analysis_state for host in capture.hosts] == [AnalysisState.PENDING] * 2
    with runtime.database.reading() as session:
        kinds = [item.kind for item in session.scalars(select(WorkItem))]
    assert kinds == [WorkKind.ANALYZE_HOST] * 2
    for host in capture.hosts:
        assert runtime.storage.read(host.file or "") == xspace(host.host)


def test_importing_twice_changes_nothing(runtime: Runtime, tmp_path: Path) -> None:
    logdir = write(tmp_path / "logs", "2026_01_02_03_04_05", w0=xspace("w0"))
    bring(runtime, found(logdir))
    (again,) = bring(runtime, found(logdir))
    assert again.is_known
    assert again.capture_id is None
    only_capture(runtime)


def test_two_jobs_may_call_their_folders_alike(runtime: Runtime, tmp_path: Path) -> None:
    first = write(tmp_path / "a", "2026_01_02_03_04_05", w0=xspace("one"))
    second = write(tmp_path / "b", "2026_01_02_03_04_05", w0=xspace("other"))
    results = bring(runtime, [*found(first), *found(second)])
    assert [r.session for r in results] == ["2026_01_02_03_04_05", "2026_01_02_03_04_05-2"]
    assert all(r.hosts_done == 1 for r in results)


def test_a_damaged_profile_is_kept_aside_and_costs_only_itself(
    runtime: Runtime, tmp_path: Path
) -> None:
    logdir = write(tmp_path / "logs", "run", good=xspace("good"), torn=xspace("torn")[:-3])
    (result,) = bring(runtime, found(logdir))
    assert result.hosts_done == 1
    assert "torn" in (result.problem or "")
    capture = only_capture(runtime)
    assert capture.state is CaptureState.PARTIAL
    torn = next(host for host in capture.hosts if host.host == "torn")
    assert (torn.state, torn.reason) == (HostState.FAILED, ReasonCode.CORRUPT)
    rejected = runtime.storage.read_derived("rejected", "run", "torn")
    assert rejected == xspace("torn")[:-3]


def test_a_run_without_a_sound_profile_makes_no_capture(runtime: Runtime, tmp_path: Path) -> None:
    (result,) = bring(runtime, found(write(tmp_path / "logs", "run", w0=b"\xff" * 20)))
    assert (result.capture_id, result.hosts_done) == (None, 0)
    with runtime.database.reading() as session:
        assert session.scalars(select(Capture)).all() == []


def test_an_imported_capture_cannot_be_repeated(runtime: Runtime, tmp_path: Path) -> None:
    (result,) = bring(runtime, found(write(tmp_path / "logs", "run", w0=xspace("w0"))))
    assert result.capture_id is not None
    with (
        pytest.raises(ConflictError, match="cannot be repeated"),
        runtime.database.writing() as session,
    ):
        services.retry_capture(session, result.capture_id, runtime.clock())


def run(session: str, *hosts: str) -> FoundRun:
    profiles = tuple(FoundProfile(host, host, lambda: b"") for host in hosts)
    return FoundRun(session, (session,), profiles)


def test_folders_of_one_capture_are_joined_whose_names_differ_by_seconds() -> None:
    runs = [
        run("2026_01_02_03_05_05", "w0"),
        run("2026_01_02_03_04_07", "w1"),
        run("2026_01_02_03_04_05", "w0"),
        run("2026_01_02_03_04_36_500", "w2"),
        run("nightly", "w3"),
    ]
    merged = importing.merge_runs(runs, timedelta(seconds=30))
    assert [(m.session, [p.host for p in m.profiles]) for m in merged] == [
        ("2026_01_02_03_04_05", ["w0", "w1", "w2"]),
        ("2026_01_02_03_05_05", ["w0"]),
        ("nightly", ["w3"]),
    ]
    assert merged[0].folders == (
        "2026_01_02_03_04_05",
        "2026_01_02_03_04_07",
        "2026_01_02_03_04_36_500",
    )


def test_a_host_that_is_in_both_folders_was_captured_twice() -> None:
    runs = [run("2026_01_02_03_04_05", "w0"), run("2026_01_02_03_04_06", "w0")]
    assert len(importing.merge_runs(runs, timedelta(seconds=30))) == 2
