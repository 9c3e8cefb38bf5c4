import socket

import pytest

from podscope_agent.errors import ListenError, PortInUseError
from podscope_agent.listening import bracketed, check_bind, held_port


def test_a_taken_port_names_the_option_that_chooses_another() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} is in use.*--metrics-port"):
            check_bind("127.0.0.1", port, "--metrics-port")


# 192.0.2.0/24 is for documentation: no machine has it.
@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "a..b", "x" * 300])
def test_a_foreign_address_is_not_taken_for_a_port_in_use(host: str) -> None:
    with pytest.raises(ListenError, match="--host"):
        check_bind(host, 0, "--port")


def test_a_port_is_free_once_it_is_held_no_more_and_after_it_was_checked() -> None:
    with held_port("127.0.0.1") as held:
        port = held.getsockname()[1]
        with pytest.raises(PortInUseError):
            check_bind("127.0.0.1", port, "--port")
    check_bind("127.0.0.1", port, "--port")
    check_bind("127.0.0.1", port, "--port")


def test_ipv6_addresses_stand_in_brackets() -> None:
    assert bracketed("::1", 5) == "[::1]:5"
    assert bracketed("localhost", 5) == "localhost:5"
