"""A service with captures that were imported and analysed in this process."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import delete

from podscope_agent.simulator import Pod, write_pod
from podscope_collector import schema
from podscope_collector.analyses import jobs, services
from podscope_collector.app import create_app
from podscope_collector.captures.importing import FoundProfile, FoundRun, import_runs
from podscope_collector.captures.models import Capture
from podscope_collector.db import Database
from podscope_collector.profiles import find_runs
from podscope_collector.runtime import Runtime
from podscope_collector.settings import CollectorSettings
from podscope_collector.work.models import WorkItem

with warnings.catch_warnings():
    # Its own import warns about its own dependency.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient


class NoBroker:
    def send_task(self, name: str, *, args: list[str], queue: str) -> object:
        return None


@dataclass(frozen=True)
class AnalyzedService:
    """A service, its captures' ids by session, and the profiles that they were imported from."""

    client: TestClient
    ids: dict[str, str]
    logs: Path
    runtime: Runtime


Serving = Callable[[Path, Mapping[str, Pod]], AbstractContextManager[AnalyzedService]]


def _analyze(runtime: Runtime, capture: Capture) -> None:
    root, inline = runtime.settings.storage, runtime.settings.max_inline_result_bytes
    now = runtime.clock()
    for host in capture.hosts:
        found = jobs.analyze_stored_host(root, capture.session, host.host, str(capture.id), inline)
        with runtime.database.writing() as session:
            services.store_host(session, host.id, found, now, 0.1)
    with runtime.database.writing() as session:
        assert services.claim_reduce(session, capture.id, now)
        partials = services.partials_of(session, capture.id)
        missing = services.missing_hosts(session, capture.id)
    files = jobs.merge_stored_hosts(root, capture.session, partials, [])["files"]
    with runtime.database.writing() as session:
        generation = services.publish_state(session, capture.id, 0, files, now)
    assert generation == 1
    hosts = [partial.host for partial in partials]
    found = jobs.reduce_stored_capture(
        root, capture.session, str(capture.id), hosts, missing, files, inline
    )
    with runtime.database.writing() as session:
        assert services.store_capture(session, capture.id, found, generation, now) == []
        # What a worker would have done.
        session.execute(delete(WorkItem))


@pytest.fixture(scope="session")
def serving() -> Serving:
    """Starts a service on some pods' profiles."""
    return _serving


@contextmanager
def _serving(folder: Path, pods: Mapping[str, Pod]) -> Iterator[AnalyzedService]:
    logs = folder / "logs"
    for name, pod in pods.items():
        list(write_pod(pod, logs, name))
    database = Database(f"sqlite:///{folder / 'podscope.db'}")
    schema.upgrade(database)
    settings = CollectorSettings(data_dir=folder / "data")
    runtime = Runtime(settings, database)
    runs = [
        FoundRun(
            run.session or "",
            (run.session or "",),
            tuple(FoundProfile(f.host, f.place, f.read) for f in run.files),
        )
        for run in find_runs(str(logs))
    ]
    list(import_runs(runtime, runs, "llm", lambda: None))
    with database.reading() as session:
        captures = list(session.query(Capture))
        assert all(capture.hosts for capture in captures)
    for capture in captures:
        _analyze(runtime, capture)
    ids = {name: str(c.id) for c in captures for name in pods if c.session.startswith(name)}
    assert set(ids) == set(pods)
    app = create_app(settings, runtime=runtime, sender=NoBroker())
    with TestClient(app, base_url="http://127.0.0.1:8080") as client:
        yield AnalyzedService(client, ids, logs, runtime)
    database.dispose()
