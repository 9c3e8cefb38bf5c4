"""Targets of a capture: from what a user typed to distinct addresses and lookups.

An address is a target as it stands. A lookup (a DNS name, pods, a TPU) becomes targets only when
the capture begins, see ``resolving``.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from podscope_collector.captures.addresses import (
    MAX_TARGETS,
    TPU_RUNTIME_PORT,
    ItemProblem,
    Target,
    parse_address,
    parse_addresses,
    shown,
)
from podscope_collector.captures.lookups import Lookup, parse_lookup, tpu_lookup
from podscope_collector.errors import RequestError
from podscope_protos.methods import AGENT_PORT

# A bracket keeps its commas and blanks: `worker-[0-3,7]:9999` is one item.
_ITEM = re.compile(r"(?:\[[^\]\[]*\]|[^\s,])+")
_GRPC = "grpc://"
_MAX_TOLD = 5


@dataclass(frozen=True, slots=True)
class TargetList:
    """What a list of targets names.

    Attributes:
        targets: The distinct addresses, in the order of the list.
        lookups: The distinct lookups, in the order of the list.
    """

    targets: tuple[Target, ...]
    lookups: tuple[Lookup, ...]


@dataclass(frozen=True, slots=True)
class WrongItem:
    """An item of a target list that names no server.

    Attributes:
        item: As it was written.
        position: Its place in the list, from 1.
        problem: What is wrong with it.
    """

    item: str
    position: int
    problem: str


class TargetError(RequestError):
    """A target list with items that name no server.

    Attributes:
        wrong: All of them, in the order of the list; the message names the first few.
    """

    code: ClassVar[str] = "bad_target"

    def __init__(self, wrong: Sequence[WrongItem]) -> None:
        self.wrong = tuple(wrong)
        told = [f"target {one.position} ('{shown(one.item)}'): {one.problem}" for one in wrong]
        more = len(told) - _MAX_TOLD
        others = f" (and {more} more)" if more > 0 else ""
        super().__init__("; ".join(told[:_MAX_TOLD]) + others)


class NoTargetError(RequestError):
    """A target list without a single item."""

    code: ClassVar[str] = "no_target"

    def __init__(self) -> None:
        super().__init__("the target list is empty; name at least one host:port")


def split_targets(given: str | Iterable[str]) -> list[str]:
    """The items of a list in commas or blanks, empty ones dropped."""
    texts = [given] if isinstance(given, str) else given
    return [match.group() for text in texts for match in _ITEM.finditer(text)]


def parse_targets(given: str | Iterable[str], *, is_tpu_name: bool = False) -> TargetList:
    """The distinct addresses and lookups of a list.

    Items are ``host:port``, ``grpc://host:port``, ``[::1]:port``, ``agent://host`` (port 8466
    when none is given), any of these with ranges, ``worker-[0-63].svc:9999``,
    ``pod-[00-15]:[9100-9103]``, ``w[0,2,5-7]:9999``, or a lookup, see ``parse_lookup``.

    Args:
        given: One text, or several, each with items between commas or blanks.
        is_tpu_name: A bare item is the name of a TPU; ``grpc://`` items are the workers of one,
            whose profilers listen on 8466 when the port is 8470 or not given.

    Raises:
        TargetError: Items are wrong.
        NoTargetError: There is no item at all.
    """
    parse = _parse_tpu_item if is_tpu_name else _parse_item
    found: dict[str, Target] = {}
    lookups: dict[str, Lookup] = {}
    wrong: list[WrongItem] = []
    count = 0
    for position, item in enumerate(split_targets(given), start=1):
        try:
            for one in parse(item):
                if not isinstance(one, Target):
                    lookups.setdefault(item, one)
                    continue
                found.setdefault(one.address.lower(), one)
                # Those named twice count too: a short text may name some very often.
                count += 1
                if count > MAX_TARGETS:
                    problem = f"more than {MAX_TARGETS:,} targets; capture fewer at once"
                    raise TargetError([WrongItem(item, position, problem)])
        except ItemProblem as problem:
            wrong.append(WrongItem(item, position, str(problem)))
    if wrong:
        raise TargetError(wrong)
    if not found and not lookups:
        raise NoTargetError
    return TargetList(tuple(found.values()), tuple(lookups.values()))


def _parse_item(item: str) -> Iterator[Target | Lookup]:
    lookup = parse_lookup(item)
    if lookup is not None:
        yield lookup
        return
    yield from parse_addresses(item)


def _parse_tpu_item(item: str) -> Iterator[Target | Lookup]:
    if item.lower().startswith(_GRPC):
        target = parse_address(item[len(_GRPC) :].removesuffix("/"), item, AGENT_PORT)
        if target.port == TPU_RUNTIME_PORT:
            host = target.address.rpartition(":")[0]
            target = Target(f"{host}:{AGENT_PORT}", item, target.host, AGENT_PORT)
        yield target
    elif ":" not in item:
        yield tpu_lookup(item, item)
    else:
        yield from _parse_item(item)
