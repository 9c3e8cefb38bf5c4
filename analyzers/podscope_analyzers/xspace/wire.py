"""What an XSpace reader needs of the bytes, and the protobuf form of it.

The compiled form (``compiled.py``) answers the same in a hundredth of the time; this one
needs no compiler and is what the other is tested against.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from google.protobuf.message import DecodeError

from podscope_analyzers.xspace.columns import (
    BYTES,
    DOUBLE,
    GZIP,
    INT64,
    REF,
    STRING,
    UINT64,
    Bools,
    Int32s,
    Int64s,
    Payloads,
    UInt8s,
)
from podscope_analyzers.xspace.frames import without_events
from podscope_analyzers.xspace.limits import TIME_BOUND_PS
from podscope_protos.v1 import xplane_pb2

Span = tuple[int, int]
EVENTS = 4


class WireError(Exception):
    """The bytes break the wire format; the reader adds the plane and line."""

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.offset = offset


def too_many(fields: Collection[int], limit: int) -> str:
    """The problem of fields that repeat beyond their cap."""
    numbers = " and ".join(str(field) for field in sorted(fields))
    return f"field {numbers} repeats more than {limit} times"


@dataclass(frozen=True)
class LineRequest:
    """What to decode of a line.

    Attributes:
        span: The XLine message's bytes.
        count: Its events.
        fields: Whether to decode the events' own fields, not only stats.
        base_ps: What the line's own timestamp adds to every offset, picoseconds.
        metadata_ids: The plane's event metadata ids, ascending.
        slots: The slot of every wanted stat metadata id.
        slot_count: Slots; several ids may share one.
    """

    span: Span
    count: int
    base_ps: int
    fields: bool
    metadata_ids: Int64s
    slots: Mapping[int, int]
    slot_count: int


@dataclass(frozen=True)
class DecodedLine:
    """Fields of a line's events, shape (n,), and of its wanted stats, shape (slots, n).

    Attributes:
        marks: Where every so many events one starts, for ``Wire.event``; may be empty.
    """

    metadata: Int32s
    start_ps: Int64s
    duration_ps: Int64s
    occurrences: Int64s
    kinds: UInt8s
    raws: Int64s
    payloads: Payloads
    marks: Int64s


@dataclass(frozen=True)
class OuterEvents:
    """Events of a line that are not kept, but lie right below one that is, each of shape (c,).

    Those without duration lie anywhere below one. All others are within one of these, or have no
    kept event around them.

    Attributes:
        events: Their indices in the line, ascending.
        parent: Which kept event is the innermost around each.
        metadata: Row of the plane's event metadata.
        start_ps: As in ``DecodedLine``.
        duration_ps: As in ``DecodedLine``.
        after: Where the next event may start in the bytes.
    """

    events: Int32s
    parent: Int32s
    metadata: Int32s
    start_ps: Int64s
    duration_ps: Int64s
    after: Int64s

    def take(self, chosen: Int64s | slice) -> "OuterEvents":
        """Some of them, by their numbers."""
        return OuterEvents(**{name: column[chosen] for name, column in vars(self).items()})


@dataclass(frozen=True)
class SurveyedLine:
    """What is known of a line's events without their columns.

    Attributes:
        first_ps: Earliest start of the events of each row of the metadata, shape (m + 1,).
        last_ps: Latest end, before the first start for a row without events, shape (m + 1,).
        present: Whether any event has the stat of a slot, shape (slots,).
        is_natural: Whether outer events come before inner ones, and earlier before later.
    """

    first_ps: Int64s
    last_ps: Int64s
    present: Bools
    is_natural: bool


@dataclass(frozen=True)
class SiftedEvents:
    """Some events of a line, each of shape (k,), how they nest, and what is between them.

    Attributes:
        events: Their indices in the line, ascending.
        parent: Which of them is the innermost around each, -1 for none.
        between: Events of the line between the two that are not among them.
        columns: Their fields and stats.
        outer: The outer ones of the others.
        reach_ps: Earliest start and latest end of the others; None where there are none.
        is_nested: Whether no event of the line comes before one that it lies in, and none begins
            within a kept one and ends after it.
    """

    events: Int32s
    parent: Int32s
    between: Int32s
    columns: DecodedLine
    outer: OuterEvents
    reach_ps: tuple[int, int] | None
    is_nested: bool


@dataclass(frozen=True)
class InnerRequest:
    """Which events within some outer ones are wanted; see ``kernels.sieve.find_inner``.

    Attributes:
        line: Without stats.
        events: The kept events, ascending, shape (k,).
        apart: Which of them take no part in the nesting, shape (k,).
        outer: In the order of the line, shape (c,).
        levels: Level below each of them, shape (c,).
        depth: Level from which on nothing is wanted.
        moments: Of which a wanted event lies around one; ascending, shape (t,).
    """

    line: LineRequest
    events: Int32s
    apart: Bools
    outer: OuterEvents
    levels: Int32s
    depth: int
    moments: Int64s


@dataclass(frozen=True)
class InnerSpans:
    """Spans within outer events, each of shape (f,).

    Attributes:
        outer: Which outer event each lies in.
        start_ps: Picoseconds from the space's base.
        end_ps: Likewise.
    """

    outer: Int32s
    start_ps: Int64s
    end_ps: Int64s


class Sifter(Protocol):
    """Reads few events of a line in less time than it takes to decode all."""

    def sift(self, request: LineRequest, rows: UInt8s, aside: int) -> SiftedEvents | None:
        """The events of a line that have a wanted stat, or a name of a row that is not 0.

        ``aside`` is the slot of the stat that takes an event out of the nesting, or -1. None
        where these would be nearly all.
        """

    def inner_spans(self, request: InnerRequest) -> InnerSpans:
        """Spans around some moments within events that ``sift`` found to be outer ones."""


class Wire(Protocol):
    """The operations on the bytes of one XSpace."""

    @property
    def sifter(self) -> Sifter | None:
        """Reads few events of a line; None where that takes as long as decoding all."""

    def lift(self, span: Span, field: int, limit: int) -> list[Span]:
        """Payloads of a length-delimited field, in order; more than ``limit`` is an error."""

    def entries(self, span: Span, field: int) -> tuple[Int64s, Int64s, Int64s]:
        """Keys, starts and ends of a map's entries, in order, all (n,)."""

    def bytes_at(self, start: int, end: int) -> bytes:
        """The bytes of a span."""

    def without(self, span: Span, fields: frozenset[int]) -> bytes:
        """The message without these length-delimited fields."""

    def line(self, span: Span, limit: int) -> tuple[bytes, int]:
        """A line without its events, and how many they are."""

    def decode(self, request: LineRequest) -> DecodedLine:
        """Columns of a line."""

    def survey(self, request: LineRequest) -> SurveyedLine | None:
        """What is known of a line without its columns; None where these are as fast."""

    def event(self, span: Span, index: int, marks: Int64s) -> bytes:
        """The XEvent message of one event."""

    def check(self, span: Span) -> int:
        """Reads every event of a line; how many stats they have."""


def read_varint(buffer: memoryview, at: int, end: int) -> tuple[int, int]:
    """A varint and the position behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            problem = "a number is cut off"
            raise WireError(problem, at)
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    problem = "a number has more than 64 bits"
    raise WireError(problem, at)


def walk(buffer: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Fields of a message: number, wire type, start, start of the payload, end."""
    at = start
    while at < end:
        key, payload = read_varint(buffer, at, end)
        number, wire_type = key >> 3, key & 7
        if number == 0 or key >> 32:
            problem = "a field has no valid number"
            raise WireError(problem, at)
        if wire_type == 0:
            after = read_varint(buffer, payload, end)[1]
        elif wire_type == 1:
            after = payload + 8
        elif wire_type == 5:
            after = payload + 4
        elif wire_type == 2:
            length, payload = read_varint(buffer, payload, end)
            after = payload + length
        else:
            problem = f"a field has wire type {wire_type}, which no XSpace uses"
            raise WireError(problem, at)
        if after > end:
            problem = f"field {number} reaches {after - end} bytes beyond its message"
            raise WireError(problem, at)
        yield number, wire_type, at, payload, after
        at = after


class ListPayloads:
    """Payloads kept as a list; the handle is the index."""

    def __init__(self, values: list[bytes]) -> None:
        self._values = values

    def value(self, handle: int) -> bytes:
        """The bytes behind one handle."""
        return self._values[handle]

    def factorise(self, handles: Int64s) -> tuple[Int32s, list[bytes]]:
        """Equal payloads numbered from 0 in order of appearance."""
        table: dict[bytes, int] = {}
        codes = [table.setdefault(self._values[h], len(table)) for h in handles.tolist()]
        return np.asarray(codes, dtype=np.int32), list(table)

    def number(self, ids: Int64s) -> tuple[Int32s, list[int]]:
        """Equal ids numbered from 0 in order of appearance."""
        distinct, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        order = np.argsort(first)
        code = np.empty(order.shape, np.int32)
        code[order] = np.arange(len(order), dtype=np.int32)
        return code[inverse], distinct[order].tolist()


def _signed(value: int) -> int:
    """The int64 of the same bits."""
    return value - (1 << 64) if value >> 63 else value


class PortableWire:
    """The protobuf form: every event passes through a message object.

    Args:
        buffer: The XSpace's bytes.
    """

    sifter = None

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._last: tuple[Span, xplane_pb2.XLine] | None = None

    def lift(self, span: Span, field: int, limit: int) -> list[Span]:
        """Payloads of a length-delimited field, in order."""
        spans: list[Span] = []
        for number, wire_type, at, payload, after in walk(self._buffer, *span):
            if number == field and wire_type == 2:
                if len(spans) == limit:
                    raise WireError(too_many({field}, limit), at)
                spans.append((payload, after))
        return spans

    def entries(self, span: Span, field: int) -> tuple[Int64s, Int64s, Int64s]:
        """Keys, starts and ends of a map's entries, in order."""
        found = []
        for start, end in self.lift(span, field, len(self._buffer)):
            key = 0
            for number, wire_type, _, payload, after in walk(self._buffer, start, end):
                if number == 1 and wire_type == 0:
                    key = _signed(read_varint(self._buffer, payload, after)[0])
            found.append((key, start, end))
        keys, starts, ends = np.array(found, np.int64).reshape(-1, 3).T.copy()
        return keys, starts, ends

    def bytes_at(self, start: int, end: int) -> bytes:
        """The bytes of a span."""
        return bytes(self._buffer[start:end])

    def without(self, span: Span, fields: frozenset[int]) -> bytes:
        """The message without these length-delimited fields."""
        return b"".join(
            self._buffer[at:after]
            for number, wire_type, at, _, after in walk(self._buffer, *span)
            if not (number in fields and wire_type == 2)
        )

    def line(self, span: Span, limit: int) -> tuple[bytes, int]:
        """A line without its events, and how many they are."""
        found = without_events(self._buffer[span[0] : span[1]])
        if found is None or found[1] > limit:
            # A walk in Python takes fifty times as long, and tells where and why.
            self.lift(span, EVENTS, limit)
            problem = "its events cannot be read"
            raise WireError(problem, span[0])
        header, count = found
        for _ in walk(memoryview(header), 0, len(header)):
            # What no XSpace uses, and protobuf keeps, is an error here as everywhere.
            pass
        return header, count

    def decode(self, request: LineRequest) -> DecodedLine:
        """Columns of a line."""
        n = request.count
        ids = np.zeros(n, np.int64)
        start = np.zeros(n, np.int64)
        duration = np.zeros(n, np.int64)
        occurrences = np.zeros(n, np.int64)
        kinds = np.zeros((request.slot_count, n), np.uint8)
        raws = np.zeros((request.slot_count, n), np.int64)
        payloads: list[bytes] = []
        for i, event in enumerate(self._message(request.span).events):
            ids[i] = event.metadata_id
            shifted = request.base_ps + event.offset_ps
            start[i] = max(-TIME_BOUND_PS, min(shifted, TIME_BOUND_PS))
            duration[i] = max(0, min(event.duration_ps, TIME_BOUND_PS))
            occurrences[i] = event.num_occurrences
            for stat in event.stats:
                slot = request.slots.get(stat.metadata_id, -1)
                # Of a stat that repeats, the first counts.
                if slot >= 0 and kinds[slot, i] == 0:
                    kinds[slot, i], raws[slot, i] = _kind_and_raw(stat, payloads)
        return DecodedLine(
            metadata=rows_of(ids, request.metadata_ids),
            start_ps=start,
            duration_ps=duration,
            occurrences=occurrences,
            kinds=kinds,
            raws=raws,
            payloads=ListPayloads(payloads),
            marks=np.empty(0, np.int64),
        )

    def survey(self, request: LineRequest) -> None:
        """None: here it takes as long as decoding."""

    def check(self, span: Span) -> int:
        """Reads every event of a line; how many stats they have."""
        return sum(len(event.stats) for event in self._message(span).events)

    def event(self, span: Span, index: int, marks: Int64s) -> bytes:
        """The XEvent message of one event; the marks are not needed."""
        del marks
        return self._message(span).events[index].SerializeToString()

    def _message(self, span: Span) -> xplane_pb2.XLine:
        if self._last is None or self._last[0] != span:
            try:
                message = xplane_pb2.XLine.FromString(bytes(self._buffer[span[0] : span[1]]))
            except DecodeError as error:
                problem = f"its events cannot be read ({error})"
                raise WireError(problem, span[0]) from error
            self._last = (span, message)
        return self._last[1]


def _kind_and_raw(stat: xplane_pb2.XStat, payloads: list[bytes]) -> tuple[int, int]:
    match stat.WhichOneof("value"):
        case "double_value":
            return DOUBLE, int(np.float64(stat.double_value).view(np.int64))
        case "uint64_value":
            return UINT64, _signed(stat.uint64_value)
        case "int64_value":
            return INT64, stat.int64_value
        case "ref_value":
            return REF, _signed(stat.ref_value)
        case "str_value":
            payloads.append(stat.str_value.encode())
            return STRING, len(payloads) - 1
        case "bytes_value":
            payloads.append(stat.bytes_value)
            return BYTES, len(payloads) - 1
        case "gzip_value":
            payloads.append(stat.gzip_value)
            return GZIP, len(payloads) - 1
        case _:
            return 0, 0


def rows_of(ids: Int64s, known: Int64s) -> Int32s:
    """Row of every id in the ascending ``known``; ``len(known)`` for any other.

    Returns:
        Rows, shape of ``ids``, int32.
    """
    if not len(known):
        return np.zeros(ids.shape, np.int32)
    at = np.searchsorted(known, ids)
    hit = known[np.minimum(at, len(known) - 1)] == ids
    return np.where(hit, at, len(known)).astype(np.int32)
