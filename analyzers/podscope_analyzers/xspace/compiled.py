"""What an XSpace reader needs of the bytes, by compiled kernels."""

import mmap
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels import events, sieve, survey
from podscope_analyzers.kernels import wire as kernels
from podscope_analyzers.kernels.factorise import SEED, factorise, factorise_texts
from podscope_analyzers.xspace.columns import Int32s, Int64s, UInt8s
from podscope_analyzers.xspace.wire import (
    DecodedLine,
    InnerRequest,
    InnerSpans,
    LineRequest,
    OuterEvents,
    SiftedEvents,
    Span,
    SurveyedLine,
    WireError,
    too_many,
    walk,
)

EVENTS: Final = 4
STRUCTURE: Final = (kernels.measure, kernels.lift, kernels.gather, kernels.entry_keys)
"""The kernels that read all of a space but its events."""

LOW_STAT_IDS: Final = 4096
_HUGE_PAGE: Final = 2 << 20
_SAMPLE: Final = 64
T = TypeVar("T", bound=np.generic)

_NO_INT64: Final = np.empty(0, np.int64)
_NO_INT32: Final = np.empty(0, np.int32)
_FAR: Final = np.iinfo(np.int64).max


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


def _sparse_zeros(
    shape: tuple[int, int], dtype: type[T], full: Iterable[int] = ()
) -> npt.NDArray[T]:
    """Zeros of which only the pages that are written to take memory.

    numpy asks for huge pages: one event with a stat would cost two megabytes then. But where all
    of a row will be written to, they are had in a tenth of the time.

    Args:
        shape: Rows and columns.
        dtype: Of the elements.
        full: Rows that will be.
    """
    row_bytes = shape[1] * np.dtype(dtype).itemsize
    size = shape[0] * row_bytes
    if size < _HUGE_PAGE:
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for row in full:
        first = -(-row * row_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (row + 1) * row_bytes // mmap.PAGESIZE * mmap.PAGESIZE - first
        if length > 0 and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):
                memory.madvise(mmap.MADV_HUGEPAGE, first, length)
    return np.frombuffer(memory, dtype).reshape(shape)


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
        codes, distinct = factorise_texts(self._buffer, handles)
        return codes, [self.value(handle) for handle in distinct.tolist()]

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
        self.sifter = CompiledSifter(array, self._payloads)

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

    def entries(self, span: Span, field: int) -> tuple[Int64s, Int64s, Int64s]:
        """Keys, starts and ends of a map's entries, in order."""
        fields = frozenset({field})
        count = self._measure(span, fields)[0]
        starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
        report = np.zeros(8, np.int64)
        kernels.lift(self._buffer, *span, _mask(fields), starts, ends, report)
        _raise(report)
        keys = np.empty(count, np.int64)
        kernels.entry_keys(self._buffer, starts, ends, keys, report)
        _raise(report)
        return keys, starts, ends

    def bytes_at(self, start: int, end: int) -> bytes:
        """The bytes of a span."""
        return self._buffer[start:end].tobytes()

    def without(self, span: Span, fields: frozenset[int]) -> bytes:
        """The message without these length-delimited fields."""
        return self._split(span, fields, limit=len(self._buffer))[0]

    def line(self, span: Span, limit: int) -> tuple[bytes, int]:
        """A line without its events, and how many they are."""
        return self._split(span, frozenset({EVENTS}), limit=limit)

    def _split(self, span: Span, fields: frozenset[int], *, limit: int) -> tuple[bytes, int]:
        start, end = span
        count, size, first, last = self._measure(span, fields)
        if count > limit:
            raise WireError(too_many(fields, limit), first)
        buffer = self._buffer
        if size == last - first:
            # They lie in one piece, as every known tracer writes them: no second walk.
            return buffer[start:first].tobytes() + buffer[last:end].tobytes(), count
        out = np.empty(end - start - size, np.uint8)
        report = np.zeros(8, np.int64)
        kernels.gather(buffer, start, end, _mask(fields), False, out, report)
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
        marks = np.empty((n + events.MARK_EVERY - 1) // events.MARK_EVERY, np.int64)
        shape = (request.slot_count, request.count)
        full = self._full_slots(request)
        kinds = _sparse_zeros(shape, np.uint8, full)
        raws = _sparse_zeros(shape, np.int64, full)
        if request.count and (n or request.slot_count):
            low, rows, keys = _metadata_table(request.metadata_ids)
            low_slots, high_ids, high_slots = _stat_table(request)
            report = np.zeros(8, np.int64)
            events.decode(
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

    def _full_slots(self, request: LineRequest) -> list[int]:
        """Slots that most events of a long line fill, as far as its first ones show."""
        start, end = request.span
        if not request.slot_count or request.count * 8 < _HUGE_PAGE:
            return []
        report = np.zeros(8, np.int64)
        after = kernels.skip_events(self._buffer, start, end, _SAMPLE, report)
        _raise(report)
        one = kernels.skip_events(self._buffer, start, end, _SAMPLE - 1, report)
        both = [self.survey(replace(request, span=span)) for span in ((start, one), (one, after))]
        return np.flatnonzero(both[0].present & both[1].present).tolist()

    def survey(self, request: LineRequest) -> SurveyedLine:
        """What is known of a line without its columns."""
        low, table, keys = _metadata_table(request.metadata_ids)
        low_slots, high_ids, high_slots = _stat_table(request)
        rows = len(request.metadata_ids) + 1
        first_ps, last_ps = np.full(rows, _FAR), np.full(rows, -_FAR)
        present = np.zeros(request.slot_count, np.uint8)
        report = np.zeros(8, np.int64)
        is_natural = survey.survey(
            self._buffer,
            *request.span,
            request.base_ps,
            low,
            table,
            keys,
            SEED,
            len(request.metadata_ids),
            low_slots,
            high_ids,
            high_slots,
            first_ps,
            last_ps,
            present,
            report,
        )
        _raise(report)
        return SurveyedLine(first_ps, last_ps, present != 0, bool(is_natural))

    def event(self, span: Span, index: int, marks: Int64s) -> bytes:
        """The XEvent message of one event."""
        start, end = span
        skip = index
        if len(marks):
            start, skip = int(marks[index // events.MARK_EVERY]), index % events.MARK_EVERY
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


class CompiledSifter:
    """The compiled form of what reads few events of a line.

    Args:
        buffer: The XSpace's bytes.
        payloads: Of the stats in them.
    """

    def __init__(self, buffer: npt.NDArray[np.uint8], payloads: BufferPayloads) -> None:
        self._buffer = buffer
        self._payloads = payloads

    def sift(self, request: LineRequest, rows: UInt8s, aside: int) -> SiftedEvents | None:
        """The events of a line that matter, and how they nest; None when nearly all do."""
        n = request.count
        # Room for all of them; what is not written to takes no memory.
        indices, parent, between, metadata = (np.empty(n, np.int32) for _ in range(4))
        start, duration = np.empty(n, np.int64), np.empty(n, np.int64)
        occurrences = np.zeros(n, np.int64)
        shape = (request.slot_count, n)
        kinds, raws = _sparse_zeros(shape, np.uint8), _sparse_zeros(shape, np.int64)
        outer = OuterEvents(
            events=np.empty(n, np.int32),
            parent=np.empty(n, np.int32),
            metadata=np.empty(n, np.int32),
            start_ps=np.empty(n, np.int64),
            duration_ps=np.empty(n, np.int64),
            after=np.empty(n, np.int64),
        )
        low, table, keys = _metadata_table(request.metadata_ids)
        low_slots, high_ids, high_slots = _stat_table(request)
        report = np.zeros(8, np.int64)
        report[4:6] = _FAR, -_FAR
        count = sieve.sift(
            self._buffer,
            *request.span,
            request.base_ps,
            low,
            table,
            keys,
            SEED,
            len(request.metadata_ids),
            low_slots,
            high_ids,
            high_slots,
            rows,
            aside,
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            indices,
            parent,
            between,
            metadata,
            start,
            duration,
            occurrences,
            kinds,
            raws,
            outer.events,
            outer.parent,
            outer.metadata,
            outer.start_ps,
            outer.duration_ps,
            outer.after,
            report,
        )
        _raise(report)
        if count == sieve.DENSE:
            return None
        found, earliest, latest, is_nested = (int(value) for value in report[3:7])
        decoded = DecodedLine(
            metadata[:count],
            start[:count],
            duration[:count],
            occurrences[:count],
            kinds[:, :count],
            raws[:, :count],
            self._payloads,
            _NO_INT64,
        )
        return SiftedEvents(
            events=indices[:count],
            parent=parent[:count],
            between=between[:count],
            columns=decoded,
            outer=outer.take(slice(found)),
            reach_ps=(earliest, latest) if earliest <= latest else None,
            is_nested=bool(is_nested),
        )

    def inner_spans(self, request: InnerRequest) -> InnerSpans:
        """Spans around some moments within outer events."""
        line, outer = request.line, request.outer
        n = line.count
        within, start, end = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
        low_slots, high_ids, high_slots = _stat_table(line)
        report = np.zeros(8, np.int64)
        count = sieve.find_inner(
            self._buffer,
            line.span[1],
            line.base_ps,
            low_slots,
            high_ids,
            high_slots,
            np.empty((0, 0), np.uint8),
            np.empty((0, 0), np.int64),
            request.events,
            request.apart,
            outer.events,
            outer.start_ps,
            outer.start_ps + outer.duration_ps,
            outer.after,
            request.levels,
            request.depth,
            request.moments,
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            within,
            start,
            end,
            report,
        )
        _raise(report)
        return InnerSpans(within[:count], start[:count], end[:count])


def _metadata_table(ids: Int64s) -> tuple[int, Int32s, Int64s]:
    """Lowest id, rows and keys as ``events.decode`` looks them up.

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
    events.hash_ids(np.require(ids, np.int64, ["C", "W"]), SEED, rows, keys)
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
