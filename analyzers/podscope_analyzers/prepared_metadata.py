"""A plane's event metadata with rows for the events that preparation adds."""

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from podscope_analyzers.xspace import EventMetadataTable
from podscope_analyzers.xspace.columns import Int64s
from podscope_analyzers.xspace.metadata import StatValue

V = TypeVar("V")


class PreparedMetadata:
    """A plane's event metadata, with rows for the events that preparation adds.

    Attributes:
        ids: Of the rows that the file has, ascending.
        names: Of every row.
        display_names: Of every row; empty where there is none.
    """

    def __init__(self, table: EventMetadataTable) -> None:
        self._table = table
        self._added: dict[tuple[str, str], int] = {}
        self._added_stats: list[Mapping[str, StatValue]] = []
        self.ids: Int64s = table.ids
        self.names: list[str] = list(table.names)
        self.display_names: list[str] = list(table.display_names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def empty_row(self) -> int:
        """The row of ids that the plane does not have."""
        return self._table.empty_row

    def add(
        self, name: str, display_name: str = "", stats: Mapping[str, StatValue] | None = None
    ) -> int:
        """The row of an added name; one row per pair of names, with the first stats given."""
        key = (name, display_name)
        if key not in self._added:
            self._added[key] = len(self.names)
            self._added_stats.append(stats or {})
            self.names.append(name)
            self.display_names.append(display_name)
        return self._added[key]

    def row(self, metadata_id: int) -> int:
        """The row of an id, or the empty row."""
        return self._table.row(metadata_id)

    def _own(self, row: int) -> int:
        return row if row < len(self._table) else self._table.empty_row

    def stats(self, row: int) -> dict[str, StatValue]:
        """The row's stats by name; of a name that repeats, the first."""
        if row >= len(self._table):
            return dict(self._added_stats[row - len(self._table)])
        return self._table.stats(row)

    def stat_pairs(self, row: int) -> list[tuple[str, StatValue]]:
        """The row's stats in the file's order, repeats included."""
        if row >= len(self._table):
            return list(self._added_stats[row - len(self._table)].items())
        return self._table.stat_pairs(row)

    def made_of(self, rows: Int64s, what: Hashable, make: Callable[[], V]) -> V:
        """What is made of some rows; see ``xspace.EventMetadataTable``."""
        if len(rows) and int(rows.max()) >= len(self._table):
            return make()
        return self._table.made_of(rows, what, make)

    def child_ids(self, row: int) -> list[int]:
        """Ids of the metadata that the row names as its children."""
        return self._table.child_ids(self._own(row))

    def metadata(self, row: int) -> bytes:
        """The tracer's own bytes of the row."""
        return self._table.metadata(self._own(row))
