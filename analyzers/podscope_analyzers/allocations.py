"""What a host's allocators recorded: every allocation and deallocation, in columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from podscope_analyzers.out_of_memory import tells_of_no_memory
from podscope_analyzers.planes import HOST_PLANE, TPU_PREFIX, XLA_MODULES
from podscope_analyzers.prepared import PreparedLine, PreparedPlane, PreparedSpace
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.xspace.metadata import StatValue

ALLOCATION: Final = "MemoryAllocation"
DEALLOCATION: Final = "MemoryDeallocation"
FAILURES: Final = ("MemoryAllocationFailure", "[OutOfMemory]")
"""Requests that could not be served: in our own traces, and as PyTorch's profiler calls them."""
MAX_EVENTS: Final = 4_000_000
"""Of one host; what it has more is left out, and counted."""

_MAX_FAILURES: Final = 100
_MAX_READ: Final = 20_000
"""Events with several names of their allocator that are read one by one."""
_ID_STATS: Final = ("index_on_host", "device_ordinal", "allocator_name")
_NUMBERS: Final = {
    "stack_bytes": "bytes_reserved",
    "heap_bytes": "bytes_allocated",
    "free_bytes": "bytes_available",
    "cached_bytes": "bytes_cached",
    "lifetime_peak_bytes": "peak_bytes_in_use",
    "requested_bytes": "requested_bytes",
    "allocation_bytes": "allocation_bytes",
    "address": "addr",
}
_TEXTS: Final = {"op_name": "tf_op", "region_type": "region_type", "shape": "shape"}
_FRAGMENTATION: Final = "fragmentation"
_DATA_TYPE: Final = "data_type"
_STATS: Final = (*_ID_STATS, *_NUMBERS.values(), *_TEXTS.values(), _FRAGMENTATION, _DATA_TYPE)
_CODES: Final = ("allocator", "op_name", "region_type", "shape", "data_type")
_TYPE_TEXT: Final = (
    "INVALID float double int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 "
    "bfloat16 qint16 quint16 uint16 complex128 half resource variant uint32 uint64 float8_e5m2 "
    "float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz int4 uint4 int2 uint2"
)
_TYPE_NAMES: Final = tuple(_TYPE_TEXT.split())
_REFERENCE: Final = 100

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ModuleRun:
    """One run of a program on a TPU core.

    Attributes:
        offset_ps: From its line's start.
        start_ps: From the capture's base.
        plane: Name of the core's plane.
    """

    name: str
    offset_ps: int
    start_ps: int
    duration_ps: int
    plane: str


@dataclass(frozen=True)
class FailedAllocation:
    """A request for memory that could not be served.

    Attributes:
        start_ps: From the capture's base; -1 when only a message tells of it.
        allocator: Empty where the trace does not say it.
        requested_bytes: 0 where the trace does not say it, as are the others.
        free_bytes: -1 where the trace does not say it.
        used_bytes: Stack and heap at that moment.
        message: What was reported; empty for an event.
    """

    start_ps: int
    allocator: str
    requested_bytes: int
    used_bytes: int
    free_bytes: int
    cached_bytes: int
    op_name: str
    message: str


@dataclass(frozen=True)
class Allocations:
    """A host's allocator events, in the order of its planes.

    Attributes:
        columns: Arrays of shape (n,) by name: ``is_allocation``, ``offset_ps`` (from the line's
            start), ``start_ps`` (from the capture's base), ``step`` (-1 for none), sizes in
            bytes, ``address``, ``fragmentation`` (0-1), and codes into ``texts`` by the same
            name.
        texts: ``allocator``, ``op_name``, ``region_type``, ``shape``, ``data_type``.
        modules: Runs of programs on TPU cores.
        left_out: Events beyond ``MAX_EVENTS``.
        failures: Requests that could not be served, in the order of the planes.
    """

    columns: Mapping[str, Array]
    texts: Mapping[str, Sequence[str]]
    modules: Sequence[ModuleRun]
    left_out: int = 0
    failures: Sequence[FailedAllocation] = ()

    def __len__(self) -> int:
        return len(self.columns["start_ps"])

    def text(self, name: str, row: int) -> str:
        """The text of one event."""
        return self.texts[name][int(self.columns[name][row])]

    def allocators(self) -> list[str]:
        """Names of the allocators that recorded something, sorted as text."""
        return sorted({self.texts["allocator"][i] for i in distinct(self.columns["allocator"])})

    def rows_of(self, allocator: str) -> npt.NDArray[np.int64]:
        """Rows of an allocator, in order."""
        texts = self.texts["allocator"]
        codes = [code for code, name in enumerate(texts) if name == allocator]
        return np.flatnonzero(np.isin(self.columns["allocator"], codes))

    @classmethod
    def empty(cls) -> Self:
        """No event."""
        return cls(_joined([]), {name: [""] for name in _CODES}, ())

    def to_state(self) -> dict[str, Any]:
        """The events as a state."""
        return {
            "columns": dict(self.columns),
            "texts": {name: list(texts) for name, texts in self.texts.items()},
            "modules": [list(vars(module).values()) for module in self.modules],
            "left_out": self.left_out,
            "failures": [list(vars(failure).values()) for failure in self.failures],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The events that ``to_state`` described."""
        columns = {name: state["columns"][name] for name in _joined([])}
        texts = {name: [str(text) for text in state["texts"][name]] for name in _CODES}
        for name, table in texts.items():
            codes = columns[name]
            if len(codes) and not 0 <= codes.min() <= codes.max() < len(table):
                msg = f"codes of {name}"
                raise ValueError(msg)
        if len({len(column) for column in columns.values()}) != 1:
            msg = "columns of different lengths"
            raise ValueError(msg)
        modules = [ModuleRun(*module) for module in state["modules"]]
        failures = [FailedAllocation(*failure) for failure in state["failures"]]
        return cls(columns, texts, modules, int(state["left_out"]), failures)


def host_allocations(space: PreparedSpace) -> Allocations:
    """What one host's allocators recorded."""
    tables: dict[str, dict[str, int]] = {name: {"": 0} for name in _CODES}
    blocks: list[dict[str, Array]] = []
    count = left_out = 0
    plane = space.plane(HOST_PLANE)
    names = plane.event_metadata.names if plane is not None else ()
    kinds = np.array([(n == ALLOCATION) + 2 * (n == DEALLOCATION) for n in names], np.int8)
    for line in plane.lines if plane is not None and kinds.any() else ():
        if line.is_derived or not line.event_count:
            continue
        events = np.flatnonzero(kinds[line.columns().metadata])
        kept = events[: MAX_EVENTS - count]
        left_out += len(events) - len(kept)
        if len(kept):
            count += len(kept)
            is_allocation = kinds[line.columns().metadata[kept]] == 1
            blocks.append({"is_allocation": is_allocation, **_block(line, kept, tables)})
    texts = {name: list(table) for name, table in tables.items()}
    modules = list(_module_runs(space))
    failures = [] if plane is None else list(islice(_failures(plane), _MAX_FAILURES))
    return Allocations(_joined(blocks), texts, modules, left_out, failures)


def _failures(plane: PreparedPlane) -> Iterator[FailedAllocation]:
    names = plane.event_metadata.names
    # Error messages end up as names of events too, where a program traces its errors.
    kinds = np.array([(name in FAILURES) or tells_of_no_memory(name) for name in names], np.bool_)
    for line in plane.lines if kinds.any() else ():
        if line.is_derived or not line.event_count:
            continue
        columns = line.columns()
        for event in np.flatnonzero(kinds[columns.metadata]).tolist():
            name = names[int(columns.metadata[event])]
            yield _failure(int(columns.start_ps[event]), name, line.event_stats(event))


def _failure(start_ps: int, name: str, stats: Mapping[str, StatValue]) -> FailedAllocation:
    def number(stat: str) -> int:
        value = stats.get(stat, 0)
        return int(value) if isinstance(value, int | float) else 0

    allocator = [str(stats[stat]) for stat in stats if stat in _ID_STATS]
    return FailedAllocation(
        start_ps=start_ps,
        allocator=allocator[-1] if allocator else "",
        requested_bytes=number("requested_bytes"),
        used_bytes=number("bytes_reserved") + number("bytes_allocated"),
        free_bytes=number("bytes_available") if "bytes_available" in stats else -1,
        cached_bytes=number("bytes_cached"),
        op_name=str(stats.get("tf_op", "")),
        message="" if name in FAILURES else name,
    )


def _joined(blocks: list[dict[str, Array]]) -> dict[str, Array]:
    types: dict[str, Any] = {"is_allocation": np.bool_, "offset_ps": np.int64, "start_ps": np.int64}
    types |= {"step": np.int64, "fragmentation": np.float64}
    types |= dict.fromkeys(_NUMBERS, np.int64) | dict.fromkeys(_CODES, np.int32)
    return {
        name: np.concatenate([np.empty(0, kind), *(block[name] for block in blocks)]).astype(kind)
        for name, kind in types.items()
    }


def _block(
    line: PreparedLine, events: Array, tables: dict[str, dict[str, int]]
) -> dict[str, Array]:
    known = line.plane.stat_names
    columns = line.columns([name for name in _STATS if name in known])
    start = columns.start_ps[events]
    zeros = np.zeros(len(events), np.int64)
    block: dict[str, Array] = {
        "offset_ps": start - line.timestamp_ns * 1000,
        "start_ps": start,
        "step": np.asarray(line.group_id, np.int64)[events],
        "fragmentation": zeros.astype(np.float64),
    }
    for field, stat in _NUMBERS.items():
        block[field] = columns.stat(stat).ints_or_uints()[events] if stat in known else zeros
    if _FRAGMENTATION in known:
        block["fragmentation"] = columns.stat(_FRAGMENTATION).doubles()[events]
    for field, stat in _TEXTS.items():
        block[field] = zeros
        if stat in known:
            codes, texts = columns.stat(stat).strings()
            block[field] = _codes(codes[events], texts, tables[field])
    block["data_type"] = zeros
    if _DATA_TYPE in known:
        stat_column = columns.stat(_DATA_TYPE)
        numbers = stat_column.ints_or_uints()[events]
        values, inverse = np.unique(numbers, return_inverse=True)
        named = _codes(inverse, [type_name(int(v)) for v in values], tables["data_type"])
        block["data_type"] = np.where(stat_column.present()[events], named, 0)
    block["allocator"] = _allocators(line, events, tables["allocator"])
    return block


def _codes(codes: Array, texts: Sequence[str], table: dict[str, int]) -> Array:
    """Codes into a line's texts as codes into the host's; the empty text where there is none."""
    used = np.zeros(len(texts) + 1, np.bool_)
    used[codes] = True  # -1, no text, marks the last place.
    renumbered = [
        table.setdefault(text, len(table)) if used[i] else 0 for i, text in enumerate(texts)
    ]
    return np.asarray([*renumbered, 0], np.int64)[codes]


def _allocators(line: PreparedLine, events: Array, table: dict[str, int]) -> Array:
    """The allocator of every event: of several stats that name it, the event's last."""
    present = [name for name in _ID_STATS if name in line.plane.stat_names]
    columns = line.columns(present)
    found = np.zeros(len(events), np.int64)
    pattern = np.zeros(len(events), np.int64)
    named: dict[str, Array] = {}
    for bit, name in enumerate(present):
        stat = columns.stat(name)
        if name == "allocator_name":
            codes, texts = stat.strings()
            named[name] = _codes(codes[events], texts, table)
        else:
            values, inverse = np.unique(stat.ints_or_uints()[events], return_inverse=True)
            named[name] = _codes(inverse, [str(int(value)) for value in values], table)
        pattern |= stat.present()[events].astype(np.int64) << bit
    for one in distinct(pattern).tolist():
        rows = np.flatnonzero(pattern == one)
        stats = [name for bit, name in enumerate(present) if one >> bit & 1]
        if not stats:
            continue
        if len(stats) == 1:
            found[rows] = named[stats[0]][rows]
            continue
        # The columns do not tell which comes last: the events do, one by one.
        for row in rows[:_MAX_READ].tolist():
            found[row] = named[_last_id(line, int(events[row]))][row]
        # A tracer writes an event's stats in one order: of very many the first shows it.
        rest = rows[_MAX_READ:]
        if len(rest):
            found[rest] = named[_last_id(line, int(events[rest[0]]))][rest]
    return found


def _last_id(line: PreparedLine, event: int) -> str:
    return [stat for stat in line.event_stats(event) if stat in _ID_STATS][-1]


def type_name(number: int) -> str:
    """TensorFlow's name of a data type."""
    if _REFERENCE < number < 2 * _REFERENCE:
        return f"{type_name(number - _REFERENCE)}_ref"
    if 0 <= number < len(_TYPE_NAMES):
        return _TYPE_NAMES[number]
    return f"unknown dtype enum ({number})"


def _module_runs(space: PreparedSpace) -> Iterator[ModuleRun]:
    for plane in space.planes:
        line = plane.line(XLA_MODULES) if plane.name.startswith(TPU_PREFIX) else None
        if line is None or line.is_derived:
            continue
        columns = line.columns()
        names = plane.event_metadata.names
        base = line.timestamp_ns * 1000
        events = zip(
            columns.metadata.tolist(),
            columns.start_ps.tolist(),
            columns.duration_ps.tolist(),
            strict=True,
        )
        for metadata, start, duration in events:
            yield ModuleRun(
                names[metadata], start - base, start, duration, plane.name.removeprefix("/device:")
            )
