"""SIGKILL of the collector's worker at random moments of captures, through ``podscope up``.

    python benchmarks/capture_kills.py --hosts 64 --moments 20

Every capture must end in a final state with every host final; the files stored must have the
digests of the table; and no host may have been asked for a profile while an earlier request for one
still ran there, which the simulator's journal tells.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from podscope_agent.simulator import Pod, serve

WINDOW_MS = 1500
# Within it a worker is replaced and its captures are taken over, on a busy machine too.
TIMEOUT_MS = 120_000
LEASE_S = 3
FINAL = {"done", "empty", "failed", "skipped", "cancelled"}


def wait_for(what: str, look: Callable[[], Any], seconds: float) -> Any:
    """What ``look`` finds at last."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            msg = f"waited {seconds:g} s in vain for {what}"
            raise TimeoutError(msg)
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def service(folder: Path) -> Iterator[tuple[psutil.Process, httpx.Client]]:
    """``podscope up`` in a folder, ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {"PODSCOPE_COLLECTOR_WORK_LEASE": str(LEASE_S)}
    paths = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-m", "podscope", "up", "--data-dir", str(folder / "data")]
    with (folder / "up.log").open("w") as log:
        process = psutil.Popen(
            [*command, "--port", str(port)],
            env={**os.environ, "PYTHONPATH": paths, **variables},
            stdout=log,
            stderr=log,
        )

    def ready() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return client.get("/readyz").status_code == httpx.codes.OK
        return False

    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
        try:
            wait_for("the service", ready, 90)
            yield process, client
        finally:
            process.terminate()
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()


def worker_of(process: psutil.Process) -> psutil.Process | None:
    """The process that runs captures; None while it is being started."""
    for child in process.children():
        with contextlib.suppress(psutil.Error):
            if "capture,maintenance" in child.cmdline():
                return child
    return None


def one_capture(
    process: psutil.Process, client: httpx.Client, targets: list[str], moment_s: float
) -> dict[str, Any]:
    """Capture, kill the worker at this moment, and wait for the end."""
    worker = wait_for("a worker", lambda: worker_of(process), 60)
    body = {"targets": targets, "duration_ms": WINDOW_MS, "timeout_ms": TIMEOUT_MS}
    created = client.post("/api/v1/captures", json=body)
    created.raise_for_status()
    path = f"/api/v1/captures/{created.json()['id']}"
    time.sleep(moment_s)
    at_kill = Counter(host["state"] for host in client.get(f"{path}/hosts").json()["items"])
    worker.kill()

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = client.get(path).json()
        return found if found["finished_at"] else None

    capture: dict[str, Any] = wait_for("the end of a capture", ended, 2 * TIMEOUT_MS / 1000)
    hosts = client.get(f"{path}/hosts").json()["items"]
    return {"capture": capture, "hosts": hosts, "at_kill": dict(at_kill)}


def problems(found: dict[str, Any], profiles: Path, journal: Path) -> list[str]:
    """What must not be."""
    wrong = []
    session = found["capture"]["session"]
    for host in found["hosts"]:
        if host["state"] not in FINAL:
            wrong.append(f"{host['host']} ended as {host['state']}")
        if host["state"] == "done":
            content = (profiles / host["file"]).read_bytes()
            if hashlib.sha256(content).hexdigest() != host["sha256"]:
                wrong.append(f"{host['host']}: its file has another digest")
    for line in journal.read_text().splitlines():
        asked = json.loads(line)
        if asked["session"] == session and asked["at_once"]:
            wrong.append(f"host {asked['host']} was asked {asked['at_once'] + 1} times at once")
    names = {Path(host["file"]).name for host in found["hosts"] if host["file"]}
    stored = {path.name for path in (profiles / "plugins/profile" / session).glob("*")}
    if stored != names:
        wrong.append(f"stored, and in no row: {sorted(stored - names)[:5]}")
    return wrong


def rounds(hosts: int, moments: list[float]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """A capture for each moment at which its worker is killed, and what was wrong with it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        folder, journal = Path(made), Path(made) / "journal"
        pod = Pod("cpu", hosts=hosts, steps=2)
        with serve(pod, journal=journal) as served, service(folder) as (process, client):
            for moment_s in moments:
                found = one_capture(process, client, list(served.addresses), moment_s)
                yield found, problems(found, folder / "data" / "profiles", journal)


def main() -> None:
    """Kill, look, and say what is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    draw = random.Random(chosen.seed)
    moments = [draw.uniform(0, 2 * WINDOW_MS / 1000) for _ in range(chosen.moments)]
    missed = 0
    for moment_s, (found, wrong) in zip(moments, rounds(chosen.hosts, moments), strict=True):
        states = dict(Counter(host["reason"] or host["state"] for host in found["hosts"]))
        tries = dict(Counter(host["attempts"] for host in found["hosts"]))
        print(
            f"  killed after {moment_s:4.2f} s with {found['at_kill']}: "
            f"{found['capture']['state']}, {states}, attempts {tries}",
            flush=True,
        )
        for line in wrong[:5]:
            print(f"    {line}")
        missed += bool(wrong)
    verdict = "met" if not missed else "MISSED"
    print(f"{chosen.moments} captures of {chosen.hosts} hosts, {missed} wrong   goal 0   {verdict}")


if __name__ == "__main__":
    main()
