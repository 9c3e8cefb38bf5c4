"""The demo, as `make demo` runs it: the whole product on a real job."""

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def run_demo(kind: str) -> str:
    done = subprocess.run(
        [sys.executable, str(DEMO), "--kind", kind, "--exit"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.interop
def test_four_processes_that_train_together_are_explained() -> None:
    output = run_demo("jax")
    hosts = output.partition("Hosts")[2].partition("Steps")[0]
    assert hosts.count("done") >= 4
    [verdict] = [line for line in output.splitlines() if line.startswith("Slow host: ")]
    # The third process is the slow one; its address is the third in the table.
    third = [line.split()[0] for line in hosts.splitlines() if "127.0.0.1" in line][2]
    assert third.replace(":", "_") in verdict.replace(":", "_")
    assert "input" in verdict
    assert "Web page: http://127.0.0.1:" in output


@pytest.mark.slow
def test_a_simulated_pod_of_16_hosts_is_explained() -> None:
    output = run_demo("pod")
    hosts = output.partition("Hosts")[2].partition("Steps")[0]
    assert len([line for line in hosts.splitlines() if "done" in line]) == 16
    [verdict] = [line for line in output.splitlines() if line.startswith("Slow host: ")]
    sixth = [line.split()[0] for line in hosts.splitlines() if "127.0.0.1" in line][5]
    assert sixth.replace(":", "_") in verdict.replace(":", "_")
