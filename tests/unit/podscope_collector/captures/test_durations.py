import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_collector.captures.durations import parse_duration_ms
from podscope_collector.errors import RequestError


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("2s", 2000), ("1m", 60_000), ("1.5s", 1500), ("1h", 3_600_000), ("0s", 0)],
)
def test_a_number_with_a_unit_is_milliseconds(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["2", "", "s", "-1s", "2 weeks", "1e3s", "inf s", "0.5ms"])
def test_anything_else_is_an_error_that_quotes_it(text: str) -> None:
    with pytest.raises(RequestError, match=f"'{text}'"):
        parse_duration_ms(text)


@given(st.integers(0, 10**9))
def test_whole_milliseconds_come_back(ms: int) -> None:
    assert parse_duration_ms(f"{ms}ms") == ms
