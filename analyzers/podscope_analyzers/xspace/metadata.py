"""What events and stats are called: the metadata tables of one plane."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, TypeVar, cast

import numpy as np

from podscope_analyzers.xspace.columns import GzipTexts, Int64s, decode_text
from podscope_protos.v1 import xplane_pb2

StatValue = int | float | str | bytes

EVENT_METADATA: Final = 4
STAT_METADATA: Final = 5
_NO_METADATA: Final = xplane_pb2.XEventMetadata()
# Stats of metadata that a plane keeps as Python values; several layers read the same ones.
_KEPT_STATS: Final = 200_000
_AT_ONCE: Final = 4096
# Of larger tables it is not looked whether they are equal, nor kept what is made of them.
_SHARED_BYTES: Final = 32 << 20
_SHARED_ROWS: Final = 1 << 16

T = TypeVar("T")


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    size, length = len(payload), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes((number << 3 | 2, *length)) + payload


class MetadataEntries:
    """The entries of one of a plane's two metadata maps, as they lie in the file.

    Messages are made of some entries at a time and not kept: a hostile file has a million of
    them, which as messages would take a hundred times its size.

    Attributes:
        keys: The distinct keys, ascending, shape (m,).
    """

    def __init__(
        self,
        number: int,
        keys: Int64s,
        spans: tuple[Int64s, Int64s],
        read: Callable[[int, int], bytes],
        parse: Callable[[bytes, int], xplane_pb2.XPlane],
    ) -> None:
        self._number = number
        self._read = read
        self._parse = parse
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        # Of a key that repeats, the last entry counts; all of them must be valid.
        is_last = np.ones(len(keys), np.bool_)
        is_last[:-1] = ordered[1:] != ordered[:-1]
        self.keys: Int64s = ordered[is_last]
        starts, ends = spans
        self._starts, self._ends = starts[order[is_last]], ends[order[is_last]]
        rest = order[~is_last]
        self._others = (starts[rest], ends[rest])

    def __len__(self) -> int:
        return len(self.keys)

    def equals(self, other: "MetadataEntries") -> bool:
        """Whether the other plane's entries surely are the same bytes, in the same order."""
        mine, theirs = self._starts, other._starts
        if not np.array_equal(self.keys, other.keys):
            return False
        # Entries that a later one of the same key stands for must be valid too.
        if not len(mine) or len(self._others[0]) or len(other._others[0]):
            return not len(mine)
        begin, end = int(mine.min()), int(self._ends.max())
        size, distance = end - begin, int(theirs[0] - mine[0])
        return bool(
            size <= _SHARED_BYTES
            # With little else in between, such as the plane's lines.
            and size <= 2 * int((self._ends - mine).sum()) + 64 * len(mine)
            and np.array_equal(mine + distance, theirs)
            and np.array_equal(self._ends + distance, other._ends)
            and self._read(begin, end) == other._read(begin + distance, end + distance)
        )

    def _message(self, starts: Int64s, ends: Int64s) -> xplane_pb2.XPlane:
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        raw = b"".join(_field(self._number, self._read(start, end)) for start, end in spans)
        return self._parse(raw, int(starts[0]))

    def messages(self) -> Iterator[tuple[list[int], xplane_pb2.XPlane]]:
        """All entries: some keys, ascending, and a plane that has their entries."""
        starts, ends = self._others
        for at in range(0, len(starts), _AT_ONCE):
            self._message(starts[at : at + _AT_ONCE], ends[at : at + _AT_ONCE])
        for at in range(0, len(self.keys), _AT_ONCE):
            some = slice(at, at + _AT_ONCE)
            yield self.keys[some].tolist(), self._message(self._starts[some], self._ends[some])

    def message(self, row: int) -> xplane_pb2.XPlane:
        """A plane that has one entry."""
        return self._message(self._starts[row : row + 1], self._ends[row : row + 1])


class StatReader:
    """Reads XStat messages of one plane: names and references resolved.

    Attributes:
        names: The name of every stat metadata id.
    """

    def __init__(self, entries: MetadataEntries, gzip: GzipTexts) -> None:
        self.names: Mapping[int, str] = {
            key: plane.stat_metadata[key].name for keys, plane in entries.messages() for key in keys
        }
        self._gzip = gzip

    @cached_property
    def ids(self) -> Mapping[str, tuple[int, ...]]:
        """The stat metadata ids of every name; a hostile or merged plane has several."""
        ids: dict[str, list[int]] = {}
        for key, name in self.names.items():
            ids.setdefault(name, []).append(key)
        return {name: tuple(keys) for name, keys in ids.items()}

    def value(self, stat: xplane_pb2.XStat) -> StatValue | None:
        """The value of a stat; None when no member is set."""
        member = stat.WhichOneof("value")
        if member is None:
            return None
        if member == "ref_value":
            # Ids are int64 keys, references uint64: the same bits.
            ref = stat.ref_value
            return self.names.get(ref - (1 << 64) if ref >> 63 else ref, "")
        if member == "gzip_value":
            return decode_text(self._gzip.unpack(stat.gzip_value))
        value: StatValue = getattr(stat, member)
        return value

    def pairs(self, stats: Iterable[xplane_pb2.XStat]) -> list[tuple[str, StatValue]]:
        """Name and value of every stat that has a value, in the file's order."""
        found = []
        for stat in stats:
            value = self.value(stat)
            if value is not None:
                found.append((self.names.get(stat.metadata_id, ""), value))
        return found

    def first(self, stats: Iterable[xplane_pb2.XStat]) -> dict[str, StatValue]:
        """Values by name in the file's order; of a name that repeats, the first."""
        return first_values(self.pairs(stats))


def first_values(pairs: Iterable[tuple[str, StatValue]]) -> dict[str, StatValue]:
    """Values by name; of a name that repeats, the first."""
    found: dict[str, StatValue] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


class EventMetadataTable:
    """A plane's event metadata as rows in the order of their ids.

    One more row at the end stands for every id that the plane does not have: empty name, no
    stats.

    Attributes:
        ids: The id of every row but the last, ascending, shape (m,).
        names: Of every row, m + 1 of them.
        display_names: Of every row; empty where the metadata has none.
    """

    def __init__(self, entries: MetadataEntries, stats: StatReader) -> None:
        self._entries = entries
        self._stats = stats
        self._last: tuple[int, xplane_pb2.XEventMetadata] = (-1, _NO_METADATA)
        self.ids: Int64s = entries.keys
        self.names: list[str] = []
        self.display_names: list[str] = []
        for keys, plane in entries.messages():
            for key in keys:
                entry = plane.event_metadata[key]
                self.names.append(entry.name)
                self.display_names.append(entry.display_name)
        self.names.append("")
        self.display_names.append("")
        self._known: dict[int, list[tuple[str, StatValue]]] = {}
        self._known_stats = 0
        self._made: dict[Hashable, tuple[Hashable, Any]] = {}

    def __len__(self) -> int:
        """How many rows, the empty one included."""
        return len(self.names)

    @property
    def empty_row(self) -> int:
        """The row of ids that the plane does not have."""
        return len(self._entries)

    def row(self, metadata_id: int) -> int:
        """The row of an id, or the empty row."""
        at = int(np.searchsorted(self.ids, metadata_id))
        if at < len(self.ids) and self.ids[at] == metadata_id:
            return at
        return self.empty_row

    def _entry(self, row: int) -> xplane_pb2.XEventMetadata:
        if row == self.empty_row:
            return _NO_METADATA
        known, entry = self._last
        if known != row:
            entry = self._entries.message(row).event_metadata[int(self.ids[row])]
            self._last = (row, entry)
        return entry

    def check(self) -> None:
        """Reads the stats of every row.

        Raises:
            XSpaceError: one of them is not valid.
        """
        for keys, plane in self._entries.messages():
            for key in keys:
                self._stats.first(plane.event_metadata[key].stats)

    def stats(self, row: int) -> dict[str, StatValue]:
        """The row's stats by name; of a name that repeats, the first."""
        return first_values(self._pairs(row))

    def stat_pairs(self, row: int) -> list[tuple[str, StatValue]]:
        """The row's stats in the file's order, repeats included."""
        return list(self._pairs(row))

    def _pairs(self, row: int) -> list[tuple[str, StatValue]]:
        known = self._known.get(row)
        if known is None:
            known = self._stats.pairs(self._entry(row).stats)
            # Long texts count as many: a program's module is one stat.
            size = sum(1 + len(value) // 64 for _, value in known if isinstance(value, str | bytes))
            size += len(known)
            if known and self._known_stats + size < _KEPT_STATS:
                self._known[row] = known
                self._known_stats += size
        return known

    def made_of(self, rows: Int64s, what: Hashable, make: Callable[[], T]) -> T:
        """What is made of some rows, once for all planes that share the table.

        Args:
            rows: All that it depends on, in this order.
            what: Names it; of one name only the last is kept.
            make: Makes it; nobody changes it afterwards.
        """
        if len(rows) > _SHARED_ROWS:
            return make()
        key = rows.tobytes()
        found = self._made.get(what)
        if found is None or found[0] != key:
            found = self._made[what] = (key, make())
        return cast("T", found[1])

    def child_ids(self, row: int) -> list[int]:
        """Ids of the metadata that the row names as its children."""
        return list(self._entry(row).child_id)

    def metadata(self, row: int) -> bytes:
        """The tracer's own bytes of the row."""
        return self._entry(row).metadata
