"""Addresses of the profiler servers on this host."""

import re
from collections.abc import Iterable

from podscope_agent.errors import TargetError

_SCHEME = re.compile(r"^grpc://", re.IGNORECASE)
_ADDRESS = re.compile(r"^(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253}):(?P<port>[0-9]{1,5})\Z")
_MAX_PORT = 65535


def parse_targets(given: Iterable[str]) -> tuple[str, ...]:
    """Return distinct ``host:port`` addresses, in order.

    Args:
        given: Options as typed; each may hold several addresses, separated by commas.

    Raises:
        TargetError: an item is not an address.
    """
    addresses: dict[str, None] = {}
    for option in given:
        for item in option.split(","):
            text = _SCHEME.sub("", item.strip())
            if not text:
                continue
            match = _ADDRESS.match(text)
            if match is None:
                raise TargetError(item.strip(), "not an address")
            if not 1 <= int(match["port"]) <= _MAX_PORT:
                raise TargetError(item.strip(), "the port must be 1 to 65535")
            addresses[text] = None
    return tuple(addresses)
