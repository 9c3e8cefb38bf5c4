"""What lookups came back with."""

from dataclasses import dataclass

from podscope_collector.captures.addresses import Target


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What matched a lookup and cannot be captured.

    Attributes:
        given: The item of the request.
        name: What it is called.
        message: What it is and why not, for people.
    """

    given: str
    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Found:
    """The servers behind one lookup.

    Attributes:
        targets: In a stable order.
        left_out: What matched and cannot be captured.
    """

    targets: tuple[Target, ...]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A lookup that failed; it counts as one lost host.

    Attributes:
        given: The item of the request.
        message: Why, and what to do.
    """

    given: str
    message: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a request's targets stand for now.

    Attributes:
        targets: Distinct servers: first the addresses, then those of each lookup.
        unresolved: The lookups that failed.
        left_out: What the lookups found and cannot be captured.
    """

    targets: tuple[Target, ...]
    unresolved: tuple[Unresolved, ...]
    left_out: tuple[LeftOut, ...]
