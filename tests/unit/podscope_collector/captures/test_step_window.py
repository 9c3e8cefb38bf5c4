from typing import cast

import pytest

from podscope_collector.captures.agents import AgentLink
from podscope_collector.captures.states import ReasonCode
from podscope_collector.captures.step_window import StepWindow


class Link:
    def __init__(self, step_time_s: float | None) -> None:
        self.step_time_s = step_time_s


def link(step_time_s: float | None) -> AgentLink:
    return cast(AgentLink, Link(step_time_s))


def test_the_window_is_long_enough_for_the_slowest_host_and_the_same_for_all() -> None:
    window = StepWindow(10, 60_000)
    assert window.join("fast:1", link(0.1)) is None
    assert window.duration_ms == 1155
    assert window.join("slow:1", link(0.2)) is None
    assert window.join("fast:2", link(0.1)) is None
    # Eleven steps of 0.2 s and a twentieth more hold ten whole ones wherever they begin.
    assert window.duration_ms == 2310


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (None, "is no podscope agent"),
        (link(None), "does not know yet how long a step takes"),
        (link(10.0), "10 steps of 10 s at w0:1 need a window of 115.5 s, and 60.0 s are"),
    ],
)
def test_a_host_whose_steps_do_not_help_is_left_out_with_what_to_do(
    known: AgentLink | None, words: str
) -> None:
    window = StepWindow(10, 60_000)
    refused = window.join("w0:1", known)
    assert refused is not None
    assert refused.reason is ReasonCode.STEPS
    assert words in refused.message
    # The others are not held up by it.
    assert window.join("w1:1", link(0.1)) is None
    assert window.duration_ms == 1155
