"""What allocators did during a capture: how much was in use when, and what the peak was made of."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from podscope_analyzers.allocations import Allocations
from podscope_analyzers.allocator_columns import (
    ALLOCATOR_COLUMNS,
    GROWTH_COLUMNS,
    MODULE_COLUMNS,
    MOMENT_COLUMNS,
    PEAK_COLUMNS,
    SHORTAGE_COLUMNS,
    SHRINK_COLUMNS,
    SURVIVOR_COLUMNS,
    TIMELINE_COLUMNS,
)
from podscope_analyzers.allocator_profile import STACK, Active, AllocatorProfile
from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.memory_growth import Growth, Survivor, growth_of, survivors
from podscope_analyzers.memory_shortage import Shortage, advice_for, shortages
from podscope_analyzers.reasons import NO_ALLOCATIONS
from podscope_analyzers.result import Cell, Reason, Scope, Table, ToolResult

NAME: Final = "memory_profile"
VERSION: Final = 3
PARAMETERS: Final = {
    "allocator": "one allocator; all without it",
    "start_ms": "start of the timeline, from the capture's start",
    "end_ms": "end of the timeline",
    "points": "into how many parts the timeline is divided: 1 to 5000, 200 without it",
    "at_ms": "a moment whose memory is broken down as the peak's is",
}

_POINTS: Final = 200
_MAX_POINTS: Final = 5000
_SAMPLES: Final = 1000
_MAX_ROWS: Final = 2000
_MAX_MODULES: Final = 5000
_NAMED_OPERATIONS: Final = 5
_PS_PER_MS: Final = 1_000_000_000
_UINT64: Final = 1 << 64


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """The allocators in our own schema; times count from the capture's start."""
    events = stats.allocations
    names = _chosen(events, parameters)
    begin, end = _window(events, parameters)
    points = int(_number(parameters, "points", _POINTS))
    if not 1 <= points <= _MAX_POINTS:
        msg = f"points must be 1 to {_MAX_POINTS}, not {points}"
        raise ParameterError(msg)
    profiles = [AllocatorProfile(events, name, "start_ps") for name in names]
    moments = _moments(profiles, parameters)
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
    modules.sort(key=lambda row: float(row[2] or 0.0))
    modules_left_out = max(len(modules) - _MAX_MODULES, 0)
    growths = [growth_of(one) for one in profiles]
    told = (*stats.diagnostics.errors, *stats.diagnostics.warnings)
    found = [
        one
        for one in shortages(events, profiles, told)
        if not parameters.get("allocator") or one.allocator in ("", *names)
    ]
    tables = {
        "allocators": Table(ALLOCATOR_COLUMNS, [_summary_row(one) for one in profiles]),
        "timeline": Table(
            TIMELINE_COLUMNS,
            [row for one in profiles for row in _timeline(one, begin, end, points)],
        ),
        "peak_allocations": Table(
            PEAK_COLUMNS,
            [
                _peak_row(one.name, row)
                for one in profiles
                for row in one.breakdown_at(one.peak_place)[:_MAX_ROWS]
            ],
        ),
        "moment": Table(MOMENT_COLUMNS, [_moment_row(one, at) for one, at in moments]),
        "moment_allocations": Table(
            PEAK_COLUMNS,
            [
                _peak_row(one.name, row)
                for one, at in moments
                for row in one.breakdown_at(at)[:_MAX_ROWS]
            ],
        ),
        "growth": Table(GROWTH_COLUMNS, [*map(_growth_row, profiles, growths)]),
        "survivors": Table(
            SURVIVOR_COLUMNS,
            [
                _survivor_row(one.name, row)
                for one in profiles
                for row in survivors(one)[:_MAX_ROWS]
            ],
        ),
        "shortages": Table(SHORTAGE_COLUMNS, [_shortage_row(one) for one in found]),
        "to_shrink": Table(SHRINK_COLUMNS, list(_shrink_rows(found[0])) if found else []),
        "modules": Table(MODULE_COLUMNS, modules[:_MAX_MODULES] if profiles else []),
    }
    reasons = [] if profiles or found else [NO_ALLOCATIONS]
    if events.left_out:
        message = f"{events.left_out} allocator events were too many to be kept."
        reasons.append(Reason("events_left_out", message, "Capture for a shorter time."))
    if modules_left_out and profiles:
        message = f"{modules_left_out} later runs of programs in this window are not listed."
        reasons.append(Reason("rows_left_out", message, "Narrow it with start_ms and end_ms."))
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if profiles or found else "empty",
        result={
            "leak_hints": [
                _leak_hint(one, growth)
                for one, growth in zip(profiles, growths, strict=True)
                if growth.verdict == "growing"
            ],
            "out_of_memory": _out_of_memory(found[0]) if found else None,
            **{name: table.to_json() for name, table in tables.items()},
        },
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
    begin = int(_number(parameters, "start_ms", first / _PS_PER_MS) * _PS_PER_MS)
    end = int(_number(parameters, "end_ms", last / _PS_PER_MS) * _PS_PER_MS)
    # The default end is the last event's own time, which rounding must not cut off.
    end = end if parameters.get("end_ms") else max(end, last)
    begin = begin if parameters.get("start_ms") else min(begin, first)
    if begin > end:
        msg = f"start_ms {begin / _PS_PER_MS:g} lies after end_ms {end / _PS_PER_MS:g}"
        raise ParameterError(msg)
    return begin, end


def _moments(
    profiles: Sequence[AllocatorProfile], parameters: Mapping[str, str]
) -> list[tuple[AllocatorProfile, int]]:
    """The last event up to the chosen moment, of every allocator that has one by then."""
    if not parameters.get("at_ms", "").strip():
        return []
    # Rounded: what a page prints of an event's own time must not fall before it.
    at = round(_number(parameters, "at_ms", 0.0) * _PS_PER_MS)
    places = [(one, int(np.searchsorted(one.time_ps, at, side="right")) - 1) for one in profiles]
    return [(one, place) for one, place in places if place >= 0]


def _moment_row(one: AllocatorProfile, place: int) -> list[Cell]:
    row = int(one.rows[place])
    return [
        one.name,
        int(one.time_ps[place]) / _PS_PER_MS,
        int(one.used_bytes[place]),
        one.number("stack_bytes", row),
        one.number("heap_bytes", row),
        one.number("free_bytes", row) if one.is_free_known else None,
        one.number("cached_bytes", row),
        _ratio(one.events.columns["fragmentation"][row]),
    ]


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
        one.number("free_bytes", peak) if one.is_free_known else None,
        one.number("cached_bytes", peak),
        _ratio(one.events.columns["fragmentation"][peak]),
        # It never falls, but lines are not in time order: the last event's need not be the latest.
        int(one.events.columns["lifetime_peak_bytes"][one.rows].max()),
        one.known_capacity_bytes,
    ]


def _ratio(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _timeline(one: AllocatorProfile, begin: int, end: int, points: int) -> Iterator[list[Cell]]:
    """Least and most of every part of the window in which something happened."""
    inside = np.flatnonzero((one.time_ps >= begin) & (one.time_ps <= end))
    if not len(inside):
        return
    width = max(1.0, (end - begin) / points)
    number = np.minimum(((one.time_ps[inside] - begin) / width).astype(np.int64), points - 1)
    first = np.flatnonzero(np.diff(number, prepend=-1))
    counts = np.diff(first, append=len(inside))
    columns, rows, used = one.events.columns, one.rows[inside], one.used_bytes[inside]
    most = np.maximum.reduceat(used, first)
    # Of equally high ones the first.
    highest = np.flatnonzero(used == np.repeat(most, counts))
    _, at = np.unique(np.repeat(np.arange(len(first)), counts)[highest], return_index=True)
    figures = zip(
        number[first].tolist(),
        counts.tolist(),
        np.minimum.reduceat(used, first).tolist(),
        most.tolist(),
        np.minimum.reduceat(columns["free_bytes"][rows], first).tolist(),
        np.maximum.reduceat(columns["stack_bytes"][rows], first).tolist(),
        np.maximum.reduceat(columns["fragmentation"][rows], first).tolist(),
        inside[highest[at]].tolist(),
        strict=True,
    )
    for bucket, count, least, peak, free, stack, fragmentation, place in figures:
        yield [
            one.name,
            (begin + bucket * width) / _PS_PER_MS,
            (begin + (bucket + 1) * width) / _PS_PER_MS,
            count,
            least,
            peak,
            free if one.is_free_known else None,
            stack,
            _ratio(fragmentation),
            one.described(place)[0],
        ]


def _growth_row(one: AllocatorProfile, growth: Growth) -> list[Cell]:
    levels = growth.level_bytes
    free = one.number("free_bytes", one.peak_row)
    is_growing = growth.verdict == "growing"
    known = len(levels) > 0
    return [
        one.name,
        growth.verdict,
        len(levels),
        int(levels[0]) if known else None,
        int(levels[-1]) if known else None,
        growth.bytes_per_step if growth.verdict != "too_few_steps" else None,
        growth.total_bytes / one.peak_bytes if known and one.peak_bytes else None,
        growth.noise_bytes if growth.verdict != "too_few_steps" else None,
        growth.p_value if growth.verdict != "too_few_steps" else None,
        int(free / growth.bytes_per_step) if is_growing and free else None,
    ]


def _leak_hint(one: AllocatorProfile, growth: Growth) -> dict[str, Any]:
    """What grows, by how much, and what the steps left behind."""
    left = [found for found in survivors(one) if found.steps > 1]
    names = list(dict.fromkeys(found.what.op_name for found in left if found.what.op_name))
    sentence = (
        f"{one.name}: over {len(growth.steps)} steps what stays in use grew by "
        f"{growth.total_bytes:,.0f} bytes, {growth.bytes_per_step:,.0f} a step."
    )
    if left:
        sentence += (
            f" {sum(found.what.occurrences for found in left)} allocations of these steps were "
            "still in use at the end; see survivors."
        )
    return {
        "allocator": one.name,
        "growth_per_step_bytes": growth.bytes_per_step,
        "steps": len(growth.steps),
        "operations": names[:_NAMED_OPERATIONS],
        "sentence": sentence,
    }


def _survivor_row(allocator: str, one: Survivor) -> list[Cell]:
    what = one.what
    return [
        allocator,
        what.op_name,
        what.allocation_bytes,
        what.occurrences,
        one.steps,
        what.total_bytes,
        what.region_type,
        what.data_type,
        what.shape,
    ]


def _out_of_memory(one: Shortage) -> dict[str, Any]:
    names = [column.id for column in SHORTAGE_COLUMNS]
    return {
        **dict(zip(names, _shortage_row(one), strict=True)),
        "advice": advice_for(one),
    }


def _shortage_row(one: Shortage) -> list[Cell]:
    return [
        one.kind,
        one.allocator,
        None if one.start_ps is None else one.start_ps / _PS_PER_MS,
        one.requested_bytes,
        one.free_bytes,
        one.cached_bytes,
        one.used_bytes,
        one.capacity_bytes,
        one.missing_bytes,
        one.is_fragmented,
        one.op_name,
        one.message,
    ]


def _shrink_rows(one: Shortage) -> Iterator[list[Cell]]:
    """The largest that were in use; so many of them as would have been enough are marked."""
    total = sum(row.total_bytes for row in one.in_use)
    before = 0
    for row in one.in_use[:_MAX_ROWS]:
        together = before + row.total_bytes
        missing = one.missing_bytes
        yield [
            one.allocator,
            row.op_name,
            row.shape,
            row.data_type,
            row.region_type,
            row.occurrences,
            row.total_bytes,
            row.total_bytes / total if total else None,
            together,
            None if missing is None else together >= missing,
        ]
        before = together


def _peak_row(allocator: str, row: Active) -> list[Cell]:
    return [
        allocator,
        row.op_name,
        row.allocation_bytes,
        row.requested_bytes,
        row.occurrences,
        row.total_bytes,
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


def _proto_double(value: float) -> float | str:
    """A number as the JSON of protocol buffers writes it: an allocator of nothing divides by 0."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _allocator_json(events: Allocations, name: str) -> dict[str, Any]:
    one = AllocatorProfile(events, name, "offset_ps")
    recorded: list[dict[str, Any]] = []
    active: list[dict[str, str]] = []
    found = one.active()
    # Numbered as they are made, what is not told apart before the stack, whatever their sizes.
    special = sorted((row for row in found if row.row is None), key=_is_stack)
    for row in found:
        if row.row is None:
            number = special.index(row)
            places = (-number - 1, number)
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


def _is_stack(row: Active) -> bool:
    return row.op_name == STACK


def _stats_json(one: AllocatorProfile, row: int, peak_bytes: int) -> dict[str, Any]:
    return {
        "stackReservedBytes": str(one.number("stack_bytes", row)),
        "heapAllocatedBytes": str(one.number("heap_bytes", row)),
        "freeMemoryBytes": str(one.number("free_bytes", row)),
        "fragmentation": _proto_double(float(one.events.columns["fragmentation"][row])),
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
