"""Kernels that number equal values: codes for ids and for texts."""

import os
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels.compiled import inner, kernel
from podscope_analyzers.kernels.spans import Int32s, Int64s, writable_int64s

UInt64 = np.uint64
UInt64s = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

# A file cannot be written to make all its ids collide when it does not know this number.
SEED: Final = np.uint64(int.from_bytes(os.urandom(8)) | 1)

# Slots of the first table; half of them are used at most.
_FIRST_ROOM: Final = 1024


@inner
def _mix(value: UInt64, seed: UInt64) -> UInt64:
    value = (value ^ (value >> np.uint64(32))) * seed
    value = (value ^ (value >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return value ^ (value >> np.uint64(32))


@kernel("void(i8[::1], u8, i4[::1], i4[::1], i8[::1], i8[::1])")
def _number_ids(
    ids: Int64s, seed: UInt64, table: Int32s, codes: Int32s, distinct: Int64s, progress: Int64s
) -> None:
    """Fills codes and the distinct ids, until the table is too full for more.

    Args:
        ids: Shape (n,), as are ``codes`` and ``distinct``.
        seed: Of the hashes.
        table: All -1; its size is a power of two.
        codes: Filled.
        distinct: Filled.
        progress: How many ids were numbered, and how many are distinct: where it goes on, and
            how far it came.
    """
    bound = np.uint64(table.size - 1)
    count = progress[1]
    for code in range(count):
        slot = _mix(np.uint64(distinct[code]), seed) & bound
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & bound
        table[slot] = code
    at = progress[0]
    while at < ids.size and 2 * count < table.size:
        value = ids[at]
        # Runs are common and need no look-up.
        if at > 0 and value == ids[at - 1]:
            codes[at] = codes[at - 1]
            at += 1
            continue
        slot = _mix(np.uint64(value), seed) & bound
        while table[slot] >= 0 and distinct[table[slot]] != value:
            slot = (slot + np.uint64(1)) & bound
        if table[slot] < 0:
            table[slot] = count
            distinct[count] = value
            count += 1
        codes[at] = table[slot]
        at += 1
    progress[0] = at
    progress[1] = count


def _filled(size: int, number: Callable[[Int32s, Int64s], None]) -> int:
    """Numbers so many items with ever larger tables; returns how many are distinct."""
    progress = np.zeros(2, np.int64)
    room = _FIRST_ROOM
    while progress[0] < size:
        number(np.full(room, -1, np.int32), progress)
        room *= 4
    return int(progress[1])


def factorise(ids: Int64s) -> tuple[Int32s, Int64s]:
    """Equal ids numbered from 0 in order of appearance.

    Args:
        ids: Any int64 values, shape (n,).

    Returns:
        Codes, shape (n,), int32; the distinct ids by code, shape (k,).
    """
    values = writable_int64s(ids)
    codes, distinct = np.empty(values.shape, np.int32), np.empty(values.shape, np.int64)
    count = _filled(
        values.size,
        lambda table, progress: _number_ids(values, SEED, table, codes, distinct, progress),
    )
    return codes, distinct[:count].copy()


@inner
def _int(byte: np.uint8) -> int:
    return np.int64(byte)  # type: ignore[return-value]  # numba's int64 is mypy's int


@inner
def _text(buffer: Bytes, at: int) -> tuple[int, int]:
    """Start and end of the payload of the field at ``at``, which was checked before."""
    while buffer[np.uint64(at)] >= 0x80:
        at += 1
    at += 1
    length = 0
    shift = 0
    byte = buffer[np.uint64(at)]
    while byte >= 0x80:
        length |= _int(byte & 0x7F) << shift
        shift += 7
        at += 1
        byte = buffer[np.uint64(at)]
    length |= _int(byte) << shift
    return at + 1, at + 1 + length


@inner
def _hash_text(buffer: Bytes, start: int, end: int, seed: UInt64) -> UInt64:
    value = np.uint64(end - start) ^ seed
    at = start
    while at + 8 <= end:
        word = np.uint64(0)
        for i in range(8):
            word |= np.uint64(buffer[np.uint64(at + i)]) << np.uint64(8 * i)
        value = _mix(value ^ word, seed)
        at += 8
    word = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        word |= np.uint64(buffer[np.uint64(at)]) << shift
        shift += np.uint64(8)
        at += 1
    return _mix(value ^ word, seed)


@inner
def _same_text(buffer: Bytes, a: int, b: int) -> bool:
    start, end = _text(buffer, a)
    other, other_end = _text(buffer, b)
    if end - start != other_end - other:
        return False
    for i in range(end - start):
        if buffer[np.uint64(start + i)] != buffer[np.uint64(other + i)]:
            return False
    return True


@kernel("void(Array(u1, 1, 'C', True), i8[::1], u8, i4[::1], i4[::1], i8[::1], u8[::1], i8[::1])")
def _number_texts(
    buffer: Bytes,
    handles: Int64s,
    seed: UInt64,
    table: Int32s,
    codes: Int32s,
    distinct: Int64s,
    hashes: UInt64s,
    progress: Int64s,
) -> None:
    """As ``_number_ids``, of texts; fills the handle and hash of each distinct one."""
    bound = np.uint64(table.size - 1)
    count = progress[1]
    for code in range(count):
        slot = hashes[code] & bound
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & bound
        table[slot] = code
    at = progress[0]
    while at < handles.size and 2 * count < table.size:
        start, end = _text(buffer, handles[at])
        value = _hash_text(buffer, start, end, seed)
        slot = value & bound
        while table[slot] >= 0:
            code = table[slot]
            if hashes[code] == value and _same_text(buffer, distinct[code], handles[at]):
                break
            slot = (slot + np.uint64(1)) & bound
        if table[slot] < 0:
            table[slot] = count
            distinct[count] = handles[at]
            hashes[count] = value
            count += 1
        codes[at] = table[slot]
        at += 1
    progress[0] = at
    progress[1] = count


def factorise_texts(buffer: Bytes, handles: Int64s) -> tuple[Int32s, Int64s]:
    """Equal texts numbered from 0 in order of appearance.

    Args:
        buffer: The bytes, read-only or not.
        handles: Where the length-delimited fields start, each checked before, shape (n,).

    Returns:
        Codes, shape (n,), int32; the handle of the first of each distinct text, shape (k,).
    """
    values = writable_int64s(handles)
    codes, distinct = np.empty(values.shape, np.int32), np.empty(values.shape, np.int64)
    hashes = np.empty(values.shape, np.uint64)
    count = _filled(
        values.size,
        lambda table, progress: _number_texts(
            buffer, values, SEED, table, codes, distinct, hashes, progress
        ),
    )
    return codes, distinct[:count].copy()
