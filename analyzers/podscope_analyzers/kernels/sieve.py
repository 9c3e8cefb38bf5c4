"""Kernels that read a line of events and keep few of them: those that say something themselves.

Most events of a host are calls of Python functions, which only lie around others. Both kernels
walk over all of them and keep the spans that are open on a stack, so that what is kept still
knows what lies around it.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels.compiled import inner, kernel
from podscope_analyzers.kernels.spans import Bools
from podscope_analyzers.kernels.wire import (
    BYTES_VALUE,
    CHANGED,
    DOUBLE_VALUE,
    DURATION,
    EVENTS,
    GZIP_VALUE,
    INT64_VALUE,
    METADATA_ID,
    OCCURRENCES,
    OFFSET,
    REF_VALUE,
    STATS,
    STRING_VALUE,
    TIME_BOUND,
    UINT64_VALUE,
    Bytes,
    Int16s,
    Int32s,
    Int64s,
    UInt64,
    fail,
    read_field,
    row_of,
    signed,
    slot_of,
)

UInt8s = npt.NDArray[np.uint8]

# Of so many events it is judged whether sifting pays.
_SAMPLE: Final = 1 << 16
DENSE: Final = -2
"""Instead of a count: nearly all events are kept."""

MARKER: Final = 254
CONTAINER: Final = 255


@inner
def _clipped(base_ps: int, offset: int) -> int:
    """Start of an event; ``base_ps`` is within the bound, so that no comparison overflows."""
    if offset > TIME_BOUND - base_ps:
        return TIME_BOUND
    if offset < -TIME_BOUND - base_ps:
        return -TIME_BOUND
    return base_ps + offset


@kernel(
    "i8(Array(u1, 1, 'C', True), i8, i8, i8, i8, i4[::1], i8[::1], u8, i8, i2[::1], i8[::1],"
    " i2[::1], u1[::1], i8, i8[::1], i8[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1],"
    " i4[::1], i8[::1], i8[::1], i8[::1], u1[:, ::1], i8[:, ::1], i8[::1])",
)
def sift(
    buffer: Bytes,
    start: int,
    end: int,
    base_ps: int,
    low: int,
    rows: Int32s,
    keys: Int64s,
    multiplier: UInt64,
    missing: int,
    low_slots: Int16s,
    high_ids: Int64s,
    high_slots: Int16s,
    wanted: UInt8s,
    aside: int,
    stack_start: Int64s,
    stack_end: Int64s,
    stack_kept: Int32s,
    stack_between: Int32s,
    events: Int32s,
    parent: Int32s,
    between: Int32s,
    metadata: Int32s,
    start_ps: Int64s,
    duration_ps: Int64s,
    occurrences: Int64s,
    kinds: UInt8s,
    raws: Int64s,
    report: Int64s,
) -> int:
    """Decodes the events of an XLine that have a wanted name or stat; see ``wire.decode``.

    ``wanted`` is 1 for every row of the metadata whose events are kept, ``aside`` the slot of the
    stat that takes an event out of the nesting, -1 for none. The stack has room for all events.

    Out, of the kept events: their indices, which of them is the innermost around each (-1 for
    none), how many events that are not kept are between the two, and the columns.

    Returns:
        How many events are kept; ``DENSE`` when nearly all of the first ones are.
    """
    event = 0
    kept = 0
    top = -1
    last_id = 0
    last_row = row_of(last_id, low, rows, keys, multiplier, missing)
    at = start
    while at < end:
        key, payload, after = read_field(buffer, at, end, report)
        if after < 0:
            return -1
        at = after
        if key != EVENTS:
            continue
        if event == events.size:
            fail(report, CHANGED, at)
            return -1
        if event == _SAMPLE and kept > _SAMPLE // 4 * 3:
            return DENSE
        metadata_id = 0
        offset = 0
        duration = 0
        times = 0
        matters = False
        while payload < after:
            key, value, behind = read_field(buffer, payload, after, report)
            if behind < 0:
                return -1
            payload = behind
            if key == METADATA_ID:
                metadata_id = value
            elif key == OFFSET:
                offset = value
                times = 0
            elif key == DURATION:
                duration = value
            elif key == OCCURRENCES:
                times = value
                offset = 0
            elif key == STATS:
                stat_id = 0
                kind = 0
                raw = 0
                while value < behind:
                    key, content, next_value = read_field(buffer, value, behind, report)
                    if next_value < 0:
                        return -1
                    if key == METADATA_ID:
                        stat_id = content
                    elif key == INT64_VALUE or key == UINT64_VALUE or key == REF_VALUE:  # noqa: SIM109  # as fast as numba gets
                        kind = signed(key >> np.uint64(3))
                        raw = content
                    elif key == DOUBLE_VALUE:
                        kind = 2
                        bits = np.uint64(0)
                        for i in range(8):
                            bits |= np.uint64(buffer[np.uint64(content + i)]) << np.uint64(8 * i)
                        raw = signed(bits)
                    elif key == STRING_VALUE or key == BYTES_VALUE or key == GZIP_VALUE:  # noqa: SIM109  # likewise
                        kind = signed(key >> np.uint64(3))
                        # The handle is where the key is: one number tells start and length.
                        raw = value
                    value = next_value
                slot = slot_of(stat_id, low_slots, high_ids, high_slots)
                # Of a stat that repeats, the first counts.
                if slot >= 0 and kinds[slot, kept] == 0:
                    kinds[slot, kept] = kind
                    raws[slot, kept] = raw
                    matters = matters or kind != 0
        if metadata_id != last_id:
            last_id = metadata_id
            last_row = row_of(metadata_id, low, rows, keys, multiplier, missing)
        begin = _clipped(base_ps, offset)
        duration = min(max(duration, 0), TIME_BOUND)
        finish = begin + duration
        is_aside = False
        if matters and aside >= 0:
            is_aside = kinds[aside, kept] == 4 and raws[aside, kept] != 0
        around = -1
        hops = 0
        if not is_aside:
            while top >= 0 and (stack_start[top] > begin or stack_end[top] < finish):
                top -= 1
            if top >= 0:
                around = stack_kept[top]
                hops = stack_between[top]
            top += 1
            stack_start[top] = begin
            stack_end[top] = finish
        if matters or wanted[last_row] != 0:
            events[kept] = event
            parent[kept] = around
            between[kept] = hops
            metadata[kept] = last_row
            start_ps[kept] = begin
            duration_ps[kept] = duration
            if times != 0:
                occurrences[kept] = times
            around = kept
            hops = -1
            kept += 1
        if not is_aside:
            stack_kept[top] = around
            stack_between[top] = hops + 1
        event += 1
    if event != events.size:
        fail(report, CHANGED, end)
        return -1
    return kept


@kernel(
    "i8(Array(u1, 1, 'C', True), i8, i8, i8, i8, i4[::1], i8[::1], u8, i8, u1[::1], i4[::1],"
    " i4[::1], b1[::1], b1[::1], i8, i8, i8[::1], i8[::1], i8[::1], i4[::1], i8[::1], i4[::1],"
    " u1[::1], i8[::1], i8[::1], i8[::1])",
)
def outermost(
    buffer: Bytes,
    start: int,
    end: int,
    base_ps: int,
    low: int,
    rows: Int32s,
    keys: Int64s,
    multiplier: UInt64,
    missing: int,
    kinds: UInt8s,
    events: Int32s,
    groups: Int32s,
    titled: Bools,
    apart: Bools,
    merged: int,
    depth: int,
    moments: Int64s,
    stack_start: Int64s,
    stack_end: Int64s,
    stack_group: Int32s,
    stack_inside: Int64s,
    group: Int32s,
    kind: UInt8s,
    start_ps: Int64s,
    end_ps: Int64s,
    report: Int64s,
) -> int:
    """Groups, kinds and spans of a line's events, without those that lie within many others.

    An event that was not kept by ``sift`` has the group of the event around it. Events of one
    kind that lie within another of that kind and their own group are left out, those around one
    of the ``moments`` (ascending) only when they lie within ``depth`` others.

    ``kinds`` says what every row of the metadata is, ``CONTAINER`` for events that are left out
    but may lie around others. Of the events that ``sift`` kept come their indices, groups (-1 for
    none), those that are a ``MARKER`` whatever their name, and those that are neither around
    others nor within them. ``merged`` is the kind. The stack has room for all events.

    Returns:
        How many events were found. ``report[3]`` is the earliest start of an event that was
        left out, ``report[4]`` the latest end.
    """
    event = 0
    known = 0
    found = 0
    nearest = 0
    top = -1
    last_id = 0
    last_row = row_of(last_id, low, rows, keys, multiplier, missing)
    at = start
    while at < end:
        key, payload, after = read_field(buffer, at, end, report)
        if after < 0:
            return -1
        at = after
        if key != EVENTS:
            continue
        if event == group.size:
            fail(report, CHANGED, at)
            return -1
        metadata_id = 0
        offset = 0
        duration = 0
        while payload < after:
            key, value, behind = read_field(buffer, payload, after, report)
            if behind < 0:
                return -1
            payload = behind
            if key == METADATA_ID:
                metadata_id = value
            elif key == OFFSET:
                offset = value
            elif key == DURATION:
                duration = value
            elif key == OCCURRENCES:
                offset = 0
        if metadata_id != last_id:
            last_id = metadata_id
            last_row = row_of(metadata_id, low, rows, keys, multiplier, missing)
        begin = _clipped(base_ps, offset)
        duration = min(max(duration, 0), TIME_BOUND)
        finish = begin + duration
        own = -1
        what = kinds[last_row]
        is_apart = False
        is_known = known < events.size and events[known] == event
        if is_known:
            own = groups[known]
            is_apart = apart[known]
            if titled[known]:
                what = MARKER
            known += 1
        inside = 0
        if not is_apart:
            while top >= 0 and (stack_start[top] > begin or stack_end[top] < finish):
                top -= 1
            if top >= 0:
                if not is_known:
                    own = stack_group[top]
                if own == stack_group[top]:
                    inside = stack_inside[top]
        counts = what == merged and duration > 0 and own >= 0
        is_left_out = counts and inside > 0
        if is_left_out and inside < depth:
            # The first moment after the begin.
            if nearest > 0 and moments[nearest - 1] > begin:
                low_at = 0
                while low_at < nearest:
                    middle = (low_at + nearest) // 2
                    if moments[middle] > begin:
                        nearest = middle
                    else:
                        low_at = middle + 1
            while nearest < moments.size and moments[nearest] <= begin:
                nearest += 1
            is_left_out = nearest >= moments.size or moments[nearest] >= finish
        if is_left_out:
            report[3] = min(report[3], begin)
            report[4] = max(report[4], finish)
        elif own >= 0 and what != CONTAINER:
            group[found] = own
            kind[found] = what
            start_ps[found] = begin
            end_ps[found] = finish
            found += 1
            if counts:
                inside += 1
        if not is_apart:
            top += 1
            stack_start[top] = begin
            stack_end[top] = finish
            stack_group[top] = own
            stack_inside[top] = inside
        event += 1
    if event != group.size:
        fail(report, CHANGED, end)
        return -1
    return found
