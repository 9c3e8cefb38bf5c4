"""What one host that comes late costs, by parts; `benchmarks/reduce.py` prints it for its pod.

    python benchmarks/late_host.py FOLDER LISTING HOSTS

What the service's worker does when the last late host has been analysed, with a real database, in
a warm process of the pool of analyses: read which partials and which state there are, merge the
late host's partial into the state, publish that. From then on whoever asks gets results of all
hosts. They are computed from the state when they are asked for, until the worker has made and
stored all of them, which is measured too. Each figure is the least of several rounds.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("agent", "analyzers", "collector", "protos")]

GOAL_MS = 100.0
ROUNDS = 7
JOBS = "podscope_collector.analyses.jobs"
TOOLS = ("overview_page", "pod_viewer", "input_pipeline_analyzer", "op_profile", "hlo_stats")


class Took(NamedTuple):
    """Milliseconds; the CPU time is of this process."""

    cpu: float
    wall: float


class Service:
    """A database with a capture of many hosts, and a pool of one process.

    Args:
        folder: The storage, with the partials.
        stored: Names of the hosts and where their partials are; the last one is late.
        data_dir: For the database.
    """

    def __init__(self, folder: Path, stored: list[tuple[str, str]], data_dir: Path) -> None:
        import hashlib

        from podscope_collector import schema
        from podscope_collector.analyses.models import HostSummary
        from podscope_collector.analyses.processes import AnalysisProcesses
        from podscope_collector.captures.models import Capture, CaptureHost, Trigger
        from podscope_collector.captures.states import AnalysisState, CaptureState, HostState
        from podscope_collector.db import Database

        self.root, self.now = str(folder), datetime.now(UTC)
        self.processes = AnalysisProcesses(1, memory_bytes=8 << 30, tasks_per_process=1 << 20)
        self.database = Database(f"sqlite:///{data_dir / 'podscope.db'}")
        schema.upgrade(self.database)
        with self.database.writing() as session:
            capture = Capture(
                session="late",
                run="pod",
                state=CaptureState.COMPLETE,
                trigger=Trigger.MANUAL,
                created_at=self.now,
                finished_at=self.now,
                duration_ms=1000,
                attempts=1,
                quorum="all",
                labels={},
                request={},
                hosts_total=len(stored),
                hosts_done=len(stored),
            )
            session.add(capture)
            session.flush()
            self.capture_id = capture.id
            for position, (name, path) in enumerate(stored):
                host = CaptureHost(
                    capture_id=capture.id,
                    position=position,
                    given=name,
                    target=f"{name}:9999",
                    host=name,
                    state=HostState.DONE,
                    analysis_state=AnalysisState.DONE,
                )
                session.add(host)
                session.flush()
                session.add(
                    HostSummary(
                        capture_host_id=host.id,
                        capture_id=capture.id,
                        host=name,
                        breakdown={},
                        partial_file=path,
                        partial_digest=hashlib.sha256((folder / path).read_bytes()).hexdigest(),
                        created_at=self.now,
                    )
                )

    def call(self, function: str, **arguments: Any) -> Any:
        """One of ``jobs``' functions in the process."""
        return self.processes.run(
            f"{JOBS}:{function}",
            {"storage_root": self.root, "session": "late", **arguments},
            timedelta(minutes=10),
            threading.Event(),
        )

    def rows(self) -> tuple[list[Any], list[tuple[str, str]], int, list[str]]:
        """What the worker reads before it merges."""
        from podscope_collector.analyses import services

        with self.database.reading() as session:
            state = services.find_state(session, self.capture_id)
            known, files = (state.generation, state.files) if state is not None else (0, [])
            return (
                services.partials_of(session, self.capture_id),
                services.missing_hosts(session, self.capture_id),
                known,
                files,
            )

    def publish(self, known: int, files: list[str]) -> int | None:
        """Make the files the capture's state."""
        from podscope_collector.analyses import services

        with self.database.writing() as session:
            return services.publish_state(session, self.capture_id, known, files, self.now)

    def close(self) -> None:
        """End the process."""
        self.processes.close()
        self.database.dispose()


def timed(work: Callable[[], Any]) -> tuple[Took, Any]:
    """What it took, and what came out."""
    begin, cpu = time.perf_counter(), time.process_time()
    found = work()
    return Took((time.process_time() - cpu) * 1e3, (time.perf_counter() - begin) * 1e3), found


def merge_parts(root: str, late: Any, files: list[str]) -> dict[str, Took]:
    """The merge's parts, in this process."""
    from podscope_analyzers.partials import HostPartial
    from podscope_collector.analyses.pod_states import open_state
    from podscope_collector.storage import Storage

    storage = Storage(root)
    opened, state = timed(lambda: open_state(storage, files))
    checked, _ = timed(state.verify)
    read, partial = timed(lambda: HostPartial.from_bytes(storage.read(late.path)))
    merged, more = timed(lambda: state.with_hosts([(partial, late.digest)]))
    written, _ = timed(lambda: storage.put_derived("pods", "late", "benchmark", more.newest))
    return {
        "of the merge: open the kept state": opened,
        "of the merge: check its bytes": checked,
        "of the merge: read the late host's partial": read,
        "of the merge: add it": merged,
        "of the merge: write the new segment": written,
    }


def first_answers(root: str, files: list[str]) -> dict[str, Took]:
    """Tools asked before their results have been stored, each with a state of its own."""
    from podscope_analyzers.pipeline import run_on_stats
    from podscope_analyzers.registry import find_tool
    from podscope_analyzers.result import Scope
    from podscope_collector.analyses.pod_states import open_state
    from podscope_collector.storage import Storage

    found = {}
    for name in TOOLS:
        tool = find_tool(name)

        def answer(tool: Any = tool) -> Any:
            state = open_state(Storage(root), files)
            stats = state.stats(keep_incomplete_steps=tool.keeps_incomplete_steps)
            return run_on_stats(tool, stats, Scope([host.host for host in state.hosts]), {})

        found[name] = min((timed(answer)[0] for _ in range(2)), key=lambda one: one.cpu)
    return found


def main() -> None:
    """Prints the table."""
    from podscope_collector.analyses.jobs import merge_stored_hosts, reduce_stored_capture

    folder, hosts = Path(sys.argv[1]), int(sys.argv[3])
    stored = [(name, path) for name, path in json.loads(Path(sys.argv[2]).read_text())[:hosts]]
    with tempfile.TemporaryDirectory() as data_dir:
        service = Service(folder, stored, Path(data_dir))
        partials, missing, _, _ = service.rows()
        names = [partial.host for partial in partials]
        all_but_one = {"partials": partials[:-1], "files": []}
        service.call("merge_stored_hosts", **{**all_but_one, "partials": partials[:1]})
        whole, kept = timed(lambda: merge_stored_hosts(service.root, "late", **all_but_one))
        known = service.publish(0, kept["files"])
        rounds = []
        for _ in range(ROUNDS):
            parts = {}
            parts["rows of the database"], (given, _, generation, files) = timed(service.rows)
            arguments = {"partials": given, "files": files}
            # For the CPU time here, for the wall time as the service does it.
            here, _ = timed(lambda a=arguments: merge_stored_hosts(service.root, "late", **a))
            there, merged = timed(lambda a=arguments: service.call("merge_stored_hosts", **a))
            assert merged["merged"] == 1, merged
            parts["merge"] = Took(here.cpu, there.wall)
            parts["publish"], known = timed(
                lambda g=generation, m=merged: service.publish(g, m["files"])
            )
            total = Took(*(sum(one) for one in zip(*parts.values(), strict=True)))
            inside = merge_parts(service.root, given[-1], files)
            rounds.append((total, parts | inside))
            # Back to the state without the late host, for the next round.
            assert known is not None
            service.publish(known, kept["files"])
        total, parts = min(rounds, key=lambda one: one[0].cpu)
        store, _ = timed(
            lambda: reduce_stored_capture(
                service.root, "late", "late", names, missing, merged["files"], 1 << 16
            )
        )
        answers = first_answers(service.root, merged["files"])
        service.close()
    size = sum((folder / path).stat().st_size for path in merged["files"]) / 1e6
    print(f"host {hosts:,} is late, {size:.1f} MB of combined state")
    print("| | CPU | wall |\n|---|--:|--:|")
    rows = {
        **parts,
        f"**until results have it** (goal {GOAL_MS:.0f} ms)": total,
        "all results anew, stored after that": store,
        **{f"asked for before: {name}": took for name, took in answers.items()},
        f"for comparison: {hosts - 1:,} hosts combined at once": whole,
    }
    for name, took in rows.items():
        print(f"| {name} | {took.cpu:,.1f} ms | {took.wall:,.1f} ms |")


if __name__ == "__main__":
    main()
