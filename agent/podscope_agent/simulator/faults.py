"""What can be made to go wrong on a simulated host."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from podscope_agent.errors import SimulationError

FAULT_KINDS: Final[dict[str, str]] = {
    "refuse": "nothing listens on the port",
    "hang": "never answers",
    "busy": "another capture runs; busy:N only for the first N requests",
    "empty": "answers with an empty trace",
    "corrupt": "answers with bytes that are no XSpace",
    "reset": "drops the connection in the middle of the answer",
    "slow": "sends at 1 MB/s; slow:BYTES_PER_SECOND at another rate",
}
_DEFAULT_RATE: Final = 1_000_000
_WITH_NUMBER: Final = {"busy", "slow"}


@dataclass(frozen=True)
class Fault:
    """A fault of one host.

    Attributes:
        kind: One of `FAULT_KINDS`.
        number: Requests refused (busy; None: all) or bytes per second (slow).
    """

    kind: str
    number: int | None = None


def parse_faults(texts: Iterable[str], hosts: int) -> dict[int, Fault]:
    """Host index -> fault, from texts such as ``3:busy:2``.

    Raises:
        SimulationError: A text is malformed, or names a host twice or one that is not there.
    """
    faults: dict[int, Fault] = {}
    for text in texts:
        index_text, _, rest = text.partition(":")
        kind, _, number_text = rest.partition(":")
        if not index_text.isascii() or not index_text.isdigit() or not kind:
            msg = f"fault '{text}' is not of the form HOST:KIND, such as 3:refuse"
            raise SimulationError(msg)
        index = int(index_text)
        if index >= hosts:
            msg = f"fault '{text}': there is no host {index}; hosts are 0 to {hosts - 1}"
            raise SimulationError(msg)
        if index in faults:
            msg = f"fault '{text}': host {index} has a fault already; give one"
            raise SimulationError(msg)
        if kind not in FAULT_KINDS:
            msg = f"fault '{text}': no kind '{kind}'; choose one of {', '.join(FAULT_KINDS)}"
            raise SimulationError(msg)
        faults[index] = Fault(kind, _parse_number(text, kind, number_text))
    return faults


def _parse_number(text: str, kind: str, number_text: str) -> int | None:
    if not number_text:
        return _DEFAULT_RATE if kind == "slow" else None
    if kind not in _WITH_NUMBER:
        msg = f"fault '{text}': '{kind}' takes no number"
        raise SimulationError(msg)
    if not number_text.isascii() or not number_text.isdigit() or int(number_text) < 1:
        msg = f"fault '{text}': '{number_text}' is not a number above 0"
        raise SimulationError(msg)
    return int(number_text)
