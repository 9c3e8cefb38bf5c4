"""What events and stats are called: the metadata tables of one plane."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

import numpy as np

from podscope_analyzers.xspace.columns import Int64s, decode_text, unpack_gzip
from podscope_analyzers.xspace.limits import Limits
from podscope_protos.v1 import xplane_pb2

StatValue = int | float | str | bytes

_NO_METADATA: Final = xplane_pb2.XEventMetadata()


class StatReader:
    """Reads XStat messages of one plane: names and references resolved.

    Attributes:
        names: The name of every stat metadata id.
    """

    def __init__(self, plane: xplane_pb2.XPlane, limits: Limits) -> None:
        self.names: Mapping[int, str] = {
            key: entry.name for key, entry in plane.stat_metadata.items()
        }
        self._limits = limits

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
            return decode_text(unpack_gzip(stat.gzip_value, self._limits.value_bytes))
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
        found: dict[str, StatValue] = {}
        for name, value in self.pairs(stats):
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

    def __init__(self, plane: xplane_pb2.XPlane, stats: StatReader) -> None:
        # Message objects are made as they are read and not kept: a Python tracer's plane has
        # a hundred thousand.
        entries = plane.event_metadata
        self._entries = entries
        self._stats = stats
        self.ids: Int64s = np.fromiter(entries.keys(), np.int64, len(entries))
        self.ids.sort()
        self.names: list[str] = []
        self.display_names: list[str] = []
        for key in self.ids.tolist():
            entry = entries[key]
            self.names.append(entry.name)
            self.display_names.append(entry.display_name)
        self.names.append("")
        self.display_names.append("")

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
        return self._entries[int(self.ids[row])]

    def stats(self, row: int) -> dict[str, StatValue]:
        """The row's stats by name; of a name that repeats, the first."""
        return self._stats.first(self._entry(row).stats)

    def stat_pairs(self, row: int) -> list[tuple[str, StatValue]]:
        """The row's stats in the file's order, repeats included."""
        return self._stats.pairs(self._entry(row).stats)

    def child_ids(self, row: int) -> list[int]:
        """Ids of the metadata that the row names as its children."""
        return list(self._entry(row).child_id)

    def metadata(self, row: int) -> bytes:
        """The tracer's own bytes of the row."""
        return self._entry(row).metadata
