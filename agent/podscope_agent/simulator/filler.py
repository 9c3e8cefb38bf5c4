"""Fills a profile up to a size, cheaply: the events of a thread that no tool reads."""

from functools import lru_cache
from typing import Final

from podscope_agent.simulator.encoding import LineWriter, PlaneWriter, bytes_field

_BLOCK_EVENTS: Final = 1000
_XSPACE_PLANES: Final = 1
_PLANE_LINES: Final = 3


def filled(xspace: bytes, size: int) -> bytes:
    """The XSpace with one more plane, so that it has ``size`` bytes or a few less."""
    missing = size - len(xspace)
    return xspace if missing <= 0 else xspace + _filler(missing)


@lru_cache(maxsize=4)
def _filler(size: int) -> bytes:
    """A field of an XSpace with about so many bytes, never more; empty when nothing fits."""
    plane = PlaneWriter("/host:filler")
    head = plane.event_head("filler", "filler", [])
    block = LineWriter(1, "filler")
    for index in range(_BLOCK_EVENTS):
        block.add(head, index * 2_000_000, 1_000_000)
    whole = block.encoded()
    empty = LineWriter(1, "filler").encoded()
    events = whole[len(empty) :]
    around = len(plane.encoded()) + len(empty) + 32
    blocks = (size - around) // len(events)
    if blocks < 0:
        return b""
    line = bytes_field(_PLANE_LINES, empty + events * blocks)
    return bytes_field(_XSPACE_PLANES, plane.encoded() + line)
