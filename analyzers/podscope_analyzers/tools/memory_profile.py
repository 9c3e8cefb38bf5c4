"""What allocators did during a capture: how much was in use when, and what the peak was made of."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from podscope_analyzers.allocations import Allocations
from podscope_analyzers.allocator_profile import Active, AllocatorProfile
from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.reasons import NO_ALLOCATIONS
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult

NAME: Final = "memory_profile"
VERSION: Final = 1
PARAMETERS: Final = {
    "allocator": "one allocator; all without it",
    "begin_ms": "start of the timeline, from the capture's start",
    "end_ms": "end of the timeline",
    "buckets": "how finely the timeline is divided: 1 to 5000, 200 without it",
}

_BUCKETS: Final = 200
_MAX_BUCKETS: Final = 5000
_SAMPLES: Final = 1000
_PS_PER_MS: Final = 1_000_000_000
_UINT64: Final = 1 << 64

_ALLOCATOR_COLUMNS: Final = (
    Column("allocator", "Allocator", "string"),
    Column("allocations", "Allocations", "integer"),
    Column("deallocations", "Deallocations", "integer"),
    Column("peak_bytes", "Peak", "integer", "bytes"),
    Column("peak_time_ms", "Peak at", "number", "ms"),
    Column("peak_stack_bytes", "Stack at the peak", "integer", "bytes"),
    Column("peak_heap_bytes", "Heap at the peak", "integer", "bytes"),
    Column("peak_free_bytes", "Free at the peak", "integer", "bytes"),
    Column("peak_fragmentation_ratio", "Fragmentation at the peak", "number", "ratio"),
    Column("lifetime_peak_bytes", "Peak since the start", "integer", "bytes"),
    Column("capacity_bytes", "Capacity", "integer", "bytes"),
)
_TIMELINE_COLUMNS: Final = (
    Column("allocator", "Allocator", "string"),
    Column("begin_ms", "From", "number", "ms"),
    Column("end_ms", "To", "number", "ms"),
    Column("events", "Events", "integer"),
    Column("min_used_bytes", "Least in use", "integer", "bytes"),
    Column("max_used_bytes", "Most in use", "integer", "bytes"),
    Column("min_free_bytes", "Least free", "integer", "bytes"),
    Column("max_stack_bytes", "Most stack", "integer", "bytes"),
    Column("max_fragmentation_ratio", "Most fragmentation", "number", "ratio"),
    Column("op_name", "Operation at the most", "string"),
)
_PEAK_COLUMNS: Final = (
    Column("allocator", "Allocator", "string"),
    Column("op_name", "Operation", "string"),
    Column("allocation_bytes", "Allocated", "integer", "bytes"),
    Column("requested_bytes", "Requested", "integer", "bytes"),
    Column("occurrences", "Occurrences", "integer"),
    Column("total_bytes", "Together", "integer", "bytes"),
    Column("region_type", "Region", "string"),
    Column("data_type", "Data type", "string"),
    Column("shape", "Shape", "string"),
    Column("is_recorded", "Recorded", "boolean"),
)
_MODULE_COLUMNS: Final = (
    Column("program", "Program", "string"),
    Column("core", "Core", "string"),
    Column("begin_ms", "From", "number", "ms"),
    Column("end_ms", "To", "number", "ms"),
)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """The allocators in our own schema; times count from the capture's start."""
    events = stats.allocations
    names = _chosen(events, parameters)
    begin, end = _window(events, parameters)
    buckets = int(_number(parameters, "buckets", _BUCKETS))
    if not 1 <= buckets <= _MAX_BUCKETS:
        msg = f"buckets must be 1 to {_MAX_BUCKETS}, not {buckets}"
        raise ParameterError(msg)
    profiles = [AllocatorProfile(events, name, "start_ps") for name in names]
    modules: list[list[Cell]] = [
        [
            module.name,
            module.plane,
            module.start_ps / _PS_PER_MS,
            (module.start_ps + module.duration_ps) / _PS_PER_MS,
        ]
        for module in events.modules
        if module.start_ps <= end and module.start_ps + module.duration_ps >= begin
    ]
    tables = {
        "allocators": Table(_ALLOCATOR_COLUMNS, [_summary_row(one) for one in profiles]),
        "timeline": Table(
            _TIMELINE_COLUMNS,
            [row for one in profiles for row in _timeline(one, begin, end, buckets)],
        ),
        "peak_allocations": Table(
            _PEAK_COLUMNS, [_peak_row(one.name, row) for one in profiles for row in one.active()]
        ),
        "modules": Table(_MODULE_COLUMNS, modules if profiles else []),
    }
    reasons = [] if profiles else [NO_ALLOCATIONS]
    if events.left_out:
        message = f"{events.left_out} allocator events were too many to be kept."
        reasons.append(Reason("events_left_out", message, "Capture for a shorter time."))
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if profiles else "empty",
        result={name: table.to_json() for name, table in tables.items()},
        tables=tables,
        reasons=reasons,
    )


def _chosen(events: Allocations, parameters: Mapping[str, str]) -> list[str]:
    names = events.allocators()
    wanted = parameters.get("allocator", "")
    if not wanted:
        return names
    if wanted not in names:
        msg = f"no allocator '{wanted[:60]}'; there are {', '.join(names[:20]) or 'none'}"
        raise ParameterError(msg)
    return [wanted]


def _number(parameters: Mapping[str, str], name: str, default: float) -> float:
    text = parameters.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not 0 <= value <= 1e9:
        msg = f"{name} must be a number from 0 to a billion, not '{text[:40]}'"
        raise ParameterError(msg)
    return value


def _window(events: Allocations, parameters: Mapping[str, str]) -> tuple[int, int]:
    times = events.columns["start_ps"]
    first, last = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    begin = int(_number(parameters, "begin_ms", first / _PS_PER_MS) * _PS_PER_MS)
    end = int(_number(parameters, "end_ms", last / _PS_PER_MS) * _PS_PER_MS)
    # The default end is the last event's own time, which rounding must not cut off.
    end = end if parameters.get("end_ms") else max(end, last)
    begin = begin if parameters.get("begin_ms") else min(begin, first)
    if begin > end:
        msg = f"begin_ms {begin / _PS_PER_MS:g} lies after end_ms {end / _PS_PER_MS:g}"
        raise ParameterError(msg)
    return begin, end


def _summary_row(one: AllocatorProfile) -> list[Cell]:
    is_allocation = one.events.columns["is_allocation"][one.rows]
    peak = one.peak_row
    return [
        one.name,
        int(is_allocation.sum()),
        int((~is_allocation).sum()),
        one.peak_bytes,
        one.peak_time_ps / _PS_PER_MS,
        one.number("stack_bytes", peak),
        one.number("heap_bytes", peak),
        one.number("free_bytes", peak),
        _ratio(one.events.columns["fragmentation"][peak]),
        # It never falls, but lines are not in time order: the last event's need not be the latest.
        int(one.events.columns["lifetime_peak_bytes"][one.rows].max()),
        one.capacity_bytes,
    ]


def _ratio(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _timeline(one: AllocatorProfile, begin: int, end: int, buckets: int) -> Iterator[list[Cell]]:
    """Least and most of every part of the window in which something happened."""
    inside = np.flatnonzero((one.time_ps >= begin) & (one.time_ps <= end))
    if not len(inside):
        return
    width = max(1.0, (end - begin) / buckets)
    number = np.minimum(((one.time_ps[inside] - begin) / width).astype(np.int64), buckets - 1)
    first = np.flatnonzero(np.diff(number, prepend=-1))
    columns = one.events.columns
    for at, until in zip(first, [*first[1:], len(inside)], strict=True):
        places = inside[at:until]
        rows = one.rows[places]
        used = one.used_bytes[places]
        bucket = int(number[at])
        yield [
            one.name,
            (begin + bucket * width) / _PS_PER_MS,
            (begin + (bucket + 1) * width) / _PS_PER_MS,
            len(places),
            int(used.min()),
            int(used.max()),
            int(columns["free_bytes"][rows].min()),
            int(columns["stack_bytes"][rows].max()),
            _ratio(columns["fragmentation"][rows].max()),
            one.described(int(places[np.argmax(used)]))[0],
        ]


def _peak_row(allocator: str, row: Active) -> list[Cell]:
    return [
        allocator,
        row.op_name,
        row.allocation_bytes,
        row.requested_bytes,
        row.occurrences,
        row.allocation_bytes * row.occurrences,
        row.region_type,
        row.data_type,
        row.shape,
        row.row is not None,
    ]


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's JSON; its times count from the start of each event's line."""
    events = stats.allocations
    names = _chosen(events, parameters)
    return {
        "memoryProfilePerAllocator": {name: _allocator_json(events, name) for name in names},
        "numHosts": 1,
        "memoryIds": names,
        "version": 1,
        "hloModules": [
            {
                "name": module.name,
                "startTimePs": str(module.offset_ps),
                "endTimePs": str(module.offset_ps + module.duration_ps),
                "id": str(number),
                "planeName": module.plane,
            }
            for number, module in enumerate(events.modules)
        ],
    }


def _allocator_json(events: Allocations, name: str) -> dict[str, Any]:
    one = AllocatorProfile(events, name, "offset_ps")
    recorded: list[dict[str, Any]] = []
    active: list[dict[str, str]] = []
    special: list[Active] = []
    for row in one.active():
        if row.row is None:
            special.append(row)
            places = (-len(special), len(special) - 1)
        else:
            places = (len(recorded), -1)
            recorded.append(_snapshot(one, row.row))
        count = str(row.occurrences)
        active.append(
            {
                "snapshotIndex": str(places[0]),
                "specialIndex": str(places[1]),
                "numOccurrences": count,
            }
        )
    return {
        "memoryProfileSnapshots": recorded,
        "profileSummary": {
            "peakBytesUsageLifetime": str(one.lifetime_peak_bytes),
            "peakStats": _stats_json(one, one.peak_row, one.peak_bytes),
            "peakStatsTimePs": str(one.peak_time_ps),
            "memoryCapacity": str(one.capacity_bytes),
        },
        "activeAllocations": active,
        "specialAllocations": [_special_json(row, one.peak_step) for row in special],
        "sampledTimelineSnapshots": [
            _snapshot(one, place) for place in one.sample(_SAMPLES).tolist()
        ],
    }


def _stats_json(one: AllocatorProfile, row: int, peak_bytes: int) -> dict[str, Any]:
    return {
        "stackReservedBytes": str(one.number("stack_bytes", row)),
        "heapAllocatedBytes": str(one.number("heap_bytes", row)),
        "freeMemoryBytes": str(one.number("free_bytes", row)),
        "fragmentation": float(one.events.columns["fragmentation"][row]),
        "peakBytesInUse": str(peak_bytes),
    }


def _snapshot(one: AllocatorProfile, place: int) -> dict[str, Any]:
    row = int(one.rows[place])
    op_name, region, data_type, shape = one.described(place)
    is_allocation = bool(one.events.columns["is_allocation"][row])
    return {
        "timeOffsetPs": str(int(one.time_ps[place])),
        "aggregationStats": _stats_json(one, row, one.number("lifetime_peak_bytes", row)),
        "activityMetadata": {
            "memoryActivity": "ALLOCATION" if is_allocation else "DEALLOCATION",
            "requestedBytes": str(one.number("requested_bytes", row)),
            "allocationBytes": str(one.number("allocation_bytes", row)),
            "address": str(one.number("address", row) % _UINT64),
            "tfOpName": op_name,
            "stepId": str(int(one.step[place])),
            "regionType": region,
            "dataType": data_type,
            "tensorShape": shape,
        },
    }


def _special_json(row: Active, step: int) -> dict[str, Any]:
    return {
        "memoryActivity": "ALLOCATION",
        "requestedBytes": str(row.requested_bytes),
        "allocationBytes": str(row.allocation_bytes),
        "address": "0",
        "tfOpName": row.op_name,
        "stepId": str(step),
        "regionType": row.region_type,
        "dataType": row.data_type,
        "tensorShape": row.shape,
    }
