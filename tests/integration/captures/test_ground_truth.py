"""A pod with every kind of fault ends as the simulator's ground truth says, and nothing is lost."""

import runpy
from pathlib import Path
from typing import Any

from podscope_agent.simulator import Pod, serve

BENCHMARK: dict[str, Any] = runpy.run_path(
    str(Path(__file__).resolve().parents[3] / "benchmarks/capture_faults.py")
)


def test_every_host_ends_as_planted_and_whoever_can_be_captured_is_whole(tmp_path: Path) -> None:
    truth = tmp_path / "truth.json"
    faults = BENCHMARK["planted"](21)
    assert len({fault.kind for fault in faults.values()}) == 7
    pod = Pod("cpu", hosts=21, steps=3, host_bytes=500_000)
    with serve(pod, faults=faults, truth=truth) as served:
        outcome = BENCHMARK["capture"](served.addresses, tmp_path)
    assert BENCHMARK["differences"](outcome, truth, tmp_path) == []
    assert sum(host.state == "done" for host in outcome.hosts) == 21 - 5
    # The comparison itself finds what differs.
    stored = tmp_path / str(outcome.hosts[1].file)
    stored.write_bytes(stored.read_bytes()[:-1])
    (found,) = BENCHMARK["differences"](outcome, truth, tmp_path)
    assert "another digest" in found
