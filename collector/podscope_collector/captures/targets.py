"""Targets of a capture: from what a user typed to a list of distinct ``host:port``."""

import ipaddress
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from podscope_collector.errors import RequestError

MAX_TARGETS = 100_000
_MAX_NAME = 253
_MAX_SHOWN = 80

# A bracket keeps its commas and blanks: `worker-[0-3,7]:9999` is one item.
_ITEM = re.compile(r"(?:\[[^\]\[]*\]|[^\s,])+")
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_RANGE = re.compile(r"\[([^\]\[]*)\]")
_SPAN = re.compile(r"^\s*([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?\s*$")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"^{_LABEL}(?:\.{_LABEL})*\.?$")
_LOOKS_IPV4 = re.compile(r"^[0-9]+(?:\.[0-9]+){3}$")
_ALL_DIGITS_LAST = re.compile(r"(?:^|\.)[0-9]+\.?$")


@dataclass(frozen=True, slots=True)
class Target:
    """One profiler server.

    Attributes:
        address: ``host:port`` as gRPC takes it; an IPv6 host stands in brackets.
        given: The item of the request that it comes from.
        host: Name or address without port and brackets.
        port: 1 to 65535.
    """

    address: str
    given: str
    host: str
    port: int


class TargetError(RequestError):
    """An item of a target list that names no server.

    Attributes:
        item: The item as it was written.
        position: Its place in the list, from 1.
        problem: What is wrong with it.
        more: How many other items are wrong too.
    """

    code: ClassVar[str] = "bad_target"

    def __init__(self, item: str, position: int, problem: str, more: int = 0) -> None:
        self.item = item
        self.position = position
        self.problem = problem
        self.more = more
        others = f" (and {more} more)" if more else ""
        super().__init__(f"target {position} ('{_shown(item)}'): {problem}{others}")


class NoTargetError(RequestError):
    """A target list without a single item."""

    code: ClassVar[str] = "no_target"

    def __init__(self) -> None:
        super().__init__("the target list is empty; name at least one host:port")


def _shown(text: str) -> str:
    """The text as one printable line that is not too long."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 1] + "…"


class _Problem(Exception):  # noqa: N818 - carries the text of a TargetError, never leaves here
    pass


def split_targets(given: str | Iterable[str]) -> list[str]:
    """The items of a list in commas or blanks, empty ones dropped."""
    texts = [given] if isinstance(given, str) else given
    return [match.group() for text in texts for match in _ITEM.finditer(text)]


def parse_targets(given: str | Iterable[str]) -> list[Target]:
    """Distinct targets in the order of the list.

    Items are ``host:port``, ``grpc://host:port``, ``[::1]:port``, or any of these with ranges,
    ``worker-[0-63].svc:9999``, ``pod-[00-15]:[9100-9103]``, ``w[0,2,5-7]:9999``.

    Args:
        given: One text, or several, each with items between commas or blanks.

    Raises:
        TargetError: The first wrong item, with the number of the others.
        NoTargetError: There is no item at all.
    """
    found: dict[str, Target] = {}
    wrong: list[tuple[str, int, str]] = []
    items = split_targets(given)
    for position, item in enumerate(items, start=1):
        try:
            for text in _expand(_without_scheme(item)):
                target = _parse_one(text, item)
                found.setdefault(target.address.lower(), target)
                if len(found) > MAX_TARGETS:
                    problem = f"more than {MAX_TARGETS:,} targets; capture fewer at once"
                    raise TargetError(item, position, problem)
        except _Problem as problem:
            wrong.append((item, position, str(problem)))
    if wrong:
        item, position, text = wrong[0]
        raise TargetError(item, position, text, more=len(wrong) - 1)
    if not found:
        raise NoTargetError
    return list(found.values())


def _without_scheme(item: str) -> str:
    match = _SCHEME.match(item)
    if match is None:
        return item
    if match.group(1).lower() != "grpc":
        msg = f"'{match.group(1)}://' is no profiler address; write grpc://host:port"
        raise _Problem(msg)
    return item[match.end() :].removesuffix("/")


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
        raise _Problem(msg)
    for combination in itertools.product(*pieces):
        yield "".join(combination)


def _numbers(body: str) -> list[str]:
    """``0-3,7`` -> ``0 1 2 3 7``; the width of a first number with leading zeros is kept."""
    numbers: list[str] = []
    for part in body.split(","):
        match = _SPAN.match(part)
        if match is None:
            msg = f"the range [{body}] is not understood; write [0-63] or [0,2,5-7]"
            raise _Problem(msg)
        first, last = match.group(1), match.group(2) or match.group(1)
        low, high = int(first), int(last)
        if high < low:
            msg = f"the range [{body}] runs backwards; write [{last}-{first}]"
            raise _Problem(msg)
        if high - low >= MAX_TARGETS:
            msg = f"the range [{body}] makes {high - low + 1:,} targets; at most {MAX_TARGETS:,}"
            raise _Problem(msg)
        width = len(first) if first.startswith("0") else 0
        numbers.extend(f"{number:0{width}d}" for number in range(low, high + 1))
    return numbers


def _parse_one(text: str, given: str) -> Target:
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        if not bracket:
            msg = "its bracket is never closed; write [::1]:9999"
            raise _Problem(msg)
        host = _ipv6(inside)
        if not rest.startswith(":"):
            msg = f"it has no port; write [{inside}]:9999"
            raise _Problem(msg)
        port = _port(rest[1:])
        return Target(f"[{host}]:{port}", given, host, port)
    host, colon, port_text = text.rpartition(":")
    if ":" in host:
        if re.fullmatch(r"[0-9A-Fa-f:.]+", host):
            msg = "an IPv6 address stands in brackets; write [::1]:9999"
        else:
            msg = "it has more than one ':'; write host:port"
        raise _Problem(msg)
    if not colon:
        msg = f"it has no port; write {text}:9999" if text else "it names no host"
        raise _Problem(msg)
    if not host:
        msg = f"it names no host; write localhost:{port_text}"
        raise _Problem(msg)
    port = _port(port_text)
    host = _name(host)
    return Target(f"{host}:{port}", given, host, port)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        what = f"'{_shown(text)}' is no port" if text else "it has no port"
        msg = f"{what}; a port is a number from 1 to 65535"
        raise _Problem(msg)
    port = int(text) if len(text) <= 9 else 10**9
    if not 1 <= port <= 65535:
        msg = f"port {text[:20]} is out of range; a port is a number from 1 to 65535"
        raise _Problem(msg)
    return port


def _ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError as error:
        msg = f"'{text}' is no IPv6 address"
        raise _Problem(msg) from error


def _name(host: str) -> str:
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as error:
            msg = f"'{host}' is no host name"
            raise _Problem(msg) from error
    if _LOOKS_IPV4.match(host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError as error:
            msg = f"'{host}' is no IPv4 address"
            raise _Problem(msg) from error
    if len(host) > _MAX_NAME or not _NAME.match(host) or _ALL_DIGITS_LAST.search(host):
        msg = f"'{_shown(host)}' is no host name; write host:port, for example worker-0.jobs:9999"
        raise _Problem(msg)
    return host
