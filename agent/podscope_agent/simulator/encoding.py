"""Writes XSpace messages as bytes, fast enough for millions of events in plain Python.

Message objects cost some 10 µs an event; joining pre-encoded pieces costs about 1 µs, so only the
parts that differ between events (offset, duration, a few stats) are encoded anew.
"""

import struct
from collections.abc import Iterable
from typing import Final

_MASK64: Final = 2**64 - 1
_MID: Final = [bytes((i & 127 | 128, i >> 7 | 128)) for i in range(1 << 14)]
"""Two bytes of a varint that continues."""
_END: Final = [bytes((i,)) if i < 128 else bytes((i & 127 | 128, i >> 7)) for i in range(1 << 14)]
"""The last one or two bytes of a varint."""


def varint(value: int) -> bytes:
    """The canonical varint of an integer; negative numbers take ten bytes, as int64 does."""
    if value < 0:
        value &= _MASK64
    if value < 1 << 14:
        return _END[value]
    if value < 1 << 28:
        return _MID[value & 16383] + _END[value >> 14]
    if value < 1 << 42:
        return _MID[value & 16383] + _MID[value >> 14 & 16383] + _END[value >> 28]
    pieces = []
    while value >= 1 << 14:
        pieces.append(_MID[value & 16383])
        value >>= 14
    pieces.append(_END[value])
    return b"".join(pieces)


def varint_field(number: int, value: int) -> bytes:
    """Field ``number`` holding a varint."""
    return varint(number << 3) + varint(value)


def bytes_field(number: int, payload: bytes) -> bytes:
    """Field ``number`` holding bytes, a string or a message."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def double_field(number: int, value: float) -> bytes:
    """Field ``number`` holding a double."""
    return varint(number << 3 | 1) + struct.pack("<d", value)


def event_bytes(head: bytes, offset_ps: int, duration_ps: int, stats: bytes = b"") -> bytes:
    """One event as a field of its line.

    Args:
        head: What `PlaneWriter.event_head` gave for the event's metadata.
        offset_ps: Start after the line's timestamp.
        duration_ps: Length.
        stats: Stats, each wrapped by `event_stat`.
    """
    duration = b"\x18" + varint(duration_ps) if duration_ps else b""
    body = head + varint(offset_ps) + duration + stats
    return b"\x22" + varint(len(body)) + body


def event_stat(stat: bytes) -> bytes:
    """A stat as a field of an event."""
    return b"\x22" + varint(len(stat)) + stat


def string_list(number: int, values: Iterable[str]) -> bytes:
    """A repeated string field."""
    return b"".join(bytes_field(number, value.encode()) for value in values)


class LineWriter:
    """Collects the events of one line and counts them.

    Attributes:
        encoded_events: Events as fields of the line, in the order of their start, longer ones
            first on ties. One buffer rather than an object per event: a line may have millions.
        event_count: How many they are; who extends the buffer keeps it right.
    """

    def __init__(self, line_id: int, name: str, timestamp_ns: int = 0) -> None:
        self.encoded_events = bytearray()
        self.event_count = 0
        self._id = line_id
        self._name = name
        self._timestamp_ns = timestamp_ns

    def add(self, head: bytes, start_ps: int, duration_ps: int, stats: bytes = b"") -> None:
        """Append an event that starts ``start_ps`` after the start of the profile."""
        offset_ps = start_ps - self._timestamp_ns * 1000
        self.encoded_events += event_bytes(head, offset_ps, duration_ps, stats)
        self.event_count += 1

    def encoded(self) -> bytes:
        """The XLine message."""
        return b"".join(
            (
                varint_field(1, self._id),
                bytes_field(2, self._name.encode()),
                varint_field(3, self._timestamp_ns) if self._timestamp_ns else b"",
                self.encoded_events,
            )
        )


class PlaneWriter:
    """Builds one XPlane: interned metadata, stats and lines.

    Ids are given in the order of first use, so equal calls give equal bytes.
    """

    def __init__(self, name: str, plane_id: int = 0) -> None:
        self.name = name
        self.plane_id = plane_id
        self.event_count = 0
        self._stat_ids: dict[str, int] = {}
        self._event_ids: dict[tuple[str, str], int] = {}
        self._event_metadata: list[bytes] = []
        self._stats: list[bytes] = []
        self._lines: list[bytes] = []

    def fork(self, name: str, plane_id: int) -> "PlaneWriter":
        """Another plane with the same metadata and plane stats, and no lines yet."""
        plane = PlaneWriter(name, plane_id)
        plane._stat_ids = dict(self._stat_ids)
        plane._event_ids = dict(self._event_ids)
        plane._event_metadata = list(self._event_metadata)
        plane._stats = list(self._stats)
        return plane

    def stat_id(self, name: str) -> int:
        """The id of a stat's name, which is also the key of an interned string."""
        return self._stat_ids.setdefault(name, len(self._stat_ids) + 1)

    def int_stat(self, name: str, value: int) -> bytes:
        """A stat with an int64 value."""
        return varint_field(1, self.stat_id(name)) + b"\x20" + varint(value)

    def uint_stat(self, name: str, value: int) -> bytes:
        """A stat with a uint64 value."""
        return varint_field(1, self.stat_id(name)) + b"\x18" + varint(value)

    def double_stat(self, name: str, value: float) -> bytes:
        """A stat with a double value."""
        return varint_field(1, self.stat_id(name)) + double_field(2, value)

    def str_stat(self, name: str, value: str) -> bytes:
        """A stat with a string of its own."""
        return varint_field(1, self.stat_id(name)) + bytes_field(5, value.encode())

    def ref_stat(self, name: str, value: str) -> bytes:
        """A stat with an interned string."""
        return varint_field(1, self.stat_id(name)) + b"\x38" + varint(self.stat_id(value))

    def bytes_stat(self, name: str, value: bytes) -> bytes:
        """A stat with bytes."""
        return varint_field(1, self.stat_id(name)) + bytes_field(6, value)

    def event_stats(self, **values: int | float | str) -> bytes:
        """Stats of an event: typed as a tracer types its arguments, strings interned."""
        encoded = []
        for name, value in values.items():
            if isinstance(value, str):
                stat = self.ref_stat(name, value)
            elif isinstance(value, float):
                stat = self.double_stat(name, value)
            elif value >= 1 << 63:
                stat = self.uint_stat(name, value)
            else:
                stat = self.int_stat(name, value)
            encoded.append(event_stat(stat))
        return b"".join(encoded)

    def add_stat(self, stat: bytes) -> None:
        """Attach a stat to the plane itself."""
        self._stats.append(stat)

    def event_head(
        self,
        name: str,
        display_name: str = "",
        stats: Iterable[bytes] = (),
        metadata_id: int | None = None,
    ) -> bytes:
        """The first bytes of every event of this name; registers its metadata on first use."""
        key = (name, display_name)
        known = self._event_ids.get(key)
        if known is None:
            known = len(self._event_ids) + 1 if metadata_id is None else metadata_id
            self._event_ids[key] = known
            body = varint_field(1, known) + bytes_field(2, name.encode())
            if display_name:
                body += bytes_field(4, display_name.encode())
            body += b"".join(bytes_field(5, stat) for stat in stats)
            self._event_metadata.append(varint_field(1, known) + bytes_field(2, body))
        return b"\x08" + varint(known) + b"\x10"

    def add_line(self, line: LineWriter) -> None:
        """Append a finished line."""
        self.event_count += line.event_count
        self._lines.append(line.encoded())

    def encoded(self) -> bytes:
        """The XPlane message."""
        return b"".join(
            (
                varint_field(1, self.plane_id) if self.plane_id else b"",
                bytes_field(2, self.name.encode()),
                *(bytes_field(3, line) for line in self._lines),
                *(bytes_field(4, entry) for entry in self._event_metadata),
                *(
                    bytes_field(
                        5,
                        varint_field(1, key)
                        + bytes_field(2, varint_field(1, key) + bytes_field(2, name.encode())),
                    )
                    for name, key in self._stat_ids.items()
                ),
                *(bytes_field(6, stat) for stat in self._stats),
            )
        )


def xspace_bytes(
    planes: Iterable[PlaneWriter], hostname: str, warnings: Iterable[str] = ()
) -> bytes:
    """The whole XSpace of one host."""
    return (
        b"".join(bytes_field(1, plane.encoded()) for plane in planes)
        + string_list(3, warnings)
        + string_list(4, (hostname,))
    )
