"""A kernel that reads a line once and keeps nothing of its events: what is there, and from when.

Preparing a device asks of its millions of operations only whether they are in order, what they
are called, and whether any carries a stat that speaks of causes; columns would be made, and
forgotten before the operations are analyzed.
"""

from podscope_analyzers.kernels.compiled import inner, kernel
from podscope_analyzers.kernels.events import (
    DURATION,
    OCCURRENCES,
    OFFSET,
    TIME_BOUND,
    Int16s,
    Int32s,
    UInt8s,
    clipped,
    row_of,
    slot_of,
)
from podscope_analyzers.kernels.wire import (
    CHANGED,
    EVENTS,
    METADATA_ID,
    STATS,
    Bytes,
    Int64s,
    UInt64,
    fail,
    read_field,
)


@inner
def _stat_id(buffer: Bytes, at: int, end: int, report: Int64s) -> tuple[int, int]:
    """The id of the stat in ``buffer[at:end]``, and -1 on bad bytes before it."""
    while at < end:
        key, content, at = read_field(buffer, at, end, report)
        if at < 0:
            return 0, -1
        if key == METADATA_ID:
            return content, at
    return 0, at


@kernel(
    "i8(Array(u1, 1, 'C', True), i8, i8, i8, i8, i4[::1], i8[::1], u8, i8,"
    " i2[::1], i8[::1], i2[::1], i8[::1], i8[::1], u1[::1], i8[::1])",
)
def survey(
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
    first_ps: Int64s,
    last_ps: Int64s,
    present: UInt8s,
    report: Int64s,
) -> int:
    """Walks over the events of the XLine in ``buffer[start:end]``; see ``events.decode``.

    Of a stat, what follows its id is not looked at.

    Out: the earliest start and the latest end of the events of every row, shape (m + 1,), all
    latest and earliest before; 1 for every slot of which an event has the stat, zeros before.

    Returns:
        1 when the events are in natural order (see ``spans.natural_order``), else 0.
    """
    is_natural = 1
    before_ps = -TIME_BOUND
    before_duration = TIME_BOUND
    last_id = 0
    last_row = row_of(last_id, low, rows, keys, multiplier, missing)
    at = start
    while at < end:
        key, payload, after = read_field(buffer, at, end, report)
        if after < 0:
            return 0
        at = after
        if key != EVENTS:
            continue
        metadata_id = 0
        offset = 0
        duration = 0
        while payload < after:
            key, value, behind = read_field(buffer, payload, after, report)
            if behind < 0:
                return 0
            payload = behind
            if key == METADATA_ID:
                metadata_id = value
            elif key == OFFSET:
                offset = value
            elif key == DURATION:
                duration = value
            elif key == OCCURRENCES:
                offset = 0
            elif key == STATS and present.size > 0:
                stat_id, behind = _stat_id(buffer, value, behind, report)
                if behind < 0:
                    return 0
                slot = slot_of(stat_id, low_slots, high_ids, high_slots)
                if slot >= 0:
                    present[slot] = 1
        if metadata_id != last_id:
            last_id = metadata_id
            last_row = row_of(metadata_id, low, rows, keys, multiplier, missing)
        offset = clipped(base_ps, offset)
        duration = min(max(duration, 0), TIME_BOUND)
        if offset < before_ps or (offset == before_ps and duration > before_duration):
            is_natural = 0
        before_ps = offset
        before_duration = duration
        if last_row < 0 or last_row >= first_ps.size:
            fail(report, CHANGED, at)
            return 0
        first_ps[last_row] = min(first_ps[last_row], offset)
        last_ps[last_row] = max(last_ps[last_row], offset + duration)
    return is_natural
