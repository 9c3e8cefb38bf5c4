import pytest

from podscope_collector.captures.quorum import checked_quorum, decide, required_hosts
from podscope_collector.captures.states import CaptureState, HostState

DONE, FAILED, EMPTY = HostState.DONE, HostState.FAILED, HostState.EMPTY


@pytest.mark.parametrize(
    ("quorum", "total", "needed"),
    [("all", 4, 4), ("any", 4, 1), ("3", 4, 3), ("50%", 3, 2), ("50%", 4, 2), ("1%", 4, 1)],
)
def test_a_share_is_rounded_up_to_whole_hosts(quorum: str, total: int, needed: int) -> None:
    assert required_hosts(quorum, total) == needed


@pytest.mark.parametrize(
    ("quorum", "states", "expected"),
    [
        ("any", [DONE, DONE], CaptureState.COMPLETE),
        ("all", [DONE, DONE], CaptureState.COMPLETE),
        ("any", [DONE, FAILED], CaptureState.PARTIAL),
        ("all", [DONE, FAILED], CaptureState.FAILED),
        ("any", [FAILED, EMPTY], CaptureState.FAILED),
        ("50%", [DONE, FAILED, EMPTY], CaptureState.FAILED),
        ("2", [DONE, DONE, EMPTY], CaptureState.PARTIAL),
        ("any", [HostState.CANCELLED, HostState.CANCELLED], CaptureState.CANCELLED),
        ("any", [DONE, HostState.CANCELLED], CaptureState.PARTIAL),
        ("any", [], CaptureState.FAILED),
        # As lookups may find them.
        ("all", [DONE, HostState.SKIPPED], CaptureState.COMPLETE),
        ("any", [HostState.SKIPPED], CaptureState.FAILED),
        ("3", [DONE, DONE], CaptureState.FAILED),
    ],
)
def test_quorum_decides_between_complete_partial_and_failed(
    quorum: str, states: list[HostState], expected: CaptureState
) -> None:
    assert decide(quorum, states) is expected


@pytest.mark.parametrize(("text", "one"), [(" ALL ", "all"), ("007", "7"), ("05%", "5%")])
def test_a_quorum_has_one_spelling(text: str, one: str) -> None:
    assert checked_quorum(text) == one
