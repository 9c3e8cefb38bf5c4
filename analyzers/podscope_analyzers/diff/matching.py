"""Which rows of two tables are the same thing, by keys from the most exact on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from podscope_analyzers.diff.keys import LacksPartError, key_part
from podscope_analyzers.result import Cell

Match = Literal["both", "appeared", "vanished"]
Row = Mapping[str, Cell]


@dataclass
class Group:
    """Rows of both sides with one key."""

    base: list[Row] = field(default_factory=list)
    other: list[Row] = field(default_factory=list)

    @property
    def match(self) -> Match:
        """Which sides have them."""
        if self.base and self.other:
            return "both"
        return "vanished" if self.base else "appeared"


def matched(keys: Sequence[Sequence[str]], base: list[Row], other: list[Row]) -> list[Group]:
    """Groups of rows: each key matches what the more exact ones before it left over."""
    found: list[Group] = []
    left = [base, other]
    for number, key in enumerate(keys):
        parts = [name.partition(":")[::2] for name in key]
        groups: dict[object, Group] = {}
        for row in left[0]:
            groups.setdefault(_key(row, parts), Group()).base.append(row)
        for row in left[1]:
            groups.setdefault(_key(row, parts), Group()).other.append(row)
        is_last = number == len(keys) - 1
        left = [[], []]
        for group in groups.values():
            if group.match == "both":
                found.append(group)
            elif is_last:
                # Nothing on the other side looks like them: each is a change of its own.
                found += [Group(base=[row]) for row in group.base]
                found += [Group(other=[row]) for row in group.other]
            else:
                left[0] += group.base
                left[1] += group.other
    return found


def _key(row: Row, parts: Iterable[Sequence[str]]) -> object:
    try:
        return tuple(key_part(row.get(name), form) for name, form in parts)
    except LacksPartError:
        # Like no other row.
        return id(row)
