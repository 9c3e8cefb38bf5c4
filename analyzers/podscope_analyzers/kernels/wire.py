"""Kernels that read the protobuf wire format: fields by their keys, structure by length.

Every length is compared with what is left of the enclosing message before it is used, so that
no byte of a hostile file can lead outside of it. A kernel that meets bad bytes stops and
leaves the reason in ``report``: code, position, detail.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels.compiled import inner, kernel

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
UInt64 = np.uint64

# Codes in report[0].
CUT_NUMBER: Final = 1
LONG_NUMBER: Final = 2
BAD_FIELD: Final = 3
BAD_WIRE_TYPE: Final = 4
OVERRUN: Final = 5
CHANGED: Final = 6
BAD_TEXT: Final = 7


# Keys: field number and wire type in one.
EVENTS: Final = np.uint64(4 << 3 | 2)
METADATA_ID: Final = np.uint64(1 << 3)
STATS: Final = np.uint64(4 << 3 | 2)
STRING_VALUE: Final = np.uint64(5 << 3 | 2)


@inner
def signed(value: UInt64) -> int:
    """The int64 of the same bits."""
    return np.int64(value)  # type: ignore[return-value]  # numba's int64 is mypy's int


@inner
def _long_number(buffer: Bytes, at: int, end: int) -> tuple[UInt64, int]:
    """A number of two bytes or more and the position behind it; -1: cut off, -2: too long.

    Up to eight bytes are taken at once, without a branch on their count: the lengths of
    times are what a processor cannot predict.
    """
    if at + 8 <= buffer.size:
        word = np.uint64(0)
        for i in range(8):
            word |= np.uint64(buffer[np.uint64(at + i)]) << np.uint64(8 * i)
        # The lowest byte without its continuation bit is the last one.
        stops = ~word & np.uint64(0x8080808080808080)
        if stops != np.uint64(0):
            last = stops & (~stops + np.uint64(1))
            # last is 1 << (8 * k + 7): the product's top byte is k + 1.
            after = at + signed(
                ((last >> np.uint64(7)) * np.uint64(0x0102030405060708)) >> np.uint64(56)
            )
            if after > end:
                return np.uint64(0), -1
            # Seven bits of each byte, drawn together in pairs, fours and eights.
            word &= (last - np.uint64(1)) & np.uint64(0x7F7F7F7F7F7F7F7F)
            word = (word & np.uint64(0x007F007F007F007F)) | (
                (word & np.uint64(0x7F007F007F007F00)) >> np.uint64(1)
            )
            word = (word & np.uint64(0x00003FFF00003FFF)) | (
                (word & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)
            )
            word = (word & np.uint64(0x0FFFFFFF)) | (
                (word & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4)
            )
            return word, after
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        byte = buffer[np.uint64(at)]
        at += 1
        # The tenth byte has room for one bit.
        if shift == np.uint64(63) and byte > 1:
            return np.uint64(0), -2
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += np.uint64(7)
    return np.uint64(0), -1


@inner
def read_field(buffer: Bytes, at: int, end: int, report: Int64s) -> tuple[UInt64, int, int]:
    """Key, value and end of the field at ``at``; the end is -1 on bad bytes.

    The value is a varint's number (int64 bits), or where any other payload starts.
    """
    begin = at
    byte = buffer[np.uint64(at)]
    at += 1
    key = np.uint64(byte)
    if byte >= 0x80:
        key = np.uint64(byte & 0x7F)
        shift = np.uint64(7)
        while byte >= 0x80:
            if at >= end or shift > np.uint64(28):
                report[0] = CUT_NUMBER if at >= end else BAD_FIELD
                report[1] = begin
                return np.uint64(0), 0, -1
            byte = buffer[np.uint64(at)]
            at += 1
            key |= np.uint64(byte & 0x7F) << shift
            shift += np.uint64(7)
    if key < np.uint64(8) or key > np.uint64(0xFFFFFFFF):
        report[0] = BAD_FIELD
        report[1] = begin
        return np.uint64(0), 0, -1
    wire_type = key & np.uint64(7)
    if wire_type == np.uint64(0) or wire_type == np.uint64(2):
        if at >= end:
            report[0] = CUT_NUMBER
            report[1] = begin
            return np.uint64(0), 0, -1
        byte = buffer[np.uint64(at)]
        at += 1
        value = np.uint64(byte)
        if byte >= 0x80:
            value, at = _long_number(buffer, at - 1, end)
            if at < 0:
                report[0] = CUT_NUMBER if at == -1 else LONG_NUMBER
                report[1] = begin
                return np.uint64(0), 0, -1
        if wire_type == np.uint64(0):
            return key, signed(value), at
        if value > np.uint64(end - at):
            report[0] = OVERRUN
            report[1] = begin
            report[2] = signed(key >> np.uint64(3))
            return np.uint64(0), 0, -1
        return key, at, at + signed(value)
    after = at + 8 if wire_type == np.uint64(1) else at + 4
    if wire_type != np.uint64(1) and wire_type != np.uint64(5):
        report[0] = BAD_WIRE_TYPE
        report[1] = begin
        report[2] = signed(wire_type)
        return np.uint64(0), 0, -1
    if after > end:
        report[0] = OVERRUN
        report[1] = begin
        report[2] = signed(key >> np.uint64(3))
        return np.uint64(0), 0, -1
    return key, at, after


@inner
def _chosen(key: UInt64, mask: int) -> bool:
    number = signed(key >> np.uint64(3))
    length_delimited = key & np.uint64(7) == np.uint64(2)
    return bool(length_delimited and number < 63 and (mask >> number) & 1 == 1)


@inner
def fail(report: Int64s, code: int, at: int) -> None:
    """Leaves the reason why a kernel stops."""
    report[0] = code
    report[1] = at


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
        key, _, after = read_field(buffer, at, end, report)
        if after < 0:
            return
        if _chosen(key, mask):
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
        key, payload, after = read_field(buffer, at, end, report)
        if after < 0:
            return
        if _chosen(key, mask):
            if count == starts.size:
                fail(report, CHANGED, at)
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
        key, _, after = read_field(buffer, at, end, report)
        if after < 0:
            return
        if _chosen(key, mask) == keep:
            if after - at > out.size - filled:
                fail(report, CHANGED, at)
                return
            for i in range(after - at):
                out[np.uint64(filled + i)] = buffer[np.uint64(at + i)]
            filled += after - at
        at = after


@kernel("i8(Array(u1, 1, 'C', True), i8, i8, i8, i8[::1])")
def skip_events(buffer: Bytes, start: int, end: int, skip: int, report: Int64s) -> int:
    """Where the event field starts that follows ``skip`` others; -1 when there is none."""
    at = start
    while at < end:
        key, _, after = read_field(buffer, at, end, report)
        if after < 0:
            return -1
        if key == EVENTS:
            if skip == 0:
                return at
            skip -= 1
        at = after
    return -1


@kernel("void(Array(u1, 1, 'C', True), i8[::1], i8[::1], i8[::1], i8[::1])")
def entry_keys(buffer: Bytes, starts: Int64s, ends: Int64s, keys: Int64s, report: Int64s) -> None:
    """Keys of map entries whose payloads start and end so; 0 for an entry that has none."""
    for entry in range(starts.size):
        keys[entry] = 0
        at = starts[entry]
        while at < ends[entry]:
            key, value, after = read_field(buffer, at, ends[entry], report)
            if after < 0:
                return
            if key == METADATA_ID:
                keys[entry] = value
            at = after


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


@kernel("void(Array(u1, 1, 'C', True), i8, i8, i8[::1])")
def check_line(buffer: Bytes, start: int, end: int, report: Int64s) -> None:
    """Walks every event and stat of an XLine.

    ``report[3]``: their stats.
    """
    at = start
    while at < end:
        key, payload, after = read_field(buffer, at, end, report)
        if after < 0:
            return
        at = after
        if key != EVENTS:
            continue
        while payload < after:
            key, value, behind = read_field(buffer, payload, after, report)
            if behind < 0:
                return
            payload = behind
            if key != STATS:
                continue
            report[3] += 1
            while value < behind:
                key, content, next_value = read_field(buffer, value, behind, report)
                if next_value < 0:
                    return
                if key == STRING_VALUE and not _is_utf8(buffer, content, next_value):
                    fail(report, BAD_TEXT, value)
                    return
                value = next_value
