import pytest

from podscope_agent.errors import SettingError
from podscope_agent.settings import load_settings


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
