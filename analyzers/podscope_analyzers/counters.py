"""Values of hardware counters that device planes carry, in columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from podscope_analyzers.planes import GPU_PREFIX, TPU_PREFIX
from podscope_analyzers.xspace import Line, Plane, XSpace
from podscope_analyzers.xspace.columns import DOUBLE

MAX_COUNTERS: Final = 2_000_000
"""Values of one host; what it has more is left out, and counted."""

VALUE: Final = "counter_value"
_DESCRIPTION: Final = "performance_counter_description"
_SET: Final = "performance_counter_sets"
_STATS: Final = (VALUE, _DESCRIPTION, _SET)
_CODES: Final = ("plane", "line", "counter", "description", "set")
_UINT64: Final = 1 << 64

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CounterPlane:
    """A device that recorded counters.

    Attributes:
        chip: Global id of the chip where the plane says it, else the device's on its host.
        device: The device's id on its host; -1 when the plane does not say it.
        device_type: As the plane names it.
    """

    name: str
    chip: int
    device: int
    device_type: str


@dataclass(frozen=True)
class Counters:
    """A host's counter values, in the order of its file.

    Attributes:
        columns: Arrays of shape (n,) by name: ``bits`` (of an integer value, 0 for a floating one),
            ``value`` (of any), ``line_id``, ``start_ps`` from the capture's base, and codes into
            ``texts`` by the same name, of ``plane`` into ``planes``.
        texts: ``line``, ``counter``, ``description``, ``set``.
        planes: The devices.
        left_out: Values beyond ``MAX_COUNTERS``.
    """

    columns: Mapping[str, Array]
    texts: Mapping[str, Sequence[str]]
    planes: Sequence[CounterPlane]
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.columns["value"])

    @classmethod
    def empty(cls) -> Self:
        """No value."""
        return cls(_joined([]), {name: [""] for name in _CODES[1:]}, ())

    def text(self, name: str, row: int) -> str:
        """The text of one value."""
        return self.texts[name][int(self.columns[name][row])]

    def unsigned(self, row: int) -> int:
        """An integer value as the unsigned number of its bits."""
        return int(self.columns["bits"][row]) % _UINT64

    def to_state(self) -> dict[str, Any]:
        """The values as a state."""
        return {
            "columns": dict(self.columns),
            "texts": {name: list(texts) for name, texts in self.texts.items()},
            "planes": [list(vars(plane).values()) for plane in self.planes],
            "left_out": self.left_out,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The values that ``to_state`` described."""
        columns = {name: state["columns"][name] for name in _joined([])}
        texts = {name: [str(text) for text in state["texts"][name]] for name in _CODES[1:]}
        planes = [CounterPlane(*plane) for plane in state["planes"]]
        sizes = {name: len(table) for name, table in texts.items()} | {"plane": len(planes)}
        for name, size in sizes.items():
            codes = columns[name]
            if len(codes) and not 0 <= codes.min() <= codes.max() < size:
                msg = f"codes of {name}"
                raise ValueError(msg)
        if len({len(column) for column in columns.values()}) != 1:
            msg = "columns of different lengths"
            raise ValueError(msg)
        return cls(columns, texts, planes, int(state["left_out"]))


def host_counters(space: XSpace) -> Counters:
    """The counter values of a host's device planes."""
    tables: dict[str, dict[str, int]] = {name: {"": 0} for name in _CODES[1:]}
    planes: list[CounterPlane] = []
    blocks: list[dict[str, Array]] = []
    count = left_out = 0
    for plane in space.planes:
        if not plane.name.startswith((TPU_PREFIX, GPU_PREFIX)) or VALUE not in plane.stat_names:
            continue
        device, chip = plane.stats.get("device_id"), plane.stats.get("global_chip_id")
        own = device if isinstance(device, int) else -1
        known = chip if isinstance(chip, int) else own
        if known == -1 and not isinstance(chip, int):
            continue  # As the reference has it: nobody could say whose values they are.
        kind = str(plane.stats.get("device_type_string", ""))
        planes.append(CounterPlane(plane.name, known, own, kind))
        for line in plane.lines:
            if not line.event_count:
                continue
            block, more = _block(plane, line, tables, len(planes) - 1, MAX_COUNTERS - count)
            blocks.append(block)
            count += len(block["value"])
            left_out += more
    texts = {name: list(table) for name, table in tables.items()}
    return Counters(_joined(blocks), texts, planes, left_out)


def _block(
    plane: Plane, line: Line, tables: dict[str, dict[str, int]], number: int, room: int
) -> tuple[dict[str, Array], int]:
    """A line's values, and how many there was no room for."""
    columns = line.columns(
        [name for name in (VALUE, _DESCRIPTION, _SET) if name in plane.stat_names]
    )
    stat = columns.stat(VALUE)
    events = np.flatnonzero(stat.present())
    kept = events[:room]
    bits = stat.ints_or_uints()[kept]
    values = bits.astype(np.float64) + np.where(bits < 0, float(_UINT64), 0.0)
    values[stat.kind[kept] == DOUBLE] = stat.doubles()[kept][stat.kind[kept] == DOUBLE]
    metadata = columns.metadata[kept]
    names = plane.event_metadata.names
    size = len(kept)
    block: dict[str, Array] = {
        "bits": bits,
        "value": values,
        "line_id": np.full(size, line.id, np.int64),
        "start_ps": columns.start_ps[kept],
        "plane": np.full(size, number, np.int32),
        "line": np.full(size, tables["line"].setdefault(line.name, len(tables["line"])), np.int32),
        "counter": _of_metadata(metadata, names.__getitem__, tables["counter"]),
    }
    for field, name in (("description", _DESCRIPTION), ("set", _SET)):
        told = partial(_metadata_text, plane, name)
        codes = _of_metadata(metadata, told, tables[field])
        if name in plane.stat_names:
            own, texts = columns.stat(name).strings()
            table = tables[field]
            renumbered = np.array([*(table.setdefault(t, len(table)) for t in texts), 0], np.int32)
            found = own[kept]
            codes = np.where(found >= 0, renumbered[found], codes)
        block[field] = codes
    return block, len(events) - size


def _metadata_text(plane: Plane, stat: str, row: int) -> str:
    value = plane.event_metadata.stats(row).get(stat)
    return value if isinstance(value, str) else ""


def _of_metadata(metadata: Array, text: Callable[[int], str], table: dict[str, int]) -> Array:
    rows, inverse = np.unique(metadata, return_inverse=True)
    codes = [table.setdefault(text(row), len(table)) for row in rows.tolist()]
    return np.asarray(codes, np.int32)[inverse]


def _joined(blocks: list[dict[str, Array]]) -> dict[str, Array]:
    types: dict[str, Any] = {"bits": np.int64, "value": np.float64, "line_id": np.int64}
    types |= {"start_ps": np.int64} | dict.fromkeys(_CODES, np.int32)
    return {
        name: np.concatenate([np.empty(0, kind), *(block[name] for block in blocks)]).astype(kind)
        for name, kind in types.items()
    }
