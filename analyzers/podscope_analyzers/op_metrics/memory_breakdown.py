"""The ``memory_access_breakdown`` stat: bytes per memory and kind of access."""

from typing import Final

from podscope_analyzers.xspace.wire import WireError, read_varint, walk

_ACCESSES: Final = 1
_KIND, _SPACE, _BYTES = 1, 2, 3


def read_memory_breakdown(raw: bytes) -> list[tuple[int, int, int]]:
    """Memory, kind of access and bytes of every entry; none of a stat that is damaged."""
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
        return []
    return found
