import pytest

from podscope_agent.errors import TargetError
from podscope_agent.targets import parse_targets


def test_options_are_split_trimmed_and_deduplicated() -> None:
    given = ["localhost:9999, GRPC://localhost:10000", "localhost:9999,[::1]:5,"]
    assert parse_targets(given) == ("localhost:9999", "localhost:10000", "[::1]:5")


@pytest.mark.parametrize(
    "bad",
    [
        "localhost",
        "a:b",
        "http://a:1",
        "::1:5",
        "a:0",
        "a:65536",
        "a b:1",
        "a:٣",
        "x" * 300 + ":1",
    ],
)
def test_an_address_that_cannot_be_one_is_named(bad: str) -> None:
    with pytest.raises(TargetError, match="give host:port"):
        parse_targets([bad])


def test_what_a_terminal_would_obey_is_shown_as_text() -> None:
    with pytest.raises(TargetError) as failure:
        parse_targets(["\x1b[2J\nevil:1" + "x" * 500])
    assert str(failure.value).isprintable()
    assert len(str(failure.value)) < 200


def test_no_target_at_all_is_an_empty_list() -> None:
    assert parse_targets([" , "]) == ()
