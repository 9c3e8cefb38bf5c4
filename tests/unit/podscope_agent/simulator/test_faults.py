"""Faults are read from the command line, or refused with what is wrong about them."""

import pytest

from podscope_agent.errors import SimulationError
from podscope_agent.simulator import Fault, parse_faults


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("4:refuse", "there is no host 4; hosts are 0 to 3"),
        ("-1:refuse", "HOST:KIND"),
        ("refuse", "HOST:KIND"),
        ("1:", "HOST:KIND"),
        ("1:explode", "no kind 'explode'"),
        ("1:busy:0", "not a number above 0"),
        ("1:busy:x", "not a number above 0"),
        ("1:refuse:2", "takes no number"),
    ],
)
def test_a_malformed_fault_is_refused_with_what_is_wrong(text: str, part: str) -> None:
    with pytest.raises(SimulationError, match=part):
        parse_faults([text], hosts=4)


def test_two_faults_of_one_host_are_refused() -> None:
    with pytest.raises(SimulationError, match="host 1 has a fault already"):
        parse_faults(["1:busy", "1:slow"], hosts=4)


def test_faults_are_read_with_their_numbers() -> None:
    assert parse_faults(["0:busy:2", "2:slow", "3:hang"], hosts=4) == {
        0: Fault("busy", 2),
        2: Fault("slow", 1_000_000),
        3: Fault("hang"),
    }
