import shutil
import subprocess
from pathlib import Path

import pytest

from podscope_agent.settings import AgentSettings

UNIT = Path(__file__).resolve().parents[3] / "deploy/systemd/podscope-agent.service"


def entries() -> list[tuple[str, str]]:
    lines = [line for line in UNIT.read_text().splitlines() if "=" in line and line[0] != "#"]
    return [(key, value) for key, _, value in (line.partition("=") for line in lines)]


def test_the_units_variables_are_settings_of_the_agent() -> None:
    variables = [value.partition("=")[0] for key, value in entries() if key == "Environment"]
    names = {f"PODSCOPE_AGENT_{name.upper()}" for name in AgentSettings.model_fields}
    assert len(variables) == 2
    assert set(variables) <= names


def test_systemd_waits_longer_than_the_agents_grace_time() -> None:
    wait_s = float(dict(entries())["TimeoutStopSec"])
    # The five seconds are for the answers to clients whose capture was cut short.
    assert wait_s > AgentSettings().grace_s + 5


def test_the_folders_it_writes_to_are_those_that_the_unit_makes() -> None:
    found = dict(entries())
    folders = dict(value.split("=") for key, value in entries() if key == "Environment")
    assert folders["PODSCOPE_AGENT_RUNTIME_DIR"] == f"/run/{found['RuntimeDirectory']}"
    assert folders["PODSCOPE_AGENT_SPOOL_DIR"] == f"/var/cache/{found['CacheDirectory']}"
    assert found["ProtectSystem"] == "strict"
    assert found["DynamicUser"] == "yes"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here")
    unit = tmp_path / UNIT.name
    # What it starts is looked for.
    unit.write_text(UNIT.read_text().replace("/opt/podscope/bin/podscope", "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert "Unknown" not in done.stderr
    assert done.returncode == 0, done.stderr
