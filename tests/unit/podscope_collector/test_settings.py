import re
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from podscope_collector.settings import ENV_PREFIX, CollectorSettings

ROOT = Path(__file__).resolve().parents[3]


def test_every_setting_is_in_the_reference_and_no_other() -> None:
    text = (ROOT / "docs/reference/settings.md").read_text()
    documented = re.findall(rf"^\| `{ENV_PREFIX}([A-Z_]+)` ", text, re.MULTILINE)
    assert sorted(documented) == sorted(n.upper() for n in CollectorSettings.model_fields)


def test_a_child_builds_equal_settings_from_the_environment_it_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = CollectorSettings(
        data_dir=tmp_path / "a b",
        broker_url=SecretStr("redis+socket:///tmp/a%20b.sock"),
        work_lease=timedelta(seconds=1.5),
        allowed_hosts=("proxy.example", "other"),
        insecure=True,
        port=0,
    )
    for name, text in given.environment().items():
        monkeypatch.setenv(name, text)
    assert CollectorSettings() == given


def test_the_broker_url_is_also_read_from_the_short_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PODSCOPE_BROKER_URL", "redis://short:6379/1")
    url = CollectorSettings().broker_url
    assert url is not None
    assert url.get_secret_value() == "redis://short:6379/1"


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5", 1.5), ("PT15M", 900)])
def test_a_duration_is_seconds_or_iso_8601(
    monkeypatch: pytest.MonkeyPatch, text: str, seconds: float
) -> None:
    monkeypatch.setenv("PODSCOPE_COLLECTOR_ANALYSIS_TIMEOUT", text)
    assert CollectorSettings().analysis_timeout == timedelta(seconds=seconds)


def test_a_duration_of_zero_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODSCOPE_COLLECTOR_WORK_LEASE", "0")
    with pytest.raises(ValidationError, match="greater than"):
        CollectorSettings()


def test_a_password_in_a_url_is_not_shown() -> None:
    settings = CollectorSettings(database_url=SecretStr("postgresql://u:hunter2@h/db"))
    assert "hunter2" not in repr(settings)
