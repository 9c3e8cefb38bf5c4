"""A capture of many hosts one in ten of which is faulty, held against what was planted.

    python benchmarks/capture_faults.py --hosts 210

Every kind of fault that the simulator has is planted equally often. Every host must end as the
simulator's ground truth says, and whoever can be captured must be stored whole: the host that it
says it is, with as many events as were planted, under the digest in the table.
"""

import argparse
import asyncio
import hashlib
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from podscope_agent.simulator import Fault, Pod, serve
from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.outcome import CaptureOutcome, HostUpdate
from podscope_collector.captures.request import parse_request
from podscope_collector.storage import Storage
from podscope_protos.v1 import xplane_pb2

FAULTS: Final = (
    Fault("refuse"),
    Fault("hang"),
    Fault("busy", 2),
    Fault("empty"),
    Fault("corrupt"),
    Fault("reset"),
    Fault("slow", 1_000_000),
)
EXPECTED: Final = {
    # fault: state, reason, attempts
    None: ("done", None, 1),
    "refuse": ("failed", "refused", 3),
    "hang": ("failed", "deadline", 1),
    "busy": ("done", None, 3),
    "empty": ("empty", "empty_trace", 1),
    "corrupt": ("failed", "corrupt", 3),
    "reset": ("failed", "reset", 3),
    "slow": ("done", None, 1),
}


def planted(hosts: int) -> dict[int, Fault]:
    """One host in ten, spread over the pod, every kind in turn; each kind at least once."""
    faulty = max(len(FAULTS), hosts // 10)
    return {index * hosts // faulty: FAULTS[index % len(FAULTS)] for index in range(faulty)}


def capture(addresses: tuple[str, ...], folder: Path) -> CaptureOutcome:
    """Capture all, three attempts each."""
    storage = Storage(str(folder))
    request = parse_request(
        {"targets": list(addresses), "duration_ms": 300, "timeout_ms": 15_000, "attempts": 3}
    )
    session = storage.new_session()
    targets = request.parsed_targets().targets
    return asyncio.run(run_capture(request, targets, storage, session, lambda update: None))


def differences(outcome: CaptureOutcome, truth_file: Path, folder: Path) -> list[str]:
    """Where the table or a stored profile is not as planted."""
    truth = json.loads(truth_file.read_text())
    found: list[str] = []
    for host, told in zip(outcome.hosts, truth["hosts"], strict=True):
        wanted = EXPECTED[told["fault"]]
        got = (str(host.state), host.reason and str(host.reason), host.attempts)
        if host.target != told["address"] or got != wanted:
            found.append(f"{told['address']} ({told['fault']}): {got}, not {wanted}")
        elif wanted[0] == "done":
            found += damage(host, told["hostname"], truth["capture"]["events"], folder)
    return found


def damage(host: HostUpdate, name: str, events: int, folder: Path) -> list[str]:
    """What is wrong with a stored profile, read by protobuf."""
    content = (folder / str(host.file)).read_bytes()
    if hashlib.sha256(content).hexdigest() != host.sha256:
        return [f"{host.target}: the file has another digest"]
    space = xplane_pb2.XSpace.FromString(content)
    stored = sum(
        len(line.events)
        for plane in space.planes
        if plane.name != "/host:filler"
        for line in plane.lines
    )
    if list(space.hostnames) != [name] or stored != events:
        return [
            f"{host.target}: {list(space.hostnames)} with {stored} events, not {name}, {events}"
        ]
    return []


def main() -> None:
    """Capture once and say what is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=210)
    chosen = parser.parse_args()
    faults = planted(chosen.hosts)
    with tempfile.TemporaryDirectory() as made:
        folder, truth = Path(made), Path(made) / "truth.json"
        pod = Pod("cpu", hosts=chosen.hosts, steps=3, host_bytes=2_000_000)
        with serve(pod, faults=faults, truth=truth) as served:
            began = time.perf_counter()
            outcome = capture(served.addresses, folder)
            wall = time.perf_counter() - began
        wrong = differences(outcome, truth, folder)
    kinds = Counter(fault.kind for fault in faults.values())
    states = Counter(str(host.reason or host.state) for host in outcome.hosts)
    print(f"{chosen.hosts} hosts, faulty: {dict(kinds)}; {wall:.1f} s, {outcome.state}")
    print(f"  {dict(states)}")
    for line in wrong[:10]:
        print(f"  {line}")
    verdict = "met" if not wrong else "MISSED"
    print(f"  hosts that differ from the truth: {len(wrong)}   goal 0   {verdict}")


if __name__ == "__main__":
    main()
