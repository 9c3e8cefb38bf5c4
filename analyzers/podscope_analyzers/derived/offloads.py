"""Transfers between a TPU and its host's memory: one event from each start to its end."""

import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from podscope_analyzers.kernels.offloads import pair_transfers
from podscope_analyzers.planes import DERIVED_HOST_OFFLOAD, MAX_HOST_OFFLOAD_ROWS
from podscope_analyzers.prepared import PreparedLine, PreparedPlane
from podscope_analyzers.prepared_lines import derived_line
from podscope_analyzers.xspace import StatValue
from podscope_analyzers.xspace.columns import Bools, Int64s

HOST_MEMORY: Final = "S(5)"
_TRANSFER: Final = re.compile(r"(.*(?:copy|dynamic-slice|dynamic-update-slice))-(start|done)")
_NUMBER_AT_END: Final = re.compile(r"\.([0-9]+)\Z")
_KEPT_STATS: Final = ("raw_bytes_accessed", "shape_with_layout")


def transfer_name(display_name: str) -> tuple[str, bool] | None:
    """What a transfer is called, and whether this is its start; None for another operation."""
    found = _TRANSFER.match(display_name)
    if found is None:
        return None
    number = _NUMBER_AT_END.search(display_name)
    return f"offload-{found[1]}.{number[1] if number else 0}", found[2] == "start"


def offload_lines(plane: PreparedPlane) -> tuple[PreparedLine, ...]:
    """The rows of transfers, each row with those that do not overlap."""
    keys = _Keys(plane)
    if not keys.names:
        return ()
    parts = [_transfers(line, keys) for line in plane.lines if line.event_count]
    if not parts:
        return ()
    metadata, start, duration = (
        np.concatenate([part[field] for part in parts]) for field in range(3)
    )
    order = np.lexsort((duration, start))
    metadata, start = metadata[order], start[order]
    end = start + duration[order]
    key = keys.of_row[metadata]
    started, row = pair_transfers(
        key.astype(np.int32),
        keys.is_start[metadata],
        start,
        end,
        most_rows=MAX_HOST_OFFLOAD_ROWS,
    )
    rows = np.array(keys.rows, np.int32)
    lines = []
    for number in range(int(row.max(initial=-1)) + 1):
        done = np.flatnonzero(row == number)
        done = done[np.argsort(start[started[done]], kind="stable")]
        begin = start[started[done]]
        ones = np.ones(len(done), np.int64)
        lines.append(
            derived_line(
                plane,
                name=f"Host Offload Ops row {number}",
                line_id=DERIVED_HOST_OFFLOAD + number,
                metadata=rows[key[done]],
                start_ps=begin,
                duration_ps=np.maximum(end[done] - begin, 0),
                group_id=-ones,
                stats={"_a": (ones == 1, ones)},
            )
        )
    return tuple(lines)


class _Keys:
    """Which rows of a plane's metadata are starts and ends of which transfers.

    Attributes:
        names: Number of each transfer's name.
        of_row: Number by row of the metadata, -1 for other operations, shape (m,).
        is_start: By row, shape (m,).
        rows: The metadata's row of the transfers themselves, by number.
    """

    def __init__(self, plane: PreparedPlane) -> None:
        table = plane.event_metadata
        self.names: dict[str, int] = {}
        count = len(table)
        self.of_row: Int64s = np.full(count, -1, np.int64)
        self.is_start: Bools = np.zeros(count, np.bool_)
        stats: dict[int, Mapping[str, StatValue]] = {}
        for row in range(count):
            if HOST_MEMORY not in table.names[row]:
                continue
            found = transfer_name(table.display_names[row])
            if found is None:
                continue
            number = self.names.setdefault(found[0], len(self.names))
            self.of_row[row], self.is_start[row] = number, found[1]
            if found[1] and number not in stats:
                told = table.stats(row)
                stats[number] = {name: told[name] for name in _KEPT_STATS if name in told}
        self.rows = [
            table.add("", name, stats.get(number, {})) for name, number in self.names.items()
        ]


def _transfers(line: PreparedLine, keys: _Keys) -> tuple[Int64s, Int64s, Int64s]:
    """Metadata row, start and duration of the line's starts and ends of transfers."""
    columns = line.columns({"_a"} & line.plane.stat_names)
    is_kept = keys.of_row[columns.metadata] >= 0
    if "_a" in columns.stat_names:
        is_kept &= columns.stat("_a").ints() == 0
    kept = np.flatnonzero(is_kept)
    return (
        columns.metadata[kept].astype(np.int64),
        columns.start_ps[kept],
        columns.duration_ps[kept],
    )
