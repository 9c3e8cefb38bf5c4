"""The grammar of one profiler address: ``host:port`` with schemes, ranges and IPv6."""

import ipaddress
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from podscope_protos.methods import AGENT_PORT

MAX_TARGETS: Final = 100_000
_MAX_NAME = 253
_MAX_SHOWN = 80

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_RANGE = re.compile(r"\[([^\]\[]*)\]")
_SPAN = re.compile(r"^\s*([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?\s*$")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"^{_LABEL}(?:\.{_LABEL})*\.?$")
_LOOKS_IPV4 = re.compile(r"^[0-9]+(?:\.[0-9]+){3}$")
TPU_RUNTIME_PORT: Final = 8470
"""Where a TPU worker serves its runtime; its profiler has the agent's port."""
_ALL_DIGITS_LAST = re.compile(r"(?:^|\.)[0-9]+\.?$")


@dataclass(frozen=True, slots=True)
class Target:
    """One profiler server.

    Attributes:
        address: ``host:port`` as gRPC takes it; an IPv6 host stands in brackets.
        given: The item of the request that it comes from.
        host: Name or address without port and brackets.
        port: 1 to 65535.
        name: What its profile is called, where that is not the address: a pod's name.
    """

    address: str
    given: str
    host: str
    port: int
    name: str | None = None

    @property
    def is_agent(self) -> bool:
        """Whether the item says that a podscope agent listens there."""
        return self.given.lower().startswith("agent://")

    @property
    def shown_name(self) -> str:
        """What its profile is called."""
        return self.name or self.address


class ItemProblem(Exception):  # noqa: N818 - becomes the text of a TargetError, see targets.py
    """Why an item is not understood, as a clause for people."""


def shown(text: str) -> str:
    """The text as one printable line that is not too long."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 1] + "…"


def parse_addresses(item: str) -> Iterator[Target]:
    """Every target of an item, its ranges expanded.

    Raises:
        ItemProblem: It is no address.
    """
    text, default_port = _without_scheme(item)
    for one in _expand(text):
        yield parse_address(one, item, default_port)


def _without_scheme(item: str) -> tuple[str, int | None]:
    """The item after its scheme, and the port that the scheme implies."""
    match = _SCHEME.match(item)
    if match is None:
        return item, None
    scheme = match.group(1).lower()
    if scheme not in {"grpc", "agent"}:
        msg = f"'{match.group(1)}://' is no profiler address; write grpc://host:port"
        raise ItemProblem(msg)
    # An agent captures every process of its host by itself; only its usual port is implied.
    return item[match.end() :].removesuffix("/"), AGENT_PORT if scheme == "agent" else None


def _expand(text: str) -> Iterator[str]:
    """Every combination of the ranges in brackets; an IPv6 address is none."""
    if "[" not in text:
        yield text
        return
    pieces: list[list[str]] = []
    end = 0
    for match in _RANGE.finditer(text):
        pieces.append([text[end : match.start()]])
        pieces.append([match.group()] if ":" in match.group(1) else _numbers(match.group(1)))
        end = match.end()
    pieces.append([text[end:]])
    count = 1
    for piece in pieces:
        count *= len(piece)
    if count > MAX_TARGETS:
        msg = f"its ranges make {count:,} targets; at most {MAX_TARGETS:,} are taken"
        raise ItemProblem(msg)
    for combination in itertools.product(*pieces):
        yield "".join(combination)


def _numbers(body: str) -> list[str]:
    """``0-3,7`` -> ``0 1 2 3 7``; the width of a first number with leading zeros is kept."""
    numbers: list[str] = []
    for part in body.split(","):
        match = _SPAN.match(part)
        if match is None:
            msg = f"the range [{body}] is not understood; write [0-63] or [0,2,5-7]"
            raise ItemProblem(msg)
        first, last = match.group(1), match.group(2) or match.group(1)
        low, high = int(first), int(last)
        if high < low:
            msg = f"the range [{body}] runs backwards; write [{last}-{first}]"
            raise ItemProblem(msg)
        if high - low >= MAX_TARGETS:
            msg = f"the range [{body}] makes {high - low + 1:,} targets; at most {MAX_TARGETS:,}"
            raise ItemProblem(msg)
        if len(numbers) + high - low >= MAX_TARGETS:
            msg = f"the range [{body[:40]}] makes more than {MAX_TARGETS:,} targets"
            raise ItemProblem(msg)
        width = len(first) if first.startswith("0") else 0
        numbers.extend(f"{number:0{width}d}" for number in range(low, high + 1))
    return numbers


def parse_address(text: str, given: str, default_port: int | None = None) -> Target:
    """The target of one address without scheme and ranges.

    Raises:
        ItemProblem: It is no address.
    """
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        if not bracket:
            msg = "its bracket is never closed; write [::1]:9999"
            raise ItemProblem(msg)
        host = _ipv6(inside)
        if not rest and default_port is not None:
            rest = f":{default_port}"
        if not rest.startswith(":"):
            msg = f"it has no port; write [{inside}]:9999"
            raise ItemProblem(msg)
        port = parse_port(rest[1:])
        return Target(f"[{host}]:{port}", given, host, port)
    host, colon, port_text = text.rpartition(":")
    if ":" in host:
        if re.fullmatch(r"[0-9A-Fa-f:.]+", host):
            msg = "an IPv6 address stands in brackets; write [::1]:9999"
        else:
            msg = "it has more than one ':'; write host:port"
        raise ItemProblem(msg)
    if not colon and text and default_port is not None:
        host, colon, port_text = text, ":", str(default_port)
    if not colon:
        msg = f"it has no port; write {text}:9999" if text else "it names no host"
        raise ItemProblem(msg)
    if not host:
        msg = f"it names no host; write localhost:{port_text}"
        raise ItemProblem(msg)
    port = parse_port(port_text)
    host = parse_name(host)
    return Target(f"{host}:{port}", given, host, port)


def parse_port(text: str) -> int:
    """A port from 1 to 65535.

    Raises:
        ItemProblem: It is none.
    """
    if not (text.isascii() and text.isdigit()):
        what = f"'{shown(text)}' is no port" if text else "it has no port"
        msg = f"{what}; a port is a number from 1 to 65535"
        raise ItemProblem(msg)
    port = int(text) if len(text) <= 9 else 10**9
    if not 1 <= port <= 65535:
        msg = f"port {text[:20]} is out of range; a port is a number from 1 to 65535"
        raise ItemProblem(msg)
    return port


def _ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError as error:
        msg = f"'{text}' is no IPv6 address"
        raise ItemProblem(msg) from error


def parse_name(host: str) -> str:
    """A host name or IPv4 address in its one spelling, international names as punycode.

    Raises:
        ItemProblem: It is neither.
    """
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as error:
            msg = f"'{host}' is no host name"
            raise ItemProblem(msg) from error
    if _LOOKS_IPV4.match(host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError as error:
            msg = f"'{host}' is no IPv4 address"
            raise ItemProblem(msg) from error
    if len(host) > _MAX_NAME or not _NAME.match(host) or _ALL_DIGITS_LAST.search(host):
        msg = f"'{shown(host)}' is no host name; write host:port, for example worker-0.jobs:9999"
        raise ItemProblem(msg)
    return host
