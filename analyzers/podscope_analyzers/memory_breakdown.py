"""The ``memory_access_breakdown`` stat: bytes per memory and kind of access."""

from functools import lru_cache
from typing import Final

from podscope_analyzers.xspace.wire import WireError, read_varint, walk

_ACCESSES: Final = 1
_SHORT_BYTES: Final = 256
_KIND, _SPACE, _BYTES = 1, 2, 3


def read_memory_breakdown(raw: bytes) -> tuple[tuple[int, int, int], ...]:
    """Memory, kind of access and bytes of every entry; none of a stat that is damaged."""
    # The cores of a host run the same operations, and several layers ask for each.
    return _read_short(raw) if len(raw) <= _SHORT_BYTES else _read(raw)


@lru_cache(maxsize=4096)
def _read_short(raw: bytes) -> tuple[tuple[int, int, int], ...]:
    return _read(raw)


def _read(raw: bytes) -> tuple[tuple[int, int, int], ...]:
    buffer = memoryview(raw)
    found = []
    try:
        for number, wire_type, _, payload, after in walk(buffer, 0, len(raw)):
            if number != _ACCESSES or wire_type != 2:
                continue
            values = {_KIND: 0, _SPACE: 0, _BYTES: 0}
            # The payload begins behind the length; an entry's fields are all varints.
            for field, kind, _, start, end in walk(buffer, payload, after):
                if kind == 0:
                    values[field] = read_varint(buffer, start, end)[0]
            found.append(
                (values[_SPACE] & 0xFFFF_FFFF, values[_KIND] & 0xFF, values[_BYTES] & (2**63 - 1))
            )
    except WireError:
        return ()
    return tuple(found)
