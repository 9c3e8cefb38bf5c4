import re
from pathlib import Path

import pytest
import typer.main

from podscope_agent.cli.agent import app
from podscope_agent.errors import SettingError
from podscope_agent.settings import AgentSettings, load_settings

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "settings.md"


def test_every_setting_and_option_is_in_the_reference_and_no_other() -> None:
    row = re.compile(r"^\| `PODSCOPE_AGENT_([A-Z_]+)` \| (?:`(--[a-z-]+)`)? ?\|", re.MULTILINE)
    documented = row.findall(REFERENCE.read_text())
    assert sorted(name.lower() for name, _ in documented) == sorted(AgentSettings.model_fields)
    command = typer.main.get_command(app)
    options = {option for parameter in command.params for option in parameter.opts}
    assert {option for _, option in documented if option} == options - {"--help"}


@pytest.mark.parametrize(("name", "given"), [("PORT", "abc"), ("PORT", "65536"), ("GRACE_S", "-1")])
def test_a_variable_with_an_impossible_value_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, given: str
) -> None:
    monkeypatch.setenv(f"PODSCOPE_AGENT_{name}", given)
    with pytest.raises(SettingError) as failure:
        load_settings()
    assert str(failure.value).startswith(f"PODSCOPE_AGENT_{name}: ")
    assert "\n" not in str(failure.value)
    assert failure.value.exit_code == 2


def test_an_option_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODSCOPE_AGENT_PORT", "1")
    assert load_settings(port=2).port == 2
