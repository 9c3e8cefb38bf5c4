"""What an XSpace reader needs of the bytes, by compiled kernels."""

from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels import wire as kernels
from podscope_analyzers.kernels.factorise import SEED, factorise, number_texts
from podscope_analyzers.xspace.columns import Int32s, Int64s
from podscope_analyzers.xspace.wire import DecodedLine, LineRequest, Span, WireError, too_many, walk

EVENTS: Final = 4
LOW_STAT_IDS: Final = 4096

_NO_INT64: Final = np.empty(0, np.int64)
_NO_INT32: Final = np.empty(0, np.int32)


def _raise(report: Int64s) -> None:
    """Raises what a kernel reported, if it did."""
    code, at, detail = (int(value) for value in report[:3])
    if code == 0:
        return
    problem = {
        kernels.CUT_NUMBER: "a number is cut off",
        kernels.LONG_NUMBER: "a number has more than 64 bits",
        kernels.BAD_FIELD: "a field has no valid number",
        kernels.BAD_WIRE_TYPE: f"a field has wire type {detail}, which no XSpace uses",
        kernels.OVERRUN: f"field {detail} reaches beyond its message",
        kernels.BAD_TEXT: "a string is not UTF-8; the file was changed after it was captured",
        kernels.CHANGED: "the bytes changed while they were read; copy the file first",
    }[code]
    raise WireError(problem, at)


def _mask(fields: frozenset[int]) -> int:
    return sum(1 << field for field in fields)


class BufferPayloads:
    """Payloads that stay in the file; the handle is where their field starts."""

    def __init__(self, buffer: npt.NDArray[np.uint8]) -> None:
        self._buffer = buffer

    def value(self, handle: int) -> bytes:
        """The bytes behind one handle."""
        _, _, _, start, end = next(walk(self._buffer.data, handle, self._buffer.size))
        return self._buffer[start:end].tobytes()

    def factorise(self, handles: Int64s) -> tuple[Int32s, list[bytes]]:
        """Equal payloads numbered from 0 in order of appearance."""
        handles = np.require(handles, np.int64, ["C", "W"])
        codes, distinct = np.empty(handles.shape, np.int32), np.empty(handles.shape, np.int64)
        hashes = np.empty(handles.shape, np.uint64)
        count = number_texts(self._buffer, handles, SEED, codes, distinct, hashes)
        return codes, [self.value(handle) for handle in distinct[:count].tolist()]

    def number(self, ids: Int64s) -> tuple[Int32s, list[int]]:
        """Equal ids numbered from 0 in order of appearance."""
        codes, distinct = factorise(ids)
        return codes, distinct.tolist()


class CompiledWire:
    """The compiled form: events go from bytes to arrays without an object between.

    Args:
        buffer: The XSpace's bytes.
    """

    def __init__(self, buffer: memoryview) -> None:
        array = np.frombuffer(buffer, np.uint8)
        # Kernels are compiled for read-only bytes; a writable buffer passes as one.
        array.flags.writeable = False
        self._buffer = array
        self._payloads = BufferPayloads(array)

    def _measure(self, span: Span, fields: frozenset[int]) -> tuple[int, int, int, int]:
        """Count and bytes of some fields, and the stretch they lie in."""
        report = np.zeros(8, np.int64)
        kernels.measure(self._buffer, *span, _mask(fields), report)
        _raise(report)
        count, size, first, last = (int(value) for value in report[3:7])
        return count, size, first, last

    def lift(self, span: Span, field: int, limit: int) -> list[Span]:
        """Payloads of a length-delimited field, in order."""
        fields = frozenset({field})
        count, _, first, _ = self._measure(span, fields)
        if count > limit:
            raise WireError(too_many(fields, limit), first)
        starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
        report = np.zeros(8, np.int64)
        kernels.lift(self._buffer, *span, _mask(fields), starts, ends, report)
        _raise(report)
        return list(zip(starts.tolist(), ends.tolist(), strict=True))

    def without(self, span: Span, fields: frozenset[int]) -> bytes:
        """The message without these length-delimited fields."""
        return self._split(span, fields, keep=False, limit=len(self._buffer))[0]

    def only(self, span: Span, fields: frozenset[int], limit: int) -> bytes:
        """The message with only these fields."""
        return self._split(span, fields, keep=True, limit=limit)[0]

    def line(self, span: Span, limit: int) -> tuple[bytes, int]:
        """A line without its events, and how many they are."""
        return self._split(span, frozenset({EVENTS}), keep=False, limit=limit)

    def _split(
        self, span: Span, fields: frozenset[int], *, keep: bool, limit: int
    ) -> tuple[bytes, int]:
        start, end = span
        count, size, first, last = self._measure(span, fields)
        if count > limit:
            raise WireError(too_many(fields, limit), first)
        buffer = self._buffer
        if size == last - first:
            # They lie in one piece, as every known tracer writes them: no second walk.
            if keep:
                return buffer[first:last].tobytes(), count
            return buffer[start:first].tobytes() + buffer[last:end].tobytes(), count
        out = np.empty(size if keep else end - start - size, np.uint8)
        report = np.zeros(8, np.int64)
        kernels.gather(buffer, start, end, _mask(fields), keep, out, report)
        _raise(report)
        return out.tobytes(), count

    def decode(self, request: LineRequest) -> DecodedLine:
        """Columns of a line."""
        n = request.count if request.fields else 0
        metadata, start, duration, occurrences = (
            np.empty(n, np.int32),
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            # Zeros that nobody writes to take no memory.
            np.zeros(n, np.int64),
        )
        marks = np.empty((n + kernels.MARK_EVERY - 1) // kernels.MARK_EVERY, np.int64)
        kinds = np.zeros((request.slot_count, request.count), np.uint8)
        raws = np.zeros((request.slot_count, request.count), np.int64)
        if request.count and (n or request.slot_count):
            low, rows, keys = _metadata_table(request.metadata_ids)
            low_slots, high_ids, high_slots = _stat_table(request)
            report = np.zeros(8, np.int64)
            kernels.decode(
                self._buffer,
                *request.span,
                request.base_ps,
                low,
                rows,
                keys,
                SEED,
                len(request.metadata_ids),
                low_slots,
                high_ids,
                high_slots,
                metadata,
                start,
                duration,
                occurrences,
                marks,
                kinds,
                raws,
                report,
            )
            _raise(report)
        return DecodedLine(
            metadata, start, duration, occurrences, kinds, raws, self._payloads, marks
        )

    def event(self, span: Span, index: int, marks: Int64s) -> bytes:
        """The XEvent message of one event."""
        start, end = span
        skip = index
        if len(marks):
            start, skip = int(marks[index // kernels.MARK_EVERY]), index % kernels.MARK_EVERY
        report = np.zeros(8, np.int64)
        at = kernels.skip_events(self._buffer, start, end, skip, report)
        _raise(report)
        return self._payloads.value(at)

    def check(self, span: Span) -> int:
        """Reads every event of a line; how many stats they have."""
        report = np.zeros(8, np.int64)
        kernels.check_line(self._buffer, *span, report)
        _raise(report)
        return int(report[3])


def _metadata_table(ids: Int64s) -> tuple[int, Int32s, Int64s]:
    """Lowest id, rows and keys as ``kernels.decode`` looks them up.

    A file chooses its ids, so no array is sized by one: ids close together are looked up by
    their distance from the lowest, any others by hash.
    """
    if not len(ids):
        return 0, _NO_INT32, _NO_INT64
    low, high = int(ids[0]), int(ids[-1])
    if high - low < 4 * len(ids) + 1024:
        rows = np.full(high - low + 1, len(ids), np.int32)
        rows[ids - low] = np.arange(len(ids), dtype=np.int32)
        return low, rows, _NO_INT64
    size = 1 << (2 * len(ids)).bit_length()
    rows, keys = np.full(size, -1, np.int32), np.zeros(size, np.int64)
    kernels.hash_ids(np.require(ids, np.int64, ["C", "W"]), SEED, rows, keys)
    return low, rows, keys


def _stat_table(
    request: LineRequest,
) -> tuple[npt.NDArray[np.int16], Int64s, npt.NDArray[np.int16]]:
    """Slots of small stat ids, other wanted ids, and their slots."""
    low = np.full(LOW_STAT_IDS if request.slots else 0, -1, np.int16)
    high: dict[int, int] = {}
    for stat_id, slot in request.slots.items():
        if 0 <= stat_id < len(low):
            low[stat_id] = slot
        else:
            high[stat_id] = slot
    return (
        low,
        np.fromiter(high.keys(), np.int64, len(high)),
        np.fromiter(high.values(), np.int16, len(high)),
    )
