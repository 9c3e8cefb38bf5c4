"""Kernels that read the events of a line: fields and wanted stats into columns."""

from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels.compiled import inner, kernel
from podscope_analyzers.kernels.wire import (
    CHANGED,
    EVENTS,
    METADATA_ID,
    STATS,
    STRING_VALUE,
    Bytes,
    Int64s,
    UInt64,
    fail,
    read_field,
    signed,
)

UInt8s = npt.NDArray[np.uint8]
Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]

# Every MARK_EVERY-th event's position is kept, so that one event is found without a walk
# over the line.
MARK_EVERY: Final = 64

TIME_BOUND: Final = 1 << 61

# Keys: field number and wire type in one.
OFFSET: Final = np.uint64(2 << 3)
DURATION: Final = np.uint64(3 << 3)
OCCURRENCES: Final = np.uint64(5 << 3)
DOUBLE_VALUE: Final = np.uint64(2 << 3 | 1)
UINT64_VALUE: Final = np.uint64(3 << 3)
INT64_VALUE: Final = np.uint64(4 << 3)
BYTES_VALUE: Final = np.uint64(6 << 3 | 2)
REF_VALUE: Final = np.uint64(7 << 3)
GZIP_VALUE: Final = np.uint64(8 << 3 | 2)


@inner
def row_of(
    metadata_id: int, low: int, rows: Int32s, keys: Int64s, multiplier: UInt64, missing: int
) -> int:
    """Row of a metadata id: by its distance from the lowest, or by hash."""
    if keys.size == 0:
        distance = np.uint64(metadata_id) - np.uint64(low)
        row: int = missing
        if distance < np.uint64(rows.size):
            row = rows[distance]
        return row
    slot = (np.uint64(metadata_id) * multiplier) >> np.uint64(32)
    bound = np.uint64(keys.size - 1)
    slot &= bound
    while rows[slot] >= 0 and keys[slot] != metadata_id:
        slot = (slot + np.uint64(1)) & bound
    row = rows[slot]
    return row if row >= 0 else missing


@kernel("void(i8[::1], u8, i4[::1], i8[::1])")
def hash_ids(ids: Int64s, multiplier: UInt64, rows: Int32s, keys: Int64s) -> None:
    """Fills the hash table of ``decode``; its size is a power of two above twice the ids."""
    bound = np.uint64(keys.size - 1)
    for i in range(ids.size):
        slot = ((np.uint64(ids[i]) * multiplier) >> np.uint64(32)) & bound
        while rows[slot] >= 0:
            slot = (slot + np.uint64(1)) & bound
        rows[slot] = i
        keys[slot] = ids[i]


@inner
def slot_of(stat_id: int, low_slots: Int16s, high_ids: Int64s, high_slots: Int16s) -> int:
    """Slot of a stat id, -1 for one that is not wanted."""
    slot: int = -1
    if np.uint64(stat_id) < np.uint64(low_slots.size):
        slot = low_slots[np.uint64(stat_id)]
    else:
        for i in range(high_ids.size):
            if high_ids[i] == stat_id:
                slot = high_slots[i]
    return slot


@inner
def clipped(base_ps: int, offset: int) -> int:
    """Start of an event; ``base_ps`` is within the bound, so that no comparison overflows."""
    if offset > TIME_BOUND - base_ps:
        return TIME_BOUND
    if offset < -TIME_BOUND - base_ps:
        return -TIME_BOUND
    return base_ps + offset


@inner
def read_event(
    buffer: Bytes,
    at: int,
    end: int,
    low_slots: Int16s,
    high_ids: Int64s,
    high_slots: Int16s,
    column: int,
    kinds: UInt8s,
    raws: Int64s,
    report: Int64s,
) -> tuple[int, int, int, int, int]:
    """Metadata id, offset, duration and occurrences of the XEvent in ``buffer[at:end]``.

    The last number says how many wanted stats it has, -1 on bad bytes. Their values go into a
    column of ``kinds`` and ``raws``, shape (slots, n), zeros before; see ``decode`` for the slots.
    """
    stats = kinds.shape[0] > 0
    metadata_id = 0
    offset = 0
    duration = 0
    times = 0
    found = 0
    while at < end:
        key, value, behind = read_field(buffer, at, end, report)
        if behind < 0:
            return 0, 0, 0, 0, -1
        at = behind
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
        elif stats and key == STATS:
            stat_id = 0
            kind = 0
            raw = 0
            while value < behind:
                key, content, next_value = read_field(buffer, value, behind, report)
                if next_value < 0:
                    return 0, 0, 0, 0, -1
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
            if slot >= 0 and kinds[slot, column] == 0:
                kinds[slot, column] = kind
                raws[slot, column] = raw
                found += 1 if kind != 0 else 0
    return metadata_id, offset, duration, times, found


@kernel(
    "void(Array(u1, 1, 'C', True), i8, i8, i8, i8, i4[::1], i8[::1], u8, i8,"
    " i2[::1], i8[::1], i2[::1], i4[::1], i8[::1], i8[::1], i8[::1], i8[::1],"
    " u1[:, ::1], i8[:, ::1], i8[::1])",
)
def decode(
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
    metadata: Int32s,
    start_ps: Int64s,
    duration_ps: Int64s,
    occurrences: Int64s,
    marks: Int64s,
    kinds: UInt8s,
    raws: Int64s,
    report: Int64s,
) -> None:
    """Decodes the events of the XLine in ``buffer[start:end]``.

    ``base_ps`` is added to every offset. ``rows`` holds the row of a metadata id by its
    distance from ``low`` or, when ``keys`` is not empty, by hash slot (-1 for none), with
    the id itself in ``keys``; ``multiplier`` is the hash's, odd; ``missing`` the row of an
    unknown id. ``low_slots`` holds the slot of small stat ids (-1 for those that are not
    wanted), ``high_ids`` and ``high_slots`` the others.

    Out: the columns, of length 0 when only stats are wanted; ``marks``, where every
    MARK_EVERY-th event field starts; ``kinds`` and ``raws``, shape (slots, n), zeros before.
    """
    fields = metadata.size > 0
    count = max(metadata.size, kinds.shape[1])
    event = 0
    last_id = 0
    last_row = row_of(last_id, low, rows, keys, multiplier, missing)
    at = start
    while at < end:
        key, payload, after = read_field(buffer, at, end, report)
        if after < 0:
            return
        if key != EVENTS:
            at = after
            continue
        if event == count:
            fail(report, CHANGED, at)
            return
        metadata_id, offset, duration, times, found = read_event(
            buffer,
            payload,
            after,
            low_slots,
            high_ids,
            high_slots,
            event,
            kinds,
            raws,
            report,
        )
        if found < 0:
            return
        if fields:
            if metadata_id != last_id:
                last_id = metadata_id
                last_row = row_of(metadata_id, low, rows, keys, multiplier, missing)
            metadata[event] = last_row
            start_ps[event] = clipped(base_ps, offset)
            duration_ps[event] = min(max(duration, 0), TIME_BOUND)
            if times != 0:
                occurrences[event] = times
            if event % MARK_EVERY == 0:
                marks[event // MARK_EVERY] = at
        event += 1
        at = after
    if event != count:
        fail(report, CHANGED, end)
