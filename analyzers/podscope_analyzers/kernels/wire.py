"""Kernels that read the protobuf wire format: structure by length, events into columns.

Every length is compared with what is left of the enclosing message before it is used, so that
no byte of a hostile file can lead outside of it. A kernel that meets bad bytes stops and
leaves the reason in ``report``: code, position, detail.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels.compiled import inner, kernel

Bytes = npt.NDArray[np.uint8]
Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt64 = np.uint64

# Codes in report[0].
CUT_NUMBER: Final = 1
LONG_NUMBER: Final = 2
BAD_FIELD: Final = 3
BAD_WIRE_TYPE: Final = 4
OVERRUN: Final = 5
CHANGED: Final = 6

# Every MARK_EVERY-th event's position is kept, so that one event is found without a walk
# over the line.
MARK_EVERY: Final = 64

_TIME_BOUND: Final = 1 << 61


@inner
def _signed(value: UInt64) -> int:
    """The int64 of the same bits."""
    return np.int64(value)  # type: ignore[return-value]  # numba's int64 is mypy's int


@inner
def _varint(buffer: Bytes, at: int, end: int) -> tuple[UInt64, int]:
    """Value and next position; -1 when it is cut off, -2 when it is too long."""
    if at >= end:
        return np.uint64(0), -1
    byte = buffer[np.uint64(at)]
    value = np.uint64(byte & 0x7F)
    at += 1
    shift = np.uint64(7)
    while byte >= 0x80:
        if shift > np.uint64(63):
            return np.uint64(0), -2
        if at >= end:
            return np.uint64(0), -1
        byte = buffer[np.uint64(at)]
        at += 1
        # The tenth byte has room for one bit.
        if shift == np.uint64(63) and byte > 1:
            return np.uint64(0), -2
        value |= np.uint64(byte & 0x7F) << shift
        shift += np.uint64(7)
    return value, at


@inner
def _fail(report: Int64s, code: int, at: int, detail: int) -> int:
    report[0] = code
    report[1] = at
    report[2] = detail
    return -1


@inner
def _number(report: Int64s, at: int, found: int) -> int:
    return _fail(report, CUT_NUMBER if found == -1 else LONG_NUMBER, at, 0)


@inner
def _field(buffer: Bytes, at: int, end: int, report: Int64s) -> tuple[int, int, int, int]:
    """Number, wire type, start of the payload, end of the field; the end is -1 on bad bytes."""
    key, payload = _varint(buffer, at, end)
    if payload < 0:
        return 0, 0, 0, _number(report, at, payload)
    number = _signed(key >> np.uint64(3))
    wire_type = _signed(key & np.uint64(7))
    if number == 0 or key > np.uint64(0xFFFFFFFF):
        return 0, 0, 0, _fail(report, BAD_FIELD, at, 0)
    if wire_type == 2:
        length, after = _varint(buffer, payload, end)
        if after < 0:
            return 0, 0, 0, _number(report, payload, after)
        if length > np.uint64(end - after):
            return 0, 0, 0, _fail(report, OVERRUN, at, number)
        return number, wire_type, after, after + _signed(length)
    if wire_type == 0:
        _, after = _varint(buffer, payload, end)
        if after < 0:
            return 0, 0, 0, _number(report, payload, after)
        return number, wire_type, payload, after
    if wire_type == 1 or wire_type == 5:
        after = payload + (8 if wire_type == 1 else 4)
        if after > end:
            return 0, 0, 0, _fail(report, OVERRUN, at, number)
        return number, wire_type, payload, after
    return 0, 0, 0, _fail(report, BAD_WIRE_TYPE, at, wire_type)


@inner
def _chosen(number: int, wire_type: int, mask: int) -> bool:
    return wire_type == 2 and number < 63 and (mask >> number) & 1 == 1


@kernel("void(Array(u1, 1, 'C', True), i8, i8, i8, i8[::1])")
def measure(buffer: Bytes, start: int, end: int, mask: int, report: Int64s) -> None:
    """Counts the length-delimited fields whose bit is set in ``mask``.

    ``report[3:]``: their count, their bytes with keys, where the first starts, where the
    last ends.
    """
    at = start
    count = 0
    size = 0
    first = end
    last = end
    while at < end:
        number, wire_type, _, after = _field(buffer, at, end, report)
        if after < 0:
            return
        if _chosen(number, wire_type, mask):
            if count == 0:
                first = at
            last = after
            count += 1
            size += after - at
        at = after
    report[3] = count
    report[4] = size
    report[5] = first
    report[6] = last


@kernel("void(Array(u1, 1, 'C', True), i8, i8, i8, i8[::1], i8[::1], i8[::1])")
def lift(
    buffer: Bytes, start: int, end: int, mask: int, starts: Int64s, ends: Int64s, report: Int64s
) -> None:
    """Where the payloads of the measured fields start and end."""
    at = start
    count = 0
    while at < end:
        number, wire_type, payload, after = _field(buffer, at, end, report)
        if after < 0:
            return
        if _chosen(number, wire_type, mask):
            if count == starts.size:
                _fail(report, CHANGED, at, 0)
                return
            starts[count] = payload
            ends[count] = after
            count += 1
        at = after


@kernel("void(Array(u1, 1, 'C', True), i8, i8, i8, b1, u1[::1], i8[::1])")
def gather(
    buffer: Bytes, start: int, end: int, mask: int, keep: bool, out: Bytes, report: Int64s
) -> None:
    """Copies the measured fields, or (``keep`` false) all others, one behind the other."""
    at = start
    filled = 0
    while at < end:
        number, wire_type, _, after = _field(buffer, at, end, report)
        if after < 0:
            return
        if _chosen(number, wire_type, mask) == keep:
            if after - at > out.size - filled:
                _fail(report, CHANGED, at, 0)
                return
            out[filled : filled + after - at] = buffer[at:after]
            filled += after - at
        at = after


@kernel("i8(Array(u1, 1, 'C', True), i8, i8, i8, i8[::1])")
def skip_events(buffer: Bytes, start: int, end: int, skip: int, report: Int64s) -> int:
    """Where the event field starts that follows ``skip`` others; -1 when there is none."""
    at = start
    while at < end:
        number, wire_type, _, after = _field(buffer, at, end, report)
        if after < 0:
            return -1
        if number == 4 and wire_type == 2:
            if skip == 0:
                return at
            skip -= 1
        at = after
    return -1


@inner
def _row(
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
def _slot(stat_id: int, low_slots: Int16s, high_ids: Int64s, high_slots: Int16s) -> int:
    slot: int = -1
    if np.uint64(stat_id) < np.uint64(low_slots.size):
        slot = low_slots[np.uint64(stat_id)]
    else:
        for i in range(high_ids.size):
            if high_ids[i] == stat_id:
                slot = high_slots[i]
    return slot


@inner
def _stat(buffer: Bytes, at: int, end: int, report: Int64s) -> tuple[int, int, int]:
    """Id, kind and raw value of an XStat; the kind is -1 on bad bytes."""
    stat_id = 0
    kind = 0
    raw = 0
    while at < end:
        # One-byte keys and small numbers are nearly all there is.
        number, wire_type, payload, after = _field(buffer, at, end, report)
        if after < 0:
            return 0, -1, 0
        if wire_type == 0:
            if number == 1:
                stat_id = _signed(_varint(buffer, payload, end)[0])
            elif number == 3 or number == 4 or number == 7:
                kind = number
                raw = _signed(_varint(buffer, payload, end)[0])
        elif wire_type == 1:
            if number == 2:
                kind = number
                bits = np.uint64(0)
                for i in range(8):
                    bits |= np.uint64(buffer[np.uint64(payload + i)]) << np.uint64(8 * i)
                raw = _signed(bits)
        elif wire_type == 2 and (number == 5 or number == 6 or number == 8):
            kind = number
            # The handle is where the key is: one number tells start and length.
            raw = at
        at = after
    return stat_id, kind, raw


@kernel(
    "void(Array(u1, 1, 'C', True), i8, i8, i8, i8, i4[::1], i8[::1], u8, i8,"
    " i2[::1], i8[::1], i2[::1], i4[::1], i8[::1], i8[::1], i8[::1], i8[::1],"
    " u1[:, ::1], i8[:, ::1], i8[::1])"
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
    kinds: npt.NDArray[np.uint8],
    raws: npt.NDArray[np.int64],
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
    stats = kinds.shape[0] > 0
    count = max(metadata.size, kinds.shape[1])
    event = 0
    last_id = 0
    last_row = _row(last_id, low, rows, keys, multiplier, missing)
    at = start
    while at < end:
        number, wire_type, payload, after = _field(buffer, at, end, report)
        if after < 0:
            return
        if number != 4 or wire_type != 2:
            at = after
            continue
        if event == count:
            _fail(report, CHANGED, at, 0)
            return
        metadata_id = 0
        offset = 0
        duration = 0
        times = 0
        inside = payload
        while inside < after:
            number, wire_type, body, behind = _field(buffer, inside, after, report)
            if behind < 0:
                return
            if wire_type == 0:
                if number <= 5 and number != 4:
                    value = _signed(_varint(buffer, body, after)[0])
                    if number == 1:
                        metadata_id = value
                    elif number == 2:
                        offset = value
                        times = 0
                    elif number == 3:
                        duration = value
                    else:
                        times = value
                        offset = 0
            elif stats and number == 4 and wire_type == 2:
                stat_id, kind, raw = _stat(buffer, body, behind, report)
                if kind < 0:
                    return
                slot = _slot(stat_id, low_slots, high_ids, high_slots)
                # Of a stat that repeats, the first counts.
                if slot >= 0 and kinds[slot, event] == 0:
                    kinds[slot, event] = kind
                    raws[slot, event] = raw
            inside = behind
        if fields:
            if metadata_id != last_id:
                last_id = metadata_id
                last_row = _row(metadata_id, low, rows, keys, multiplier, missing)
            metadata[event] = last_row
            # base_ps is within the bound, so that neither comparison overflows.
            if offset > _TIME_BOUND - base_ps:
                start_ps[event] = _TIME_BOUND
            elif offset < -_TIME_BOUND - base_ps:
                start_ps[event] = -_TIME_BOUND
            else:
                start_ps[event] = base_ps + offset
            duration_ps[event] = min(max(duration, 0), _TIME_BOUND)
            if times != 0:
                occurrences[event] = times
            if event % MARK_EVERY == 0:
                marks[event // MARK_EVERY] = at
        event += 1
        at = after
    if event != count:
        _fail(report, CHANGED, end, 0)


@inner
def _is_utf8(buffer: Bytes, at: int, end: int) -> bool:
    """Whether the bytes are UTF-8 by the table of RFC 3629: no surrogates, no long forms."""
    while at < end:
        byte = buffer[np.uint64(at)]
        at += 1
        if byte < 0x80:
            continue
        low = 0x80
        high = 0xBF
        if byte < 0xC2:
            return False
        if byte < 0xE0:
            more = 1
        elif byte < 0xF0:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        elif byte < 0xF5:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        else:
            return False
        if more > end - at:
            return False
        for _ in range(more):
            byte = buffer[np.uint64(at)]
            if byte < low or byte > high:
                return False
            low = 0x80
            high = 0xBF
            at += 1
    return True


BAD_TEXT: Final = 7


@kernel("void(Array(u1, 1, 'C', True), i8, i8, i8[::1])")
def check_line(buffer: Bytes, start: int, end: int, report: Int64s) -> None:
    """Walks every event and stat of an XLine.

    ``report[3:]``: events, stats, longest string or bytes value.
    """
    at = start
    while at < end:
        number, wire_type, payload, after = _field(buffer, at, end, report)
        if after < 0:
            return
        at = after
        if number != 4 or wire_type != 2:
            continue
        report[3] += 1
        inside = payload
        while inside < after:
            number, wire_type, body, behind = _field(buffer, inside, after, report)
            if behind < 0:
                return
            inside = behind
            if number != 4 or wire_type != 2:
                continue
            report[4] += 1
            while body < behind:
                number, wire_type, value, next_body = _field(buffer, body, behind, report)
                if next_body < 0:
                    return
                if wire_type == 2 and (number == 5 or number == 6 or number == 8):
                    if next_body - value > report[5]:
                        report[5] = next_body - value
                    if number == 5 and not _is_utf8(buffer, value, next_body):
                        _fail(report, BAD_TEXT, body, 0)
                        return
                body = next_body
